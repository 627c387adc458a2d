"""The transformer: a table of patients in, a matrix of numbers out."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv._learn import BaseEstimator, TransformerMixin, check_array, check_is_fitted
from dcsurv.arithmetic import Value
from dcsurv.messages import did_you_mean, listed, plural
from dcsurv.plain import declared
from dcsurv.preprocessing.rules import (
    EncodedCategory,
    Float32Array,
    Rule,
    ScaledNumber,
    fit_category,
    fit_number,
    is_number,
    numbers_of,
    positions_of,
)
from dcsurv.preprocessing.state import PreprocessorState

_STATE_VERSION = 1


class UnknownLevelsWarning(UserWarning):
    """A table has levels that the preprocessing does not know, and takes for missing.

    Parameters
    ----------
    unknown : mapping of str to sequence of str
        The levels, by column.

    Attributes
    ----------
    without_values : str
        The same in words that quote no cell, for pages that are passed on.

    Examples
    --------
    >>> from dcsurv.preprocessing import UnknownLevelsWarning
    >>> UnknownLevelsWarning({"stage": ["IV"]}).without_values
    "1 level of 'stage' that the model does not know is treated as missing."
    """

    def __init__(self, unknown: Mapping[str, Sequence[str]]) -> None:
        shown = "; ".join(f"{name!r}: {', '.join(values[:5])}" for name, values in unknown.items())
        super().__init__(
            f"levels that were not there in fit, or that too few patients had, are treated as missing ({shown}). If "
            "they are spellings of known levels, correct them; if they are new, fit again."
        )
        counts = [f"{plural(len(values), 'level')} of {name!r}" for name, values in unknown.items()]
        one = len(counts) == 1 and len(next(iter(unknown.values()))) == 1
        self.without_values = (
            f"{', '.join(counts)} that the model does not know {'is' if one else 'are'} treated as missing."
        )


class Preprocessor(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a table with missing values and categories into a float32 matrix.

    Numbers are standardised to mean 0 and standard deviation 1 (divisor n, missing values left out), then missing
    ones get the median. Categories (also text and booleans) get the most frequent level where they are missing;
    two levels become one column of 0 and 1, more levels one 0/1 column each except the first. Everything is
    learnt from the rows given to ``fit``.

    A level that was not there in ``fit`` is treated as missing, with a warning that names it: the most frequent
    level is a likelier patient than the reference level, which is what a row of zeros would mean. Levels are
    compared as text, where 1, 1.0 and "1" are the same, so that a table read again from a file still fits. A
    number that was constant in ``fit`` becomes 0. A level that fewer than ``least_patients`` have is not learnt and
    counts as missing, too: too few to learn from, and a model file must not name what one patient has. Columns
    without a single value in ``fit`` and infinite values are refused.

    Columns of a DataFrame, of pandas or polars, are found by name, in any order; those that were not there in ``fit``
    are ignored with a warning.

    Parameters
    ----------
    ordinal : sequence of str, default ()
        Names of categories that enter as numbers: the position of the level, standardised. The order is that of
        the pandas categories; text is sorted.
    least_patients : int, default 5
        How many patients a level needs to be kept; 1 keeps all. The most frequent one is always kept.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : array of str
        Their names; only if ``fit`` saw a DataFrame whose column names are all strings.
    rare_levels_ : dict of str to list of str
        By column, the levels that too few patients had. A model file does not hold them.
    filled_ : dict of str to int
        By column, how many patients of ``fit`` had no value, or such a level. A model file does not hold them.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.preprocessing import Preprocessor
    >>> X = pd.DataFrame({"age": [50.0, 70.0, None], "stage": ["I", "III", "II"]})
    >>> preprocessor = Preprocessor(least_patients=1).fit(X)
    >>> preprocessor.get_feature_names_out().tolist()
    ['age', 'stage_II', 'stage_III']
    >>> preprocessor.transform(X)
    array([[-1.,  0.,  0.],
           [ 1.,  0.,  1.],
           [ 0.,  1.,  0.]], dtype=float32)
    """

    def __init__(self, *, ordinal: Sequence[str] = (), least_patients: int = 5) -> None:
        self.ordinal = ordinal
        self.least_patients = least_patients

    def fit(self, X: Any, y: Any = None) -> Preprocessor:
        """Learn means, medians and levels from the training rows.

        Parameters
        ----------
        X : DataFrame or array
            Features, one row per patient.
        y : outcome or None, default None
            Not used.

        Returns
        -------
        Preprocessor
            Itself.
        """
        frame, named = _as_frame(X)
        names = [str(name) for name in frame.columns]
        _refuse_unknown_ordinal(self.ordinal, names)
        if isinstance(self.least_patients, bool) or not isinstance(self.least_patients, numbers.Integral):
            raise ValueError(f"least_patients is {self.least_patients!r}, but a whole number is expected, such as 5.")
        rules: list[Rule] = []
        rare: dict[str, list[str]] = {}
        filled: dict[str, int] = {}
        for name in names:
            column = frame[name]
            if column.dtype == np.dtype(object):
                column = column.infer_objects()  # may well be numbers, with None among them
            if is_number(column):
                values = numbers_of(column)
                rules.append(fit_number(name, values))
                unknown = int(np.isnan(values).sum())
            else:
                least = int(self.least_patients)
                rule, too_few, unknown = fit_category(name, column, ordinal=name in self.ordinal, least_patients=least)
                rules.append(rule)
                if too_few:
                    rare[name] = too_few
            if unknown:
                filled[name] = unknown
        self._set_fitted(rules, named, rare, filled)
        return self

    def transform(self, X: Any) -> Float32Array:
        """Return features as numbers.

        Parameters
        ----------
        X : DataFrame or array
            Features, one row per patient.

        Returns
        -------
        array of float
            The matrix of shape (rows of X, ``len(get_feature_names_out())``), float32.
        """
        check_is_fitted(self)
        frame = self._match_columns(*_as_frame(X))
        widths = [len(rule.names_out()) for rule in self._rules]
        out = np.empty((len(frame), sum(widths)), dtype=np.float32)
        unseen: dict[str, list[str]] = {}
        start = 0
        for rule, width in zip(self._rules, widths, strict=True):
            column = frame[rule.name]
            if rule.levels is None:
                values = numbers_of(column)
            else:
                values, unknown = positions_of(column, rule.levels)
                new = [value for value in unknown if value not in self.rare_levels_.get(rule.name, ())]
                if new:
                    unseen[rule.name] = new
            rule.write(values, out[:, start : start + width])
            start += width
        if unseen:
            warnings.warn(UnknownLevelsWarning(unseen), stacklevel=2)
        return out

    def arithmetic(self, columns: Sequence[Value]) -> Value:
        """Return what :meth:`transform` computes as arithmetic.

        Parameters
        ----------
        columns : sequence of Value
            A value of shape (n, 1) for each feature: numbers, or places of levels; NaN is missing.

        Returns
        -------
        Value
            The matrix, (n, ``len(get_feature_names_out())``).
        """
        check_is_fitted(self)
        parts = [rule.arithmetic(column) for rule, column in zip(self._rules, columns, strict=True)]
        return parts[0].graph.concat(parts).single()

    def feature_of_each_column(self) -> list[str]:
        """Return for every output column the name of the feature that it comes from.

        Returns
        -------
        list of str
            One name per output column.
        """
        check_is_fitted(self)
        return [rule.name for rule in self._rules for _ in rule.names_out()]

    def get_feature_names_out(self, input_features: npt.ArrayLike | None = None) -> npt.NDArray[np.object_]:
        """Return the names of the output columns, such as ``age`` or ``stage_III``.

        Parameters
        ----------
        input_features : array-like of str or None, default None
            Names of the input columns, if ``fit`` saw none; else they must be those.

        Returns
        -------
        array of str
            One name per output column.
        """
        check_is_fitted(self)
        rules = self._rules
        if input_features is not None:
            given = [str(name) for name in np.asarray(input_features)]
            if len(given) != len(rules):
                raise ValueError(
                    f"input_features should have length equal to number of features ({len(rules)}), got {len(given)}"
                )
            if hasattr(self, "feature_names_in_"):
                if given != [rule.name for rule in rules]:
                    raise ValueError("input_features is not equal to feature_names_in_")
            else:
                rules = [replace(rule, name=name) for rule, name in zip(rules, given, strict=True)]
        return np.array([name for rule in rules for name in rule.names_out()], dtype=object)

    def get_state(self) -> dict[str, Any]:
        """Return all that was learnt as plain numbers, strings and lists, fit for JSON.

        Returns
        -------
        dict
            For :meth:`from_state`.
        """
        check_is_fitted(self)
        columns = []
        for rule in self._rules:
            state = {"kind": "number" if isinstance(rule, ScaledNumber) else "category", **asdict(rule)}
            columns.append({**state, "levels": None if rule.levels is None else list(rule.levels)})
        return {
            "version": _STATE_VERSION,
            "ordinal": list(self.ordinal),
            "least_patients": int(self.least_patients),
            "named": hasattr(self, "feature_names_in_"),
            "columns": columns,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Preprocessor:
        """Rebuild a fitted preprocessor; it transforms to the same bits.

        Parameters
        ----------
        state : mapping
            What :meth:`get_state` returned.

        Returns
        -------
        Preprocessor
            Fitted.
        """
        if state.get("version") != _STATE_VERSION:
            raise ValueError(
                f"the preprocessor's state has version {state.get('version')!r}, but {_STATE_VERSION} is expected. "
                "It was written by another release of dcsurv, or is something else."
            )
        known = declared(state, PreprocessorState)
        rules: list[Rule] = []
        for column in state["columns"]:
            fields = {key: value for key, value in column.items() if key != "kind"}
            fields["levels"] = None if fields["levels"] is None else tuple(fields["levels"])
            rules.append(ScaledNumber(**fields) if column["kind"] == "number" else EncodedCategory(**fields))
        preprocessor = cls(ordinal=tuple(state["ordinal"]), least_patients=known.least_patients)
        preprocessor._set_fitted(rules, named=state["named"], rare={}, filled={})
        return preprocessor

    def _set_fitted(self, rules: list[Rule], named: bool, rare: dict[str, list[str]], filled: dict[str, int]) -> None:
        self._rules = rules
        self.rare_levels_ = rare
        self.filled_ = filled
        self.n_features_in_ = len(rules)
        if named:
            self.feature_names_in_ = np.array([rule.name for rule in rules], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # from an earlier fit

    def _match_columns(self, frame: pd.DataFrame, named: bool) -> pd.DataFrame:
        """Return the columns in the order of fit, found by name where there are names."""
        known = [rule.name for rule in self._rules]
        fitted_with_names = hasattr(self, "feature_names_in_")
        if named and fitted_with_names:
            missing = [name for name in known if name not in frame.columns]
            extra = [str(name) for name in frame.columns.difference(known, sort=False)]
            if missing:
                raise ValueError(
                    f"X lacks the columns {listed(missing, 12)} that were there in fit (it has others: {extra[:10]}). "
                    f"{did_you_mean(missing[0], extra)}Rename or add them; columns are found by name, in any order."
                )
            if extra:
                warnings.warn(
                    f"columns of X that were not there in fit are ignored: {extra[:10]}.", UserWarning, stacklevel=3
                )
            return frame
        if frame.shape[1] != len(known):
            raise ValueError(
                f"X has {frame.shape[1]} features, but {type(self).__name__} is expecting {len(known)} features as "
                "input."
            )
        if named != fitted_with_names:
            now, then = ("has", "without") if named else ("does not have", "with")
            warnings.warn(
                f"X {now} valid feature names, but {type(self).__name__} was fitted {then} feature names; its "
                "columns are taken in the order of fit.",
                UserWarning,
                stacklevel=3,
            )
        return _with_names(frame, known)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags


def _as_frame(X: Any) -> tuple[pd.DataFrame, bool]:
    """Return X as a DataFrame with string column names, and whether the names are the caller's own."""
    X = as_pandas(X)
    named = False
    if isinstance(X, pd.DataFrame):
        strings = [isinstance(name, str) for name in X.columns]
        if any(strings) and not all(strings):
            raise TypeError(
                f"column names must all be strings, or none; got {list(X.columns)[:10]}. "
                "Rename them with X.columns = X.columns.astype(str)."
            )
        named = bool(strings) and all(strings)
        twice = X.columns[X.columns.duplicated()].unique().tolist()
        if twice:
            raise ValueError(f"X has more than one column named {twice}. Rename or drop the copies.")
        if len(X) == 0 or X.shape[1] == 0:
            check_array(np.empty(X.shape))  # raises with scikit-learn's words
        frame = X
    else:
        array = np.array(X, dtype=object) if isinstance(X, (list, tuple)) else X
        frame = pd.DataFrame(check_array(array, dtype=None, ensure_all_finite=False), copy=False)
    if not named:
        frame = _with_names(frame, [f"x{i}" for i in range(frame.shape[1])])
    return frame, named


def _with_names(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Rename all columns without copying the values."""
    frame = frame.copy(deep=False)
    frame.columns = pd.Index(names)
    return frame


def _refuse_unknown_ordinal(ordinal: Sequence[str], names: Sequence[str]) -> None:
    if isinstance(ordinal, str):
        raise ValueError(f"ordinal is the string {ordinal!r}; pass a list of column names, such as [{ordinal!r}].")
    unknown = [name for name in ordinal if name not in names]
    if unknown:
        raise ValueError(
            f"ordinal names columns that X does not have: {unknown}. {did_you_mean(unknown[0], names)}X has "
            f"{listed(names, 12)}."
        )
