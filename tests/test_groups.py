"""Rows of one patient: on one side of every split, or the table is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcsurv
from dcsurv.cohort import Cohort, CohortError, check_cohort
from dcsurv.experiments.tuning import trials
from dcsurv.search_space import TuningError
from dcsurv.target import check_groups
from dcsurv.training import loop
from dcsurv.trees import growing
from dcsurv.validation import running
from test_cli import run


@pytest.fixture(scope="module")
def visits() -> pd.DataFrame:
    """Return three visits of each of eighty patients, all alike."""
    rng = np.random.default_rng(0)
    n = 80
    age = rng.normal(60, 10, n).round(1)
    time, censored = rng.exponential(1000 * np.exp(-(age - 60) / 15)) + 1, rng.exponential(2000, n) + 1
    one = pd.DataFrame({"patient_id": [f"P{k}" for k in range(n)], "age": age, "grade": rng.integers(1, 4, n)})
    one = one.assign(days=np.minimum(time, censored).round(1), died=(time <= censored).astype(int))
    return pd.concat([one, one, one]).sample(frac=1, random_state=0).reset_index(drop=True)


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Any]]:
    """Record what every split was told of groups, and the parts that it made."""
    made: list[tuple[Any, Any, Any]] = []

    def recorded(function: Any) -> Any:
        def split(*given: Any, **options: Any) -> Any:
            found = function(*given, **options)
            groups = options.get("groups", given[3] if len(given) > 3 else None)
            made.extend((groups, *pair) for pair in (found if isinstance(found, list) else [found]))
            return found

        return split

    for module, name in (
        (loop, "validation_split"), (trials, "fold_indices"),
        (running, "fold_indices"), (dcsurv.calibration.ensemble, "fold_indices"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, recorded(getattr(module, name)))
    return made


def parted(splits: list[tuple[Any, Any, Any]]) -> int:
    """Return in how many splits a patient was on both sides."""
    return sum(bool(np.isin(groups[one], groups[other]).any()) for groups, one, other in splits)


def test_an_ensemble_keeps_rows_of_one_patient_together(visits: pd.DataFrame, splits: Any) -> None:
    X, y = visits[["age", "grade"]], dcsurv.make_outcome(visits["days"], visits["died"])
    model = dcsurv.CalibratedEnsemble(
        estimator=dcsurv.calibration.default_member().set_params(max_epochs=1), companions=("boosted", "forest"),
        n_members=2, seeds_per_member=1, maps=(), random_state=0,
    )  # fmt: skip
    model.fit(X, y, groups=visits["patient_id"])
    assert len(splits) == 4  # two folds, and early stopping in each
    assert parted(splits) == 0
    assert model.row_groups_ is None  # no number for every patient stays behind
    splits.clear()
    dcsurv.DeepSurv(max_epochs=1, random_state=0).fit(X, y, groups=visits["patient_id"])
    assert len(splits) == 1
    assert parted(splits) == 0


def test_trees_draw_and_leave_out_whole_patients() -> None:
    from dcsurv.trees import BlockRows, Growth

    n = 60
    groups = np.repeat(np.arange(20), 3).astype(np.int32)
    ones = np.ones(n)
    event = (np.arange(n) % 2).astype(np.float64)
    rows = BlockRows(np.arange(n), np.zeros(n, dtype=np.int64), ones, event, ones, groups)
    fold = growing._folds(rows, n, 4, np.random.RandomState(0))
    assert all(len(set(fold[groups == k])) == 1 for k in range(20))
    assert len(set(fold)) == 4
    growth = Growth(max_depth=2, min_leaf=1.0, max_features=1.0, subsample=0.5)
    grower = growing._Grower(np.zeros((n, 2), dtype=np.float32), rows, growth, np.random.RandomState(0))
    drawn = grower.draw(grower.patients)
    assert 0 < len(drawn) < n
    assert not np.isin(groups[drawn], groups[np.setdiff1d(np.arange(n), drawn)]).any()


def test_validation_and_tuning_keep_them_together(visits: pd.DataFrame, splits: Any) -> None:
    y = dcsurv.make_outcome(visits["days"], visits["died"])
    X = visits[["patient_id", "age", "grade"]]
    found = dcsurv.validate(dcsurv.CoxPH(), X, y, groups="patient_id", resamples=0, repeats=1, folds=3)
    assert len(splits) == 3
    assert parted(splits) == 0
    assert list(found.patients.X.columns) == ["age", "grade"]
    groups = found.patients.groups
    for counts in running.resampled_counts(len(y), 2, 0, groups):
        assert pd.Series(counts).groupby(groups).nunique().max() == 1  # drawn together
    assert replace(found.patients, groups=None).digest != found.patients.digest
    splits.clear()
    indices = trials.make_indices(2, y, 0, groups)
    assert len(splits) == 2
    assert parted(splits) == 0
    folds = trials.make_folds(dcsurv.DCS(), X[["age", "grade"]], y, indices, share=True, groups=groups)
    assert [len(fold.together["groups"]) for fold in folds] == [len(fold.y) for fold in folds]
    with pytest.raises(TuningError, match="pair 1 of folds has rows of one group on both sides"):
        trials.make_indices([(np.arange(120), np.arange(120, 240))], y, 0, groups)


def test_a_table_with_repeated_patients_is_refused_until_told(visits: pd.DataFrame, tmp_path: Path) -> None:
    cohort = Cohort.from_frame(visits, time="days", event="died")
    found = next(one for one in check_cohort(cohort) if one.code == "repeated-ids")
    assert (found.severity, found.columns, found.parameter, found.numbers) == (
        "error", ("patient_id",), "group", {"rows": 160},
    )  # fmt: skip
    assert "group='patient_id'" in str(found.remedy)
    path = tmp_path / "visits.csv"
    visits.to_csv(path, index=False)
    fit = ("fit", path, "--time", "days", "--event", "died", "--model", "coxph", "--evaluate", "none")
    said = run(*fit, "-o", tmp_path / "a.safetensors", code=2)
    assert "--group patient_id" in " ".join(said.stderr.split())
    run(*fit, "--group", "patient_id", "-o", tmp_path / "a.safetensors")
    model = dcsurv.load(tmp_path / "a.safetensors")
    assert model.feature_names_in_.tolist() == ["age", "grade"]
    told = Cohort.from_frame(visits, time="days", event="died", group="patient_id")
    assert told.groups is not None
    assert not any(one.code == "repeated-ids" for one in check_cohort(told))
    assert told.take(np.arange(5)).groups is not None


def test_held_out_patients_have_no_row_in_training(visits: pd.DataFrame) -> None:
    from dcsurv.cli.tuning import training_part
    from dcsurv.cohort.evaluation import hold_out

    cohort = Cohort.from_frame(visits, time="days", event="died", group="patient_id")
    assert cohort.groups is not None
    held = hold_out(dcsurv.CoxPH(), cohort, [], seed=0, n_bootstrap=0, progress=lambda _: None)
    assert not np.isin(cohort.groups[held.train], cohort.groups[held.test]).any()
    assert training_part(cohort, 0).rows.tolist() == cohort.take(held.train).rows.tolist()  # type: ignore[union-attr]


def test_groups_are_labels_of_any_kind() -> None:
    assert check_groups(None, 3) is None
    assert check_groups([1, 2, 3], 3) is None  # nobody has two rows
    assert check_groups(["a", None, "a", None], 4).tolist() == [0, 4, 0, 5]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"groups has shape \(2,\), but one label per row, \(3,\)"):
        check_groups(["a", "a"], 3)
    with pytest.raises(CohortError, match="group= names the column 'paient'"):
        Cohort.from_frame(pd.DataFrame({"patient": [1], "t": [1], "e": [1]}), time="t", event="e", group="paient")


def test_labels_that_nobody_shares_change_nothing(visits: pd.DataFrame) -> None:
    X, y = visits[["age", "grade"]], dcsurv.make_outcome(visits["days"], visits["died"])
    one, other = (
        dcsurv.DeepSurv(max_epochs=2, random_state=0).fit(X, y, groups=groups).predict(X)
        for groups in (None, np.arange(len(y)))
    )
    assert np.array_equal(one, other)


def test_too_few_groups_are_said_by_the_name_of_the_option(visits: pd.DataFrame, tmp_path: Path) -> None:
    visits.assign(ward=["A", "B", "C"] * 80).to_csv(tmp_path / "p.csv", index=False)
    fit = ("fit", tmp_path / "p.csv", "--time", "days", "--event", "died", "--model", "coxph", "--group", "ward")
    said = run(*fit, "--drop", "patient_id", "--evaluate", "cv", "-o", tmp_path / "m", code=2).stderr
    assert "--group has 3 different labels, too few for 5 parts. Use fewer folds" in said
