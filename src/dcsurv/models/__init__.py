"""The six models, as scikit-learn estimators."""

from dcsurv.models.coxph import CoxPH
from dcsurv.models.coxtime import CoxTime
from dcsurv.models.dcs import DCS
from dcsurv.models.deepsurv import DeepSurv
from dcsurv.models.drsa import DRSA
from dcsurv.models.kamran import Kamran
from dcsurv.models.paper import paper_settings

__all__ = ["DCS", "DRSA", "CoxPH", "CoxTime", "DeepSurv", "Kamran", "paper_settings"]
