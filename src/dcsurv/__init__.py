"""dcsurv: individual survival prediction, S(t | x), from a table of patients."""

from dcsurv.curves import SurvivalCurves
from dcsurv.grid import TimeGrid
from dcsurv.models import DCS, DRSA, CoxPH, CoxTime, DeepSurv, Kamran, paper_settings
from dcsurv.persistence import load
from dcsurv.target import check_outcome, fold_indices, make_outcome, train_test_indices

__version__ = "0.1.0"

__all__ = [
    "DCS",
    "DRSA",
    "CoxPH",
    "CoxTime",
    "DeepSurv",
    "Kamran",
    "SurvivalCurves",
    "TimeGrid",
    "__version__",
    "check_outcome",
    "fold_indices",
    "load",
    "make_outcome",
    "paper_settings",
    "train_test_indices",
]
