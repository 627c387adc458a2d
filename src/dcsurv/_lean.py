"""As much of scikit-learn as predicting needs, for a process that does nothing else.

Importing scikit-learn takes half as long as importing torch and pandas together, which is most of the time in which
``dcsurv predict`` predicts ten patients. A process that imports this module before any other of the library gets these
from :mod:`dcsurv._learn`; what they cannot do they leave to scikit-learn.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np


class BaseEstimator:
    """An object with parameters."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, and with ``deep`` those of estimators among them."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        own = {name: getattr(self, name) for name in sorted(names)}
        inside = {
            f"{name}__{key}": value
            for name, one in own.items()
            if deep and hasattr(one, "get_params") and not isinstance(one, type)
            for key, value in one.get_params().items()
        }
        return own | inside

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator."""
        for name, value in params.items():
            setattr(self, name, value)
        return self


class TransformerMixin:
    """An object that transforms."""


def check_is_fitted(estimator: Any) -> None:
    """Refuse an estimator that was not fitted; those of a file were."""


def validate_data(
    estimator: Any, X: Any, *, reset: bool = False, dtype: Any = None, skip_check_array: bool = False, **rest: Any
) -> Any:
    """Return features as an array, or as they are if they are only to be counted."""
    if X.shape[1] != estimator.n_features_in_:
        name = type(estimator).__name__
        raise ValueError(f"X has {X.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features.")
    if skip_check_array:
        return X
    out = np.asarray(X, dtype=dtype)
    if out.dtype.kind == "f" and not np.isfinite(out).all() and rest.get("ensure_all_finite") != "allow-nan":
        raise ValueError("Input X contains NaN or infinity.")
    return out


def check_array(array: Any, **options: Any) -> Any:
    """Leave arrays that are no tables to scikit-learn."""
    from sklearn.utils import check_array as check

    return check(array, **options)


def clone(estimator: Any) -> Any:
    """Leave fitting to scikit-learn."""
    from sklearn.base import clone as cloned

    return cloned(estimator)


def check_random_state(seed: Any) -> Any:
    """Leave fitting to scikit-learn."""
    from sklearn.utils import check_random_state as check

    return check(seed)
