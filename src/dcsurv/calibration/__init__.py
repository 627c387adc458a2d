"""Recalibration maps, the cross-fitted ensemble that uses them, and recalibration for another cohort."""

from dcsurv.calibration.ensemble import CalibratedEnsemble
from dcsurv.calibration.families import COMPANIONS, default_member
from dcsurv.calibration.horizon_map import HorizonMap
from dcsurv.calibration.local import Recalibration, recalibrate
from dcsurv.calibration.map_base import RecalibrationMap
from dcsurv.calibration.maps import MapSequence, make_maps, map_from_state
from dcsurv.calibration.rank_map import RankPreservingMap
from dcsurv.calibration.recalibrated import FittedOn, Recalibrated
from dcsurv.models import Band

__all__ = [
    "COMPANIONS",
    "Band",
    "CalibratedEnsemble",
    "FittedOn",
    "HorizonMap",
    "MapSequence",
    "RankPreservingMap",
    "Recalibrated",
    "Recalibration",
    "RecalibrationMap",
    "default_member",
    "make_maps",
    "map_from_state",
    "recalibrate",
]
