"""dcsurv: individual survival prediction, S(t | x), from a table of patients.

Names are imported when they are first used: ``import dcsurv`` itself loads neither torch nor scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcsurv import calibration, cohort, datasets, experiments, explanation, metrics, models, validation
    from dcsurv.calibration import CalibratedEnsemble, Recalibrated, recalibrate
    from dcsurv.curves import SurvivalCurves
    from dcsurv.experiments.tuning import Tuned, tune
    from dcsurv.explanation import Explanation, explain
    from dcsurv.follow_up import FollowUp, study_follow_up
    from dcsurv.grid import TimeGrid
    from dcsurv.kinds import ModelKind
    from dcsurv.models import (
        DCS,
        DRSA,
        BoostedHazards,
        CoxPH,
        CoxTime,
        DeepSurv,
        HazardForest,
        Kamran,
        SplineAFT,
        SplineCox,
        paper_settings,
    )
    from dcsurv.parallel import on_cluster
    from dcsurv.persistence import load
    from dcsurv.planning import SampleSize, sample_size
    from dcsurv.report import write_report
    from dcsurv.target import check_outcome, fold_indices, make_outcome, train_test_indices
    from dcsurv.validation import Validation, validate

__version__ = "0.2.0.dev0"

__all__ = [
    "DCS",
    "DRSA",
    "BoostedHazards",
    "CalibratedEnsemble",
    "CoxPH",
    "CoxTime",
    "DeepSurv",
    "Explanation",
    "FollowUp",
    "HazardForest",
    "Kamran",
    "ModelKind",
    "Recalibrated",
    "SampleSize",
    "SplineAFT",
    "SplineCox",
    "SurvivalCurves",
    "TimeGrid",
    "Tuned",
    "Validation",
    "__version__",
    "calibration",
    "check_outcome",
    "cohort",
    "datasets",
    "experiments",
    "explain",
    "explanation",
    "fold_indices",
    "load",
    "make_outcome",
    "metrics",
    "models",
    "on_cluster",
    "paper_settings",
    "recalibrate",
    "sample_size",
    "study_follow_up",
    "train_test_indices",
    "tune",
    "validate",
    "validation",
    "write_report",
]

_ROOM_OF = {
    **dict.fromkeys(("CalibratedEnsemble", "Recalibrated", "recalibrate"), "calibration"),
    **dict.fromkeys(
        (
            "DCS",
            "DRSA",
            "CoxPH",
            "CoxTime",
            "DeepSurv",
            "Kamran",
            "SplineAFT",
            "SplineCox",
            "BoostedHazards",
            "HazardForest",
            "paper_settings",
        ),
        "models",
    ),
    **dict.fromkeys(("check_outcome", "fold_indices", "make_outcome", "train_test_indices"), "target"),
    **dict.fromkeys(("Tuned", "tune"), "experiments.tuning"),
    **dict.fromkeys(("Validation", "validate"), "validation"),
    **dict.fromkeys(("Explanation", "explain"), "explanation"),
    **dict.fromkeys(("SampleSize", "sample_size"), "planning"),
    **dict.fromkeys(("FollowUp", "study_follow_up"), "follow_up"),
    "SurvivalCurves": "curves",
    "ModelKind": "kinds",
    "TimeGrid": "grid",
    "load": "persistence",
    "on_cluster": "parallel",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    if name in _ROOM_OF:
        return getattr(import_module(f"dcsurv.{_ROOM_OF[name]}"), name)
    if name in __all__:
        return import_module(f"dcsurv.{name}")
    raise AttributeError(f"module 'dcsurv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
