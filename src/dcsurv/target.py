"""The outcome of a patient, (event, time): build it, check it, unpack it, split by it.

Every estimator and every metric gets its ``y`` from :func:`check_outcome`, so there is one meaning of ``y``
and one place that says what is wrong with it.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv.messages import InputError, Message, plural

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
# What make_outcome builds: one (event, time) per patient.
Outcome: TypeAlias = npt.NDArray[np.void]

OUTCOME_DTYPE = np.dtype([("event", np.bool_), ("time", np.float64)])

_ENTRY_NAMES = {"entry", "entry_time", "start", "tstart", "left_truncation"}
_HOW_TO_BUILD = "Build y with dcsurv.make_outcome(time, event)."


def make_outcome(time: npt.ArrayLike, event: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Build the outcome array from times and event indicators.

    Parameters
    ----------
    time : array-like of float
        Observed time of each patient, at least 0 and finite, in any one unit.
    event : array-like of bool or int
        1 or True where the event was observed, 0 or False where the patient was censored.

    Returns
    -------
    structured array
        With the fields ``event`` (bool) and ``time`` (float64), shape (n,).

    Examples
    --------
    >>> from dcsurv import make_outcome
    >>> make_outcome(time=[3.5, 1.0], event=[1, 0])
    array([( True, 3.5), (False, 1. )],
          dtype=[('event', '?'), ('time', '<f8')])
    """
    return _assemble(_filled(time), _filled(event))


def check_outcome(y: Any, *, min_events: int = 0, n_rows: int | None = None) -> npt.NDArray[np.void]:
    """Return ``y`` as the outcome array, or say what is wrong with it.

    Parameters
    ----------
    y : structured array, DataFrame, dict or tuple
        A structured array with two fields (as :func:`make_outcome` or scikit-survival's ``Surv`` make), a two-column
        DataFrame of pandas or polars, a dict of two columns, or a tuple ``(time, event)``. Fields and columns are
        called ``time`` and ``event``, or anything else if only one of them holds 0 and 1, or False and True.
    min_events : int, default 0
        How many observed events the caller needs.
    n_rows : int or None, default None
        The number of rows that ``y`` must have, if something else has to match it.

    Returns
    -------
    structured array
        With the fields ``event`` (bool) and ``time`` (float64), shape (n,).

    Raises
    ------
    ValueError
        With what was wrong, what arrived and what to do.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv import check_outcome
    >>> check_outcome(pd.DataFrame({"months": [3.5, 1.0], "died": [True, False]}))["time"]
    array([3.5, 1. ])
    """
    time, event = _take_apart(y)
    outcome = _assemble(time, event)
    if n_rows is not None and len(outcome) != n_rows:
        raise ValueError(
            f"y has {plural(len(outcome), 'row')}, but {n_rows} are expected (one per row of the predictions or of X). "
            "Pass the outcomes of the same patients, in the same order."
        )
    n_events = int(outcome["event"].sum())
    if n_events < min_events:
        raise ValueError(
            f"y has {plural(n_events, 'observed event')} among {plural(len(outcome), 'patient')}, but at least "
            f"{min_events} are needed here. Check that the event column is 1 for an observed event and 0 for censoring."
        )
    return outcome


def unpack(y: Any, *, min_events: int = 0, n_rows: int | None = None) -> tuple[FloatArray, BoolArray]:
    """Check ``y`` and return ``(time, event)`` as two contiguous arrays."""
    outcome = check_outcome(y, min_events=min_events, n_rows=n_rows)
    return np.ascontiguousarray(outcome["time"]), np.ascontiguousarray(outcome["event"])


def check_sample_weight(sample_weight: npt.ArrayLike | None, n_rows: int) -> FloatArray:
    """Return one non-negative weight per patient; ones when none are given."""
    if sample_weight is None:
        return np.ones(n_rows)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, but ({n_rows},) is expected: one number per patient."
        )
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight must be finite and not negative; drop or repair the rows that are not.")
    if not weight.any():
        raise ValueError("sample_weight is zero for every patient; at least one must count.")
    return weight


def check_groups(groups: npt.ArrayLike | None, n_rows: int) -> IntArray | None:
    """Check which rows belong together.

    Parameters
    ----------
    groups : array-like or None
        A label per row that rows of one patient, or family, share. A row without a label stands alone.
    n_rows : int
        How many there should be.

    Returns
    -------
    array of int or None
        A number in the place of each label; None where no two rows belong together.

    Examples
    --------
    >>> from dcsurv.target import check_groups
    >>> check_groups(["Ann", "Bob", "Ann"], 3).tolist()
    [0, 1, 0]
    """
    if groups is None:
        return None
    labels = pd.Series(np.asarray(groups), dtype=object) if np.ndim(groups) == 1 else None
    if labels is None or len(labels) != n_rows:
        raise ValueError(f"groups has shape {np.shape(groups)}, but one label per row, ({n_rows},), is expected.")
    codes = pd.factorize(labels)[0].astype(np.int64)
    alone = codes < 0
    codes[alone] = n_rows + np.arange(alone.sum())
    return codes if len(np.unique(codes)) < n_rows else None


def train_test_indices(
    y: Any,
    *,
    test_size: float = 0.2,
    random_state: int = 0,
    groups: npt.ArrayLike | None = None,
) -> tuple[IntArray, IntArray]:
    """Split patients into training and test rows, stratified by the event indicator.

    Parameters
    ----------
    y : outcome
        Outcome of n patients.
    test_size : float, default 0.2
        Share of the patients in the test part (with ``groups``: about, to the nearest tenth).
    random_state : int, default 0
        Seed.
    groups : array-like or None, default None
        A centre, family or patient id per row. Rows of one group stay on the same side.

    Returns
    -------
    train : array of int
        Row numbers of the training part. Without groups they are those of scikit-learn's ``train_test_split`` with the
        same ``random_state`` and ``stratify=event``.
    test : array of int
        Row numbers of the test part.

    Examples
    --------
    >>> from dcsurv import make_outcome, train_test_indices
    >>> y = make_outcome(time=range(1, 11), event=[1, 0] * 5)
    >>> train, test = train_test_indices(y)
    >>> len(train), len(test), int(y["event"][test].sum())
    (8, 2, 1)
    """
    from sklearn.model_selection import train_test_split

    _, event = unpack(y)
    if not 0 < test_size < 1:
        raise ValueError(f"test_size is {test_size}, but a share between 0 and 1 is expected, such as 0.2.")
    if groups is not None:
        # Tenths of the groups, of which as many are put together as the share asks for.
        n_folds = max(2, min(10, len(np.unique(np.asarray(groups)))))
        folds = fold_indices(y, n_folds=n_folds, random_state=random_state, groups=groups)
        n_test = min(max(1, round(test_size * n_folds)), n_folds - 1)
        test = np.sort(np.concatenate([rows for _, rows in folds[:n_test]]))
        return np.setdiff1d(np.arange(len(event)), test), test
    rows = np.arange(len(event))
    train, test = train_test_split(rows, test_size=test_size, random_state=random_state, stratify=_strata(event, 2))
    return train, test


def fold_indices(
    y: Any,
    *,
    n_folds: int = 5,
    random_state: int = 0,
    groups: npt.ArrayLike | None = None,
) -> list[tuple[IntArray, IntArray]]:
    """Deal patients into folds with about the same share of events, and whole groups where they are given.

    Parameters
    ----------
    y : outcome
        Outcome of n patients.
    n_folds : int, default 5
        How many folds.
    random_state : int, default 0
        Seed.
    groups : array-like or None, default None
        A centre, family or patient id per row. Rows of one group stay in the same fold.

    Returns
    -------
    list of tuple
        One pair (training rows, test rows) per fold.

    Examples
    --------
    >>> from dcsurv import fold_indices, make_outcome
    >>> y = make_outcome(time=range(1, 11), event=[1, 0] * 5)
    >>> [len(test) for train, test in fold_indices(y)]
    [2, 2, 2, 2, 2]
    """
    from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

    _, event = unpack(y)
    if not 2 <= n_folds <= len(event):
        raise ValueError(f"n_folds is {n_folds}, but 2 to {len(event)} (the number of patients) are possible.")
    if groups is not None:
        group = np.asarray(groups)
        if group.shape != event.shape:
            raise ValueError(f"groups has shape {group.shape}, but one label per row {event.shape} is expected.")
        n_groups = len(np.unique(group))
        if n_groups < n_folds:
            raise InputError(
                Message(
                    "{groups} has {found}, too few for {parts} parts.",
                    found=plural(n_groups, "different label"),
                    parts=n_folds,
                ),
                parameter="groups",
                remedy="Use fewer folds, or hold out a larger part.",
            )
        splitter: Any = StratifiedGroupKFold(n_folds, shuffle=True, random_state=random_state)
        return list(splitter.split(event, event, group))
    strata = _strata(event, n_folds)
    kind = KFold if strata is None else StratifiedKFold
    return list(kind(n_folds, shuffle=True, random_state=random_state).split(event, strata))


def _strata(event: BoolArray, parts: int) -> BoolArray | None:
    """Return the event indicator, or None where one of its two values is too rare to be dealt out."""
    n_events = int(event.sum())
    return event if min(n_events, len(event) - n_events) >= parts else None


def _take_apart(y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Find the time and the event column in whatever arrived."""
    y = as_pandas(y)
    if isinstance(y, pd.DataFrame):
        return _from_names({str(c): y[c].to_numpy() for c in y.columns}, f"a DataFrame with columns {list(y.columns)}")
    if isinstance(y, Mapping):
        return _from_names({str(k): _filled(v) for k, v in y.items()}, f"a dict with keys {list(y)}")
    if isinstance(y, tuple):
        if len(y) != 2:
            raise ValueError(
                f"y is a tuple of {plural(len(y), 'part')}, but (time, event) is expected. {_HOW_TO_BUILD}"
            )
        return _filled(y[0]), _filled(y[1])
    array = np.asarray(y)
    if array.dtype.names is None:
        raise ValueError(
            f"y is an array of {array.dtype} with shape {array.shape}, from which event and time cannot be told "
            f"apart. {_HOW_TO_BUILD}"
        )
    names = array.dtype.names
    return _from_names({name: array[name] for name in names}, f"a structured array with fields {list(names)}")


def _from_names(columns: dict[str, npt.NDArray[Any]], what: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Tell time and event apart: by their names if these are 'time' and 'event', else by what they hold."""
    entry = sorted(name for name in columns if name.lower() in _ENTRY_NAMES)
    if entry:
        raise ValueError(
            f"y is {what}; {entry[0]!r} looks like an entry time. Left truncation is not supported: "
            "every patient must be observed from time 0."
        )
    if len(columns) != 2:
        raise ValueError(f"y is {what}, but two are expected, the time and the event. {_HOW_TO_BUILD}")
    if set(columns) == {"event", "time"}:
        return columns["time"], columns["event"]
    booleans = [name for name, column in columns.items() if column.dtype == np.bool_]
    events = booleans if len(booleans) == 1 else [name for name, column in columns.items() if _is_indicator(column)]
    if len(events) == 2:  # such as patients who all had the event at time 1
        events = [name for name in events if name.lower() != "time"]
    if len(events) != 1:
        found = "neither of them holds" if not events else "both of them hold"
        raise ValueError(
            f"y is {what}; {found} just 0 and 1, or True and False, so it is not clear which is the event. Call them "
            f"'time' and 'event', or build y with dcsurv.make_outcome(time, event)."
        )
    (time,) = (column for name, column in columns.items() if name != events[0])
    return time, columns[events[0]]


def _is_indicator(column: npt.NDArray[Any]) -> bool:
    """Whether a column holds nothing but 0 and 1, or False and True, apart from gaps."""
    known = column[~pd.isna(column)]
    if column.dtype == object:
        return len(known) > 0 and all(isinstance(value, numbers.Real) and value in (0, 1) for value in known)
    return len(known) > 0 and column.dtype.kind in "biuf" and bool(np.isin(known, (0, 1)).all())


def _filled(column: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a column as an array, with NaN where a masked array hides a value."""
    if isinstance(column, np.ma.MaskedArray) and np.ma.is_masked(column):
        return np.ma.filled(column.astype(np.float64), np.nan)
    return np.asarray(as_pandas(column))


def _as_numbers(column: npt.NDArray[Any]) -> FloatArray:
    """Return a column as float64; None and pandas' own mark of a missing value are NaN."""
    if column.dtype == object:
        column = np.where(pd.isna(column), np.nan, column)
    return column.astype(np.float64)


def _assemble(time: npt.NDArray[Any], event: npt.NDArray[Any]) -> npt.NDArray[np.void]:
    if time.ndim != 1 or event.ndim != 1:
        raise ValueError(
            f"time has shape {time.shape} and event {event.shape}, but two one-dimensional columns are expected."
        )
    if len(time) != len(event):
        raise ValueError(f"time has {len(time)} rows and event {len(event)}: they must be the same patients.")
    if len(time) == 0:
        raise ValueError("y has no rows. Pass the outcome of at least one patient.")
    out = np.empty(len(time), dtype=OUTCOME_DTYPE)
    out["time"] = _check_time(time)
    out["event"] = _check_event(event)
    return out


def _check_time(time: npt.NDArray[Any]) -> FloatArray:
    if time.dtype.kind in "mM":
        raise ValueError(
            f"time holds {time.dtype} values. Pass numbers: the days (or months) from a patient's start to the "
            "event or the last contact."
        )
    try:
        values = _as_numbers(time)
    except (TypeError, ValueError):
        raise ValueError(
            f"time holds values that are not numbers, such as {str(time[0])!r}. Convert them first."
        ) from None
    _refuse_rows(~np.isfinite(values), values, "time must be finite; missing or infinite")
    _refuse_rows(values < 0, values, "time must not be negative; negative")
    return values


def _check_event(event: npt.NDArray[Any]) -> BoolArray:
    if event.dtype == np.bool_:
        return event
    try:
        codes = _as_numbers(event)
    except (TypeError, ValueError):
        raise ValueError(
            f"event holds values that are not 0/1, such as {str(event[0])!r}. Code an observed event as 1, "
            "censoring as 0."
        ) from None
    _refuse_rows(np.isnan(codes), codes, "event must be 0 or 1; missing")
    other = np.setdiff1d(codes, [0.0, 1.0])
    if len(other):
        found = ", ".join(f"{code:g}" for code in other[:5])
        raise ValueError(
            f"event holds {found} besides 0 and 1. Several kinds of event (competing risks) are not "
            "supported: code the event of interest as 1 and everything else as 0 (censored). If 1 means censored "
            "and 2 the event, pass event == 2."
        )
    event_observed: BoolArray = codes == 1
    return event_observed


def _refuse_rows(bad: BoolArray, values: FloatArray, what: str) -> None:
    if bad.any():
        rows = np.flatnonzero(bad)
        shown = ", ".join(f"row {row}: {values[row]:g}" for row in rows[:3])
        more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
        raise ValueError(f"{what} values in {len(rows)} of {len(values)} rows ({shown}{more}). Repair or drop them.")
