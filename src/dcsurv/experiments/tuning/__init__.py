"""Search of settings: Bayesian, cross-validated, stopped early where it is hopeless, kept in a file or a database.

>>> result = dcsurv.tune("dcs", X_train, y_train, n_trials=100, workers=2, storage="dcs.study")  # doctest: +SKIP
>>> model = result.best_estimator().fit(X_train, y_train)  # doctest: +SKIP
"""

from dcsurv.experiments.tuning.criteria import Criterion
from dcsurv.experiments.tuning.estimator import Tuned
from dcsurv.experiments.tuning.result import TuningResult, read_settings, save_settings
from dcsurv.experiments.tuning.search import tune
from dcsurv.experiments.tuning.spaces import default_space, named_estimator, paper_space
from dcsurv.search_space import Choice, Float, Int, TuningError

__all__ = [
    "Choice",
    "Criterion",
    "Float",
    "Int",
    "Tuned",
    "TuningError",
    "TuningResult",
    "default_space",
    "named_estimator",
    "paper_space",
    "read_settings",
    "save_settings",
    "tune",
]
