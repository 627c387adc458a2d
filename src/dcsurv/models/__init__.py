"""The models, as scikit-learn estimators, and what a model of one's own is built from."""

from dcsurv.models.bands import Band
from dcsurv.models.base import SurvivalModel
from dcsurv.models.boosted_hazards import BoostedHazards
from dcsurv.models.coxph import CoxPH
from dcsurv.models.coxtime import CoxTime
from dcsurv.models.curve_parts import CurveParts
from dcsurv.models.dcs import DCS
from dcsurv.models.deepsurv import DeepSurv
from dcsurv.models.drsa import DRSA
from dcsurv.models.encoder_decoder import EncoderDecoderEstimator
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.grid_model import GridEstimator
from dcsurv.models.hazard_forest import HazardForest
from dcsurv.models.kamran import Kamran
from dcsurv.models.network import NetworkEstimator
from dcsurv.models.paper import paper_settings
from dcsurv.models.spline_aft import SplineAFT
from dcsurv.models.spline_cox import SplineCox
from dcsurv.models.time_bounds import TimeInterval

__all__ = [
    "DCS",
    "DRSA",
    "Band",
    "BoostedHazards",
    "CoxPH",
    "CoxTime",
    "CurveParts",
    "DeepSurv",
    "EncoderDecoderEstimator",
    "GridEstimator",
    "HazardForest",
    "Kamran",
    "NetworkEstimator",
    "SplineAFT",
    "SplineCox",
    "SurvivalEstimator",
    "SurvivalModel",
    "TimeInterval",
    "paper_settings",
]
