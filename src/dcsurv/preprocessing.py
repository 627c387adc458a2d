"""From a table of patients to numbers: scale, impute, encode; with a state of plain numbers and strings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from dcsurv._frames import as_pandas
from dcsurv.plain import level_text

Float32Array: TypeAlias = npt.NDArray[np.float32]
Float64Array: TypeAlias = npt.NDArray[np.float64]

# More levels than this are an identifier or free text, and one column per level helps nobody. Neither does a column in
# which most patients have a level of their own; as a name or a number of a patient it has no place in a model file.
_MAX_LEVELS = 255
_FEW_LEVELS, _OWN_LEVEL_SHARE = 20, 0.5
_STATE_VERSION = 1


@dataclass(frozen=True)
class _Number:
    """How a number is scaled: (value - mean) / scale, missing -> median. A scale of 0 marks a constant."""

    name: str
    mean: float
    scale: float
    median: float
    levels: tuple[str, ...] | None = None  # of a category that enters as the position of its level

    def names_out(self) -> list[str]:
        return [self.name]

    def write(self, values: Float64Array, out: Float32Array) -> None:
        # A constant carried no information in fit: a model has learnt nothing about it, so it stays 0.
        scaled = (values - self.mean) * (1 / self.scale if self.scale else 0.0)
        missing = np.isnan(scaled)
        if missing.any():
            scaled[missing] = self.median
        out[:, 0] = scaled


@dataclass(frozen=True)
class _Category:
    """The levels of a category in their order; the first one is the reference."""

    name: str
    levels: tuple[str, ...]
    most_frequent: int

    def names_out(self) -> list[str]:
        # One level (a constant) or two give one column.
        return [f"{self.name}_{level}" for level in self.levels[1:]] or [self.name]

    def write(self, positions: Float64Array, out: Float32Array) -> None:
        filled = np.where(np.isnan(positions), self.most_frequent, positions)
        out[:] = filled[:, None] == np.arange(1, out.shape[1] + 1)


_Rule: TypeAlias = _Number | _Category


class Preprocessor(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a table with missing values and categories into a float32 matrix.

    Numbers are standardised to mean 0 and standard deviation 1 (divisor n, missing values left out), then missing
    ones get the median. Categories (also text and booleans) get the most frequent level where they are missing;
    two levels become one column of 0 and 1, more levels one 0/1 column each except the first. Everything is
    learnt from the rows given to ``fit``.

    A level that was not there in ``fit`` is treated as missing, with a warning that names it: the most frequent
    level is a likelier patient than the reference level, which is what a row of zeros would mean. Levels are
    compared as text, where 1, 1.0 and "1" are the same, so that a table read again from a file still fits. A
    number that was constant in ``fit`` becomes 0. Columns without a single value in ``fit`` and infinite values
    are refused.

    Columns of a DataFrame, of pandas or polars, are found by name, in any order; those that were not there in ``fit``
    are ignored with a warning.

    Parameters
    ----------
    ordinal
        Names of categories that enter as numbers: the position of the level, standardised. The order is that of
        the pandas categories; text is sorted.

    Attributes
    ----------
    n_features_in_
        Number of columns seen in ``fit``.
    feature_names_in_
        Their names; only if ``fit`` saw a DataFrame whose column names are all strings.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"age": [50.0, 70.0, None], "stage": ["I", "III", "II"]})
    >>> Preprocessor().fit(X).get_feature_names_out().tolist()
    ['age', 'stage_II', 'stage_III']
    """

    def __init__(self, *, ordinal: Sequence[str] = ()) -> None:
        self.ordinal = ordinal

    def fit(self, X: Any, y: Any = None) -> Preprocessor:
        """Learn means, medians and levels from the training rows; ``y`` is not used."""
        frame, named = _as_frame(X)
        names = [str(name) for name in frame.columns]
        _refuse_unknown_ordinal(self.ordinal, names)
        rules: list[_Rule] = []
        for name in names:
            column = frame[name]
            if column.dtype == np.dtype(object):
                column = column.infer_objects()  # may well be numbers, with None among them
            if _is_number(column):
                rules.append(_fit_number(name, _numbers(column)))
            else:
                rules.append(_fit_category(name, column, ordinal=name in self.ordinal))
        self._set_fitted(rules, named)
        return self

    def transform(self, X: Any) -> Float32Array:
        """Return the matrix of shape (rows of X, ``len(get_feature_names_out())``), float32."""
        check_is_fitted(self)
        frame = self._match_columns(*_as_frame(X))
        widths = [len(rule.names_out()) for rule in self._rules]
        out = np.empty((len(frame), sum(widths)), dtype=np.float32)
        unseen: dict[str, list[str]] = {}
        start = 0
        for rule, width in zip(self._rules, widths, strict=True):
            column = frame[rule.name]
            if rule.levels is None:
                values = _numbers(column)
            else:
                values, unknown = _positions(column, rule.levels)
                if unknown:
                    unseen[rule.name] = unknown
            rule.write(values, out[:, start : start + width])
            start += width
        if unseen:
            shown = "; ".join(f"{name!r}: {', '.join(values[:5])}" for name, values in unseen.items())
            warnings.warn(
                f"levels that were not there in fit are treated as missing ({shown}). If they are spellings of "
                "known levels, correct them; if they are new, fit again.",
                UserWarning,
                stacklevel=2,
            )
        return out

    def feature_of_each_column(self) -> list[str]:
        """Return for every output column the name of the feature that it comes from."""
        check_is_fitted(self)
        return [rule.name for rule in self._rules for _ in rule.names_out()]

    def get_feature_names_out(self, input_features: npt.ArrayLike | None = None) -> npt.NDArray[np.object_]:
        """Return the names of the output columns, such as ``age`` or ``stage_III``."""
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
        """Return all that was learnt as plain numbers, strings and lists, fit for JSON."""
        check_is_fitted(self)
        columns = []
        for rule in self._rules:
            state = {"kind": "number" if isinstance(rule, _Number) else "category", **asdict(rule)}
            columns.append({**state, "levels": None if rule.levels is None else list(rule.levels)})
        return {
            "version": _STATE_VERSION,
            "ordinal": list(self.ordinal),
            "named": hasattr(self, "feature_names_in_"),
            "columns": columns,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Preprocessor:
        """Rebuild a fitted preprocessor from :meth:`get_state`; it transforms to the same bits."""
        if state.get("version") != _STATE_VERSION:
            raise ValueError(
                f"the preprocessor's state has version {state.get('version')!r}, but {_STATE_VERSION} is expected. "
                "It was written by another release of dcsurv, or is something else."
            )
        rules: list[_Rule] = []
        for column in state["columns"]:
            fields = {key: value for key, value in column.items() if key != "kind"}
            fields["levels"] = None if fields["levels"] is None else tuple(fields["levels"])
            rules.append(_Number(**fields) if column["kind"] == "number" else _Category(**fields))
        preprocessor = cls(ordinal=tuple(state["ordinal"]))
        preprocessor._set_fitted(rules, named=state["named"])
        return preprocessor

    def _set_fitted(self, rules: list[_Rule], named: bool) -> None:
        self._rules = rules
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
            extra = [name for name in frame.columns if name not in set(known)]
            if missing:
                raise ValueError(
                    f"X lacks the columns {missing} that were there in fit (it has others: {extra[:10]}). Rename or "
                    "add them; columns are found by name, in any order."
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


def _is_number(column: pd.Series) -> bool:
    if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
        raise ValueError(
            f"column {column.name!r} holds {column.dtype} values. Turn it into a number first, such as the days "
            "since diagnosis, or drop it."
        )
    if pd.api.types.is_complex_dtype(column.dtype):
        raise ValueError(f"Complex data not supported: column {column.name!r}.")
    return pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)


def _numbers(column: pd.Series) -> Float64Array:
    """Return a numeric column as float64 with NaN where it is missing; refuse text and infinity."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiu":
        values = column.to_numpy(np.float64)
    else:
        try:
            values = pd.to_numeric(column.astype(object)).to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            known = column.astype(object).dropna()
            culprit = known[pd.to_numeric(known, errors="coerce").isna()].iloc[0]
            raise ValueError(
                f"column {column.name!r} held numbers in fit, but now it holds values such as {culprit!r}. "
                "Pass numbers, with NaN where one is missing."
            ) from None
    infinite = int(np.isinf(values).sum())
    if infinite:
        raise ValueError(
            f"column {column.name!r} holds {infinite} infinite values. Replace them by NaN if they mean missing."
        )
    return values


def _fit_number(name: str, values: Float64Array, levels: tuple[str, ...] | None = None) -> _Number:
    known = values[~np.isnan(values)]
    if len(known) == 0:
        raise _no_value(name, len(values))
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(known.mean()), float(known.std())
    if not np.isfinite(scale):
        raise ValueError(f"column {name!r} holds values too large to be squared. Use another unit.")
    # The spread of a constant is rounding error of its mean.
    if scale <= 10 * np.finfo(np.float64).eps * abs(mean):
        return _Number(name, mean, 0.0, 0.0, levels)
    return _Number(name, mean, scale, (float(np.median(known)) - mean) / scale, levels)


def _fit_category(name: str, column: pd.Series, *, ordinal: bool) -> _Rule:
    codes, uniques = _factorize(column)
    observed = np.unique(codes[codes >= 0])
    if len(observed) == 0:
        raise _no_value(name, len(column))
    texts = [level_text(uniques[code]) for code in observed]
    if not isinstance(column.dtype, pd.CategoricalDtype):
        texts = _sorted_levels(texts)
    levels = tuple(dict.fromkeys(texts))
    positions, _ = _positions(column, levels)
    if ordinal:
        return _fit_number(name, positions, levels)
    n_known = int((codes >= 0).sum())
    if len(levels) > _MAX_LEVELS or len(levels) > max(_FEW_LEVELS, _OWN_LEVEL_SHARE * n_known):
        raise ValueError(
            f"column {name!r} has {len(levels)} different values in {n_known} rows, which looks like an identifier or "
            "free text. Drop it, group it, or make it a number."
        )
    counts = np.bincount(positions[~np.isnan(positions)].astype(np.int64), minlength=len(levels))
    return _Category(name, levels, int(counts.argmax()))


def _positions(column: pd.Series, levels: Sequence[str]) -> tuple[Float64Array, list[str]]:
    """Return each row's position among the levels, NaN if missing or unknown, and the unknown values."""
    codes, uniques = _factorize(column)
    known = {level: float(position) for position, level in enumerate(levels)}
    texts = [level_text(value) for value in uniques]
    # One entry more, for missing values, whose code is -1.
    lookup = np.array([*(known.get(text, np.nan) for text in texts), np.nan])
    present = np.unique(codes[codes >= 0])
    unknown = [texts[code] for code in present if texts[code] not in known]
    return lookup[codes], unknown


def _factorize(column: pd.Series) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.cat.codes, dtype=np.int64), list(column.cat.categories)
    try:
        codes, uniques = pd.factorize(column)
    except TypeError:
        raise ValueError(
            f"column {column.name!r} holds values that are neither numbers nor text, such as {column.iloc[0]!r}."
        ) from None
    return np.asarray(codes, dtype=np.int64), list(uniques)


def _sorted_levels(texts: Sequence[str]) -> list[str]:
    """Sort as numbers if all are numbers, so that "10" comes after "2"; otherwise as text."""
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return sorted(texts)
    if not all(map(math.isfinite, numbers.values())):
        return sorted(texts)
    return sorted(texts, key=lambda text: (numbers[text], text))


def _no_value(name: str, n_rows: int) -> ValueError:
    return ValueError(
        f"column {name!r} has no value in any of the {n_rows} rows given to fit, so it cannot be scaled or filled. "
        "Drop it."
    )


def _refuse_unknown_ordinal(ordinal: Sequence[str], names: Sequence[str]) -> None:
    if isinstance(ordinal, str):
        raise ValueError(f"ordinal is the string {ordinal!r}; pass a list of column names, such as [{ordinal!r}].")
    unknown = [name for name in ordinal if name not in names]
    if unknown:
        raise ValueError(f"ordinal names columns that X does not have: {unknown}. X has {list(names)}.")
