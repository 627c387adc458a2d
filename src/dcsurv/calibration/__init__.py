"""Recalibration maps, the cross-fitted ensemble that uses them, and recalibration for another cohort."""

from dcsurv.calibration.ensemble import Band, CalibratedEnsemble, default_member
from dcsurv.calibration.local import Recalibration, recalibrate
from dcsurv.calibration.maps import HorizonMap, MapSequence, RankPreservingMap, RecalibrationMap, map_from_state

__all__ = [
    "Band",
    "CalibratedEnsemble",
    "HorizonMap",
    "MapSequence",
    "RankPreservingMap",
    "Recalibration",
    "RecalibrationMap",
    "default_member",
    "map_from_state",
    "recalibrate",
]
