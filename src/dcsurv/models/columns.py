"""The columns of a table that a fitted model looks at."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dcsurv.messages import did_you_mean


def with_columns(X: Any, names: Sequence[str] | None) -> Any:
    """Return the columns that a model was fitted with, in its order; say which others are not used.

    What is no DataFrame, or was fitted without names, is returned as it is.
    """
    if names is None or not isinstance(X, pd.DataFrame) or list(X.columns) == list(names):
        return X
    missing = [name for name in names if name not in X.columns]
    extra = [str(name) for name in X.columns.difference(list(names), sort=False)]
    if missing:
        raise ValueError(
            f"X has no column {', '.join(repr(name) for name in missing[:6])}"
            f"{f' and {len(missing) - 6} others' if len(missing) > 6 else ''}, with which the model was fitted. It "
            f"has {', '.join(repr(str(name)) for name in X.columns[:12])}{', ...' if X.shape[1] > 12 else ''}. "
            f"{did_you_mean(str(missing[0]), extra)}".rstrip()
        )
    if extra:
        warnings.warn(
            f"X has {len(extra)} {'column' if len(extra) == 1 else 'columns'} that the model was not fitted with "
            f"and does not use: {', '.join(map(repr, extra[:6]))}{', ...' if len(extra) > 6 else ''}.",
            UserWarning,
            stacklevel=2,
        )
    return X[list(names)]
