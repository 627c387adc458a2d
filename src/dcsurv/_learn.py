"""What the library takes from scikit-learn to make estimators, from one place: see :mod:`dcsurv._lean`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or "dcsurv._lean" not in sys.modules:
    from sklearn.base import BaseEstimator, TransformerMixin, clone
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_array, check_is_fitted, validate_data
else:
    from dcsurv._lean import (
        BaseEstimator,
        TransformerMixin,
        check_array,
        check_is_fitted,
        check_random_state,
        clone,
        validate_data,
    )

__all__ = [
    "BaseEstimator",
    "TransformerMixin",
    "check_array",
    "check_is_fitted",
    "check_random_state",
    "clone",
    "validate_data",
]
