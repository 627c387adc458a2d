"""Models that take a table of patients: checking it, and preprocessing it to numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv._learn import clone, validate_data
from dcsurv.messages import plural
from dcsurv.models.base import Features, SurvivalModel
from dcsurv.models.columns import with_columns
from dcsurv.models.ranges import Range
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import Outcome


@dataclass(kw_only=True, repr=False, eq=False)
class TableModel(SurvivalModel):
    """Base of the models that turn a table into numbers before they compute with it.

    Parameters
    ----------
    preprocess : "auto", None or transformer, default "auto"
        ``"auto"`` imputes, scales and encodes inside the estimator, so that a DataFrame with missing values and
        categories can be passed as it is; None takes numbers as they are; a scikit-learn transformer is cloned
        and fitted.
    """

    preprocess: Any = "auto"

    # Which values each numeric parameter may have.
    ranges: ClassVar[dict[str, Range]] = {}

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        if isinstance(self.preprocess, str) and self.preprocess != "auto":
            raise ValueError(f"preprocess is {self.preprocess!r}, but 'auto', None or a transformer is expected.")
        for name, allowed in self.ranges.items():
            allowed.check(name, getattr(self, name))

    def check_features(self, X: Any) -> Any:
        """Return the features of a fitted model, found by name in a DataFrame, checked and not yet encoded."""
        own = with_columns(as_pandas(X), getattr(self, "feature_names_in_", None))
        # A fitted model goes by what it was fitted with, whatever its parameters say since.
        return self._checked(own, reset=False, as_they_are=self.preprocessor_ is None)

    def _check_new_features(self, X: Any) -> Any:
        return self._checked(X, reset=True, as_they_are=self.preprocess is None)

    def _checked(self, X: Any, *, reset: bool, as_they_are: bool) -> Any:
        """Check shape, column names and numbers; a DataFrame stays one where columns may be of any type."""
        X = as_pandas(X)
        if as_they_are:
            return validate_data(self, X, reset=reset, dtype=np.float32)
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0 or X.shape[1] == 0:
                raise ValueError(f"X has shape {X.shape}: found 0 rows or columns, but at least 1 is needed.")
            return X
        return validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")

    def _fit_preprocessing(self, X: Any, y: Outcome) -> Features:
        if self.preprocess is None:
            self.preprocessor_: Any = None
        elif isinstance(self.preprocess, str):
            self.preprocessor_ = Preprocessor().fit(X)
        else:
            self.preprocessor_ = clone(self.preprocess).fit(X, y)
        return self.encode(X)

    def encode(self, features: Any) -> Features:
        """Return checked features as the numbers that the model computes with.

        Values far outside the range of training are taken for its edge: no model has learnt anything there, and some
        would answer with certain death or none.
        """
        ranges = self.training_ranges
        if ranges is not None:
            features = ranges.clamped(features)
        if self.preprocessor_ is None:
            return np.require(features, dtype=np.float32, requirements="W")
        out = np.asarray(self.preprocessor_.transform(features), dtype=np.float32)
        if not np.isfinite(out).all():
            bad = int((~np.isfinite(out)).any(axis=1).sum())
            raise ValueError(
                f"{plural(bad, 'row of X holds', 'rows of X hold')} NaN or infinity after preprocessing "
                f"with {type(self.preprocessor_).__name__}. Impute or drop them first."
            )
        return out

    def _feature_of_each_column(self, n_columns: int) -> list[str]:
        """Return the feature behind every column after preprocessing; numbers where that is not known."""
        if isinstance(self.preprocessor_, Preprocessor):
            return self.preprocessor_.feature_of_each_column()
        names = getattr(self, "feature_names_in_", None)
        if self.preprocessor_ is None and names is not None:
            return [str(name) for name in names]
        return [f"column {k}" for k in range(n_columns)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        accepts_tables = self.preprocess is not None
        tags.input_tags.allow_nan = accepts_tables
        tags.input_tags.string = accepts_tables
        tags.input_tags.categorical = accepts_tables
        return tags
