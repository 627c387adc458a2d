from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcsurv import check_outcome, fold_indices, make_outcome, train_test_indices
from dcsurv.target import OUTCOME_DTYPE, check_sample_weight

TIME, EVENT = [3.0, 1.0, 2.0], [1, 0, 1]


@pytest.mark.parametrize(
    "y",
    [
        make_outcome(TIME, EVENT),
        (TIME, EVENT),
        {"time": TIME, "event": EVENT},
        pd.DataFrame({"event": EVENT, "time": TIME}),
        pd.DataFrame({"time": TIME, "event": np.array(EVENT, dtype=bool)}, index=[7, 8, 9]),
        np.array(list(zip(np.array(EVENT, dtype=bool), TIME, strict=True)), dtype=[("cens", "?"), ("days", "f8")]),
        np.array(list(zip(TIME, EVENT, strict=True)), dtype=[("time", "f4"), ("event", "i4")]),
        pd.DataFrame({"os_months": TIME, "dead": EVENT}),
        pd.DataFrame({"dead": pd.array([True, False, True], dtype="boolean"), "months": pd.array([3, 1, 2], "Int64")}),
        {"status": EVENT, "days": TIME},
        pl.DataFrame({"time": TIME, "event": EVENT}),
        pl.DataFrame({"dead": [True, False, True], "months": [3, 1, 2]}),
        pl.DataFrame({"dead": [True, False, True], "months": TIME}).to_struct(),
        (pl.Series(TIME), pl.Series(EVENT)),
        {"time": pl.Series(TIME), "event": pl.Series([True, False, True])},
        pa.table({"event": [True, False, True], "time": TIME}),
    ],
    ids=[
        "ours", "tuple", "dict", "frame", "bool frame", "scikit-survival", "other order", "other names", "nullable",
        "dict with other names", "polars", "polars with other names", "polars struct", "polars columns", "polars dict",
        "pyarrow",
    ],
)  # fmt: skip
def test_every_form_of_y_means_the_same(y):
    outcome = check_outcome(y)
    assert outcome.dtype == OUTCOME_DTYPE
    assert outcome["time"].tolist() == TIME
    assert outcome["event"].tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("time", "event", "words"),
    [
        ([1, -2], [0, 1], "negative.*row 1: -2"),
        ([1, np.nan], [0, 1], "missing or infinite.*row 1"),
        ([np.inf, 1], [0, 1], "missing or infinite"),
        ([1, 2], [0, 2], "holds 2 besides 0 and 1.*competing risks"),
        ([1, 2], [0, np.nan], "missing"),
        ([1, 2], ["no", "yes"], "not 0/1, such as 'no'"),
        (["x", "y"], [0, 1], "not numbers"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), [1], "days"),
        ([1, 2, 3], [0, 1], "3 rows and event 2"),
        ([], [], "no rows"),
        (np.ma.masked_values([1.0, 999.0], 999.0), [0, 1], "missing or infinite"),
        ([[1], [2]], [0, 1], "one-dimensional"),
    ],
)
def test_bad_outcomes_are_refused_in_words(time, event, words):
    with pytest.raises(ValueError, match=words):
        make_outcome(time, event)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.array([1.0, 2.0]), "make_outcome"),
        ((TIME, EVENT, TIME), "tuple of 3"),
        ({"days": TIME, "status": [1, 2, 2]}, "neither of them holds just 0 and 1"),
        (pd.DataFrame({"days": [0, 1, 1], "dead": EVENT}), "both of them hold just 0 and 1"),
        (pd.DataFrame({"days": TIME, "dead": EVENT, "age": TIME}), "two are expected"),
        (pl.DataFrame({"days": TIME, "name": ["a", "b", "c"]}), "neither of them holds"),
        (pl.Series(TIME), "cannot be told apart"),
        (pl.DataFrame({"time": TIME, "event": [True, None, False]}), "event must be 0 or 1; missing.*row 1"),
        (pd.DataFrame({"time": pd.array([1, None, 2], "Int64"), "event": EVENT}), "time must be finite.*row 1"),
        (pd.DataFrame({"entry": [0, 0, 1], "time": TIME, "event": EVENT}), "Left truncation is not supported"),
    ],
)
def test_bad_containers_are_refused_in_words(y, words):
    with pytest.raises(ValueError, match=words):
        check_outcome(y)


def test_a_name_decides_where_the_values_do_not():
    assert check_outcome(pd.DataFrame({"Time": [1, 1, 0], "dead": [1, 0, 1]}))["event"].tolist() == [True, False, True]


def test_too_few_events_and_wrong_length_are_refused():
    with pytest.raises(ValueError, match="0 observed events among 2"):
        check_outcome(([1, 2], [0, 0]), min_events=1)
    with pytest.raises(ValueError, match="3 rows, but 5"):
        check_outcome((TIME, EVENT), n_rows=5)


def test_sample_weights():
    assert check_sample_weight(None, 3).tolist() == [1, 1, 1]
    for bad, words in [([1, 2], "shape"), ([1, -1, 1], "negative"), ([0, 0, 0], "zero"), ([1, np.nan, 1], "finite")]:
        with pytest.raises(ValueError, match=words):
            check_sample_weight(bad, 3)


def test_split_equals_scikit_learn():
    from sklearn.model_selection import train_test_split

    rng = np.random.default_rng(0)
    y = make_outcome(rng.random(100), rng.random(100) < 0.3)
    train, test = train_test_indices(y, random_state=40)
    expected = train_test_split(np.arange(100), test_size=0.2, random_state=40, stratify=y["event"])
    np.testing.assert_array_equal(train, expected[0])
    np.testing.assert_array_equal(test, expected[1])


@given(
    n=st.integers(10, 60),
    n_folds=st.integers(2, 5),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
    grouped=st.booleans(),
)
def test_folds_partition_the_patients_and_keep_groups_whole(n, n_folds, share, seed, grouped):
    rng = np.random.default_rng(seed)
    y = make_outcome(rng.random(n), rng.random(n) < share)
    groups = np.arange(n) // 2 if grouped else None
    if grouped and not n_folds <= min((~y["event"]).sum(), y["event"].sum()):
        return  # scikit-learn deals rare classes out with a warning of its own
    folds = fold_indices(y, n_folds=n_folds, random_state=seed, groups=groups)
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(n))
    for train, test in folds:
        assert len(np.intersect1d(train, test)) == 0
        if groups is not None:
            assert len(np.intersect1d(groups[train], groups[test])) == 0


def test_grouped_split_keeps_groups_whole():
    rng = np.random.default_rng(1)
    y = make_outcome(rng.random(200), rng.random(200) < 0.5)
    groups = rng.integers(0, 30, 200)
    train, test = train_test_indices(y, groups=groups, random_state=3)
    assert not set(groups[train]) & set(groups[test])
    assert 0.1 < len(test) / 200 < 0.3
    with pytest.raises(ValueError, match="too few for 2"):
        train_test_indices(y, groups=np.zeros(200), test_size=0.2)
    with pytest.raises(ValueError, match=r"test_size is 1\.5"):
        train_test_indices(y, test_size=1.5)
