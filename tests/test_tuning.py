"""The search of settings: what is searched, what stops a trial, what survives a kill, and that nothing leaks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import dcsurv
from dcsurv import (
    DCS,
    DRSA,
    CalibratedEnsemble,
    CoxPH,
    CoxTime,
    DeepSurv,
    Kamran,
    SplineAFT,
    SplineCox,
    SurvivalCurves,
    Tuned,
    tune,
)
from dcsurv.calibration import COMPANIONS, default_member
from dcsurv.datasets import load_metabric
from dcsurv.experiments.tuning import (
    Choice,
    Criterion,
    Float,
    Int,
    TuningError,
    default_space,
    named_estimator,
    paper_space,
    read_settings,
)
from dcsurv.experiments.tuning.result import TuningResult
from dcsurv.experiments.tuning.spaces import make_space, nearest, settled
from dcsurv.experiments.tuning.study import TrialStudy
from dcsurv.experiments.tuning.trials import Fold, TrialResult, TrialRunner, bars, make_folds, make_indices
from dcsurv.experiments.tuning.workers import make_workers
from dcsurv.models.paper import paper_settings
from dcsurv.training import watch

NETWORKS = [DeepSurv(), CoxTime(), DRSA(time_unit="days"), Kamran(time_unit="days"), DCS(time_unit="days")]
# Seconds after which a test that hangs is given up; nothing takes a tenth of it.
GUARD = 600
PENALTY = {"penalizer": Float(1e-4, 10.0, log=True)}
REFERENCE = Path(__file__).parent / "reference" / "paper_tables.json"


@pytest.fixture(scope="module")
def data():
    X, y = load_metabric()
    return X[:240], y[:240]


def small_dcs(**changes):
    return DCS(**{"n_nodes": 6, "decoder_layers": 0, "encoder_size": 8, "max_epochs": 6, "patience": 5, **changes})


DCS_SPACE = {
    "lam": Float(0.05, 5.0, log=True),
    "encoder_layers": Int(0, 2),
    "learning_rate": Float(1e-3, 1e-1, log=True),
}


class Broken(CoxPH):
    """Fails in the way that its penalizer says."""

    def fit(self, X, y, sample_weight=None):
        if self.penalizer == 1:
            raise MemoryError("no room for 40 GB")
        if self.penalizer == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


class Spy(BaseEstimator):
    """Remembers, in a file of its own, which patients it was fitted to; their times are their names."""

    def __init__(self, folder="", number=0, random_state=None):
        self.folder, self.number, self.random_state = folder, number, random_state

    def fit(self, X, y):
        self.seen_ = set(y["time"])
        return self

    def predict_survival_function(self, X):
        asked = set(np.asarray(X)[:, 0])  # the first feature is the time as well
        assert not asked & self.seen_, "a patient is judged by a model that has seen him"
        with (Path(self.folder) / "seen.txt").open("a") as file:
            file.writelines(f"{t!r}\n" for t in map(float, asked | self.seen_))
        return SurvivalCurves([1.0], np.full((len(X), 1), 0.5))


# --- spaces and criteria ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [CoxPH(), SplineCox(), SplineAFT(), *NETWORKS], ids=lambda model: type(model).__name__
)
def test_every_shipped_space_names_parameters_that_its_model_accepts(model, data):
    X, y = data
    spaces = (
        [default_space(model)]
        if isinstance(model, CoxPH | SplineCox | SplineAFT)
        else [default_space(model), paper_space(model, y)]
    )
    for space in spaces:
        checked = make_space(space, model, y)
        for pick in (0, -1):  # both ends of every range
            ends = {
                name: d.options[pick] if isinstance(d, Choice) else (d.low, d.high)[pick] for name, d in checked.items()
            }
            active = {}
            for name, value in ends.items():
                if all(active.get(other) in values for other, values in checked[name].when.items()):
                    active[name] = value
            small = {"max_epochs": 1, "n_nodes": 5, "batch_size": 64}
            values = {k: small.get(k, v) for k, v in settled(checked, active).items()}
            other = {k: v for k, v in small.items() if k in model.get_params()}
            clone(model).set_params(**(other | values)).fit(X[:60], y[:60])


def test_the_papers_tabulated_settings_lie_inside_its_space():
    """All but the number of nodes, of which the paper's own rule gives only some."""
    names = {"encoder_nodes": "encoder_size", "decoder_nodes": "decoder_size", "output_nodes": "n_nodes"}
    tables = json.loads(REFERENCE.read_text())["best_hyperparameters"]
    for dataset, models in tables.items():
        _, y = dcsurv.datasets.load(dataset)
        for model, printed in models.items():
            space = paper_space(paper_settings(model, dataset), y)
            for name, value in printed.items():
                ours = names.get(name, name)
                if model in ("DeepSurv", "CoxTime"):
                    ours = {"encoder_layers": "layers", "encoder_size": "layer_size"}[ours]
                if ours in ("n_nodes", "aggregation_nodes"):
                    continue
                boolean = ours in ("bidirectional", "skip")
                assert space[ours].holds(bool(value) if boolean else value), (dataset, model, name, value)


def test_the_papers_nodes_are_shares_of_the_last_time_in_months(data):
    _, y = data
    months = y["time"].max() * 12 / 365
    expected = tuple(sorted(round(share * months) for share in (0.25, 0.5, 1, 2)))
    assert paper_space(DCS(time_unit="days"), y)["n_nodes"].options == expected
    in_months = dcsurv.make_outcome(y["time"] * 12 / 365, y["event"])
    assert paper_space(DCS(time_unit="months"), in_months)["n_nodes"].options == expected
    with pytest.raises(TuningError, match="time_unit is None"):
        paper_space(DCS(), y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimator": "dsc"}, "no model 'dsc'; there are boosted, coxph"),
        ({"estimator": CoxPH}, "an unfitted estimator"),
        ({"space": {"penalty": Float(0, 1)}}, "names 'penalty', which CoxPH does not have"),
        ({"space": {"penalizer": (0, 1)}}, "a Float, an Int or a Choice"),
        ({"space": {}}, "nothing to search"),
        ({"space": "small"}, "space is 'small'"),
        ({"space": "paper"}, "the paper does not tune CoxPH"),
        ({"criterion": "AUC"}, "no criterion 'AUC'; there are C-td"),
        ({"criterion": ("CDAUC", "cdauc")}, "a pair of two different ones"),
        ({"criterion": {"CDAUC": -1}}, "weights above 0"),
        ({"start": [{"penalizer": 100.0}]}, "start holds penalizer=100.0"),
        ({"n_trials": 0}, "n_trials is 0"),
        ({"folds": 1}, "folds is 1, but a number of folds from 2 on"),
        ({"folds": True}, "folds is True"),
        ({"folds": 2.5}, "folds cannot be used"),
        ({"folds": 241}, "folds is 241, .* for 240 patients"),
        ({"folds": []}, "folds is empty"),
        ({"folds": [(range(100), range(100, 200)), (range(120), range(110, 240))]}, "pair 2 .* 10 rows on both .* 110"),
        ({"folds": [(range(100), range(200, 300))]}, "folds cannot be used: .*out of bounds"),
        ({"folds": [(range(100), np.zeros(240, dtype=bool))]}, "pair 1 of folds has no held-out rows"),
        ({"keep": 0}, "keep is 0"),
        ({"workers": 2, "cluster": "tcp://127.0.0.1:1"}, "exclude each other"),
        ({"storage": "mysql://somewhere"}, "mysql://, but the path of a file"),
        ({"storage": "/nowhere/at/all/study"}, "does not exist"),
        ({"storage": "postgresql://nobody:secret@127.0.0.1:1/none"}, "PostgreSQL cannot be used"),
        ({"estimator": Spy()}, "no shipped space for a Spy"),
        # scikit-survival, once imported, gives pipelines the missing method; a search of one is refused either way.
        ({"estimator": make_pipeline(CoxPH())}, "with fit and predict_survival_function|no shipped space"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_words(options, words, data):
    with pytest.raises(TuningError, match=words) as raised:
        tune(options.pop("estimator", "coxph"), *data, **{"n_trials": 2, **options})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("wrong", [(1, 0), (0, 1, True), ("a", 2), (0, float("inf"))])
def test_a_range_that_is_none_is_refused(wrong):
    with pytest.raises(TuningError, match="a range from"):
        Float(*wrong)
    with pytest.raises(TuningError, match="options is"):
        Choice(())


def test_criteria_average_folds_and_turn_what_is_better_lower():
    folds = [{"CDAUC": 0.7, "DDC": 0.1}, {"CDAUC": 0.8, "DDC": 0.3}]
    pair, weighted = Criterion.make(("cdauc", "ddc")), Criterion.make({"CDAUC": 1, "DDC": 0.5})
    assert pair.directions == ("maximize", "minimize")
    assert pair.objectives(folds) == pytest.approx((0.75, 0.2))
    assert pair.upward(pair.objectives(folds)) == pytest.approx((0.75, -0.2))
    assert weighted.objectives(folds) == pytest.approx((0.75 - 0.5 * 0.2,))
    assert weighted.labels == ("1 CDAUC − 0.5 DDC",)


def test_the_nearest_settings_of_a_space():
    space = {
        "a": Choice((60, 88)),
        "b": Float(0.0, 1.0),
        "c": Choice((False, True)),
        "d": Int(1, 3),
        "e": Choice(("x",)),
    }
    found = nearest(space, {"a": 40, "b": 0.5, "c": True, "d": 9, "e": "y"})
    assert found == {"a": 60, "b": 0.5, "c": True, "d": 3}


# --- one trial ----------------------------------------------------------------------------------------------------


def evaluation(data, model, n_folds=3, criterion="CDAUC", share=True, **options):
    X, y = data
    indices = make_indices(n_folds, y, 0)
    folds = make_folds(model, X, y, indices, share=share)
    runner = clone(model).set_params(preprocess=None) if share else model
    return TrialRunner(runner, folds, Criterion.make(criterion), **options)


@pytest.mark.parametrize(
    "model",
    [
        CoxPH(),
        DeepSurv(max_epochs=2),
        CoxTime(max_epochs=2),
        small_dcs(max_epochs=2),
        CalibratedEnsemble(estimator=CoxPH()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_encoding_once_per_fold_equals_encoding_in_every_fit(model, data):
    """With missing values and a category, which are filled and encoded from the training rows of a fold."""
    X, y = data
    X = X.assign(grade=np.array(["low", "mid", "high"])[np.arange(len(X)) % 3])
    X.loc[X.index[::7], "age"] = np.nan
    if "random_state" in model.get_params(deep=False):
        model = clone(model).set_params(random_state=3)
    shared, own = (evaluation((X, y), model, share=share).run({}) for share in (True, False))
    assert own.state == "complete"
    assert shared.folds == own.folds


def test_a_trial_equals_cross_validation_by_hand(data):
    X, y = data
    outcome = evaluation(data, CoxPH(), criterion=("C-td", "IBS")).run({"penalizer": 0.1})
    for fold, (train, held_out) in zip(outcome.folds, dcsurv.fold_indices(y, n_folds=3), strict=True):
        curves = CoxPH(penalizer=0.1).fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[held_out])
        assert fold["C-td"] == pytest.approx(dcsurv.metrics.concordance_index_td(y[held_out], curves), abs=1e-12)
        ibs = dcsurv.metrics.integrated_brier_score(y[held_out], curves)
        assert fold["IBS"] == pytest.approx(ibs, abs=1e-12)


@pytest.mark.parametrize("model", [DeepSurv(), CoxTime(), small_dcs()], ids=lambda model: type(model).__name__)
def test_looking_at_a_network_between_epochs_does_not_change_its_training(model, data):
    model = clone(model).set_params(max_epochs=6, patience=5, random_state=0)
    watched = evaluation(data, model).run({})
    X, y = data
    train, held_out = dcsurv.fold_indices(y, n_folds=3)[0]
    curves = model.fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[held_out])
    assert 4 in watched.steps
    expected = dcsurv.metrics.cumulative_dynamic_auc(y[held_out], curves).mean
    assert watched.folds[0]["CDAUC"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("model", [CoxTime(), small_dcs()], ids=lambda model: type(model).__name__)
def test_a_network_is_looked_at_in_its_own_encoding_where_that_is_searched(model, data):
    X, y = data
    X = X.assign(age=X["age"] * 100)  # so that it matters whether features are scaled
    model = clone(model).set_params(max_epochs=5, patience=4, random_state=0)
    shared, own = (evaluation((X, y), model, share=share).run({}) for share in (True, False))
    assert own.cause == ""
    assert own.steps == shared.steps
    assert 4 in own.steps
    space = {"preprocess": Choice(("auto", None)), "dropout": Float(0.0, 0.5)}
    start = [{"preprocess": None, "dropout": 0.0}]
    trials = tune(model, X.select_dtypes("number"), y, n_trials=2, folds=2, space=space, start=start, keep=1.0).trials
    assert trials["state"].tolist() == ["complete"] * 2, trials["cause"].tolist()
    assert trials["preprocess"].tolist() == ["auto", None]


def test_a_trial_stops_where_it_is_below_the_bar(data):
    judged = evaluation(data, small_dcs(random_state=0))
    free = judged.run({})
    assert list(free.steps) == [4, 1000, 2000]
    for step, done in ((4, 0), (1000, 1), (2000, 2)):
        above, below = ({step: tuple(np.add(free.steps[step], shift))} for shift in (-1e-9, 1e-9))
        assert judged.run({}, above).state == "complete"
        stopped = judged.run({}, below)
        assert (stopped.state, len(stopped.folds)) == ("pruned", done)
        assert "behind other trials after " + ("epoch 4" if step == 4 else f"fold {done}") in stopped.cause


def test_of_two_objectives_one_above_its_bar_is_enough(data):
    judged = evaluation(data, CoxPH(), criterion=("CDAUC", "DDC"))
    first, second = judged.run({}).steps[1000]
    assert judged.run({}, {1000: (first + 1, second)}).state == "complete"
    assert judged.run({}, {1000: (first + 1, second + 1)}).state == "pruned"


def test_bars_let_a_share_of_all_trials_go_on():
    """Trials of random quality: about ``keep`` of them are carried through, and the better ones."""
    rng = np.random.default_rng(0)
    courses, qualities = [], []
    for _ in range(400):
        quality = rng.normal()
        limits = bars(courses, 0.3, 5)
        steps, state = {}, "complete"
        for step in (4, 8, 16, 1000, 2000, 3000, 4000):
            steps[step] = (quality + 0.1 * rng.normal(),)
            if step in limits and steps[step] < limits[step]:
                state = "pruned"
                break
        courses.append((state, steps))
        qualities.append(quality)
    complete = np.array([state == "complete" for state, _ in courses])
    assert complete[:5].all(), "the first ones have nobody to be compared with"
    assert 0.25 < complete.mean() < 0.38
    assert np.mean(np.array(qualities)[complete] > np.quantile(qualities, 0.6)) > 0.9
    assert bars(courses, 1.0, 5) == {}, "keep=1 stops none"


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_the_share_that_ends_all_folds_is_the_one_asked_for(n_folds):
    """After the last fold but one, the bar is at the last of the best ``keep``, the new trial included."""
    last = 1000 * (n_folds - 1)
    courses = [("complete", {last: (float(quality),)}) for quality in range(99)]
    assert bars(courses, 0.3, n_folds)[last] == (99.0 - 30,)


def test_numbers_of_folds_and_rows_may_be_numpys(data):
    expected = dcsurv.fold_indices(data[1], n_folds=3)
    for given in (np.int64(3), expected):
        for pair, wanted in zip(make_indices(given, data[1], 0), expected, strict=True):
            np.testing.assert_array_equal(pair[0], wanted[0])
            np.testing.assert_array_equal(pair[1], wanted[1])
    mask = np.arange(240) < 200
    ((train, held_out),) = make_indices([(mask, ~mask)], data[1], 0)
    assert (len(train), held_out[0]) == (200, 200)


def test_a_slow_trial_is_stopped_as_soon_as_it_cannot_end_in_time(data):
    slow = evaluation(data, small_dcs(max_epochs=10**7, patience=10**7 - 1), trial_timeout=30.0)  # hours are needed
    outcome = slow.run({})
    assert outcome.state == "slow"
    assert "needs at least" in outcome.cause
    assert "30 s are allowed" in outcome.cause
    late = evaluation(data, CoxPH(), trial_timeout=1e-6).run({})
    assert (late.state, len(late.folds)) == ("slow", 1)
    assert "has taken" in late.cause


def test_a_watcher_may_end_training(data):
    epochs = []

    def watcher(epoch, history):
        epochs.append((epoch, len(history.training_loss)))
        if epoch == 3:
            raise ZeroDivisionError

    with watch(watcher), pytest.raises(ZeroDivisionError):
        small_dcs().fit(*data)
    assert epochs == [(1, 1), (2, 2), (3, 3)]
    small_dcs().fit(*data)  # and afterwards nobody watches
    assert len(epochs) == 3


# --- the search ---------------------------------------------------------------------------------------------------


def same(a, b):
    pd.testing.assert_frame_equal(
        a.trials.drop(columns=["seconds", "number"]).reset_index(drop=True),
        b.trials.drop(columns=["seconds", "number"]).reset_index(drop=True),
    )
    assert a.best_params == b.best_params


def test_the_same_seed_gives_the_same_trials_and_another_one_others(data):
    options = {"n_trials": 14, "space": DCS_SPACE, "folds": 3}
    first, again = (tune(small_dcs(), *data, **options) for _ in range(2))
    same(first, again)
    assert set(first.trials["state"]) == {"complete", "pruned"}
    other = tune(small_dcs(), *data, **{**options, "n_trials": 3}, random_state=1)
    assert not np.isin(other.trials["lam"][1:], first.trials["lam"]).any()


def test_a_search_starts_from_the_estimators_own_settings_and_those_given(data):
    result = tune(CoxPH(penalizer=0.5), *data, n_trials=2, folds=2, space=PENALTY, start=[{"penalizer": 3.0}])
    assert result.trials["penalizer"].tolist() == [0.5, 3.0]


def test_a_failing_trial_is_recorded_with_its_cause_and_the_search_goes_on(data):
    choices = [{"penalizer": value} for value in (1, -1.0, 0.1)]
    space = {"penalizer": Choice((-1.0, 1, 0.1, 0.2))}
    result = tune(Broken(penalizer=0.2), *data, n_trials=4, folds=2, space=space, start=choices)
    by_penalty = result.trials.set_index("penalizer")
    assert by_penalty["state"].to_dict() == {0.2: "complete", 1: "failed", -1.0: "failed", 0.1: "complete"}
    assert by_penalty.loc[1, "cause"] == "MemoryError: no room for 40 GB"
    assert "penalizer is -1.0" in by_penalty.loc[-1.0, "cause"]
    assert result.best_params["penalizer"] in (0.1, 0.2)


def test_a_loss_that_is_no_number_is_a_failure(data):
    wild = DeepSurv(max_epochs=3, learning_rate=1e38)
    result = tune(wild, *data, n_trials=1, folds=2, space={"layers": Int(1, 1)})
    assert result.trials.loc[0, "state"] == "failed"
    assert "FloatingPointError: the validation loss became nan" in result.trials.loc[0, "cause"]
    with pytest.raises(TuningError, match=r"no trial is complete \(1 tried\).*FloatingPointError"):
        _ = result.best_params


def test_why_no_trial_is_complete_is_said_in_a_sentence(data):
    space = {"penalizer": Choice((-1.0,))}
    result = tune(Broken(penalizer=-1.0), *data, n_trials=1, folds=2, space=space)
    with pytest.raises(TuningError, match=r"The last one: penalizer is -1\.0.*[^.]\.$"):
        _ = result.best_params


def test_a_trial_that_kills_its_process_loses_nothing_else(data):
    start = [{"penalizer": value} for value in (2, 0.1, 0.3)]
    space = {"penalizer": Choice((0.1, 0.2, 0.3, 2))}
    result = tune(Broken(penalizer=0.2), *data, n_trials=4, folds=2, space=space, start=start, workers=2)
    assert result.trials["state"].value_counts().to_dict() == {"complete": 3, "failed": 1}
    assert "its process died" in result.trials.set_index("penalizer").loc[2, "cause"]
    for penalizer, row in result.trials.set_index("penalizer").drop(index=2).iterrows():
        alone = evaluation(data, CoxPH(), n_folds=2).run({"penalizer": penalizer})  # in this process
        assert row["CDAUC"] == pytest.approx(np.mean([fold["CDAUC"] for fold in alone.folds]), abs=1e-12)


def test_two_objectives_give_a_front(data, tmp_path):
    result = tune(small_dcs(), *data, n_trials=12, folds=2, space=DCS_SPACE, criterion=("CDAUC", "DDC"), keep=1.0)
    front = result.front
    assert (np.diff(front["CDAUC"]) <= 0).all()
    assert (np.diff(front["DDC"]) <= 0).all(), "along the front the one is had for the other"
    for _, row in result.trials.iterrows():
        assert ((front["CDAUC"] >= row["CDAUC"]) & (front["DDC"] <= row["DDC"])).any()
    assert result.best_trial["number"] in set(front["number"])
    assert result.best_value == (result.best_trial["CDAUC"], result.best_trial["DDC"])
    assert {int(t.number) for t in result.study.best_trials} == set(front["number"]), "as Optuna has it"


def test_a_weighted_pair_is_one_number(data):
    criterion = {"C-td": 1, "DDC": 0.5}
    result = tune("coxph", *data, n_trials=3, folds=2, criterion=criterion)
    label = "1 C-td − 0.5 DDC"
    folds = [trial.user_attrs["folds"] for trial in result.study.trials]
    expected = [np.mean([f["C-td"] for f in trial]) - 0.5 * np.mean([f["DDC"] for f in trial]) for trial in folds]
    assert result.trials[label].to_numpy() == pytest.approx(expected)
    assert result.best_value == pytest.approx(max(expected))


def test_nested_parameters_are_searched(data):
    ensemble = CalibratedEnsemble(estimator=CoxPH(), n_members=2)
    space = {"estimator__penalizer": Float(1e-3, 1.0, log=True), "n_members": Int(2, 3)}
    result = tune(ensemble, *data, n_trials=3, folds=2, space=space)
    assert result.best_estimator().estimator.penalizer == result.best_params["estimator__penalizer"]
    assert set(make_space("default", named_estimator("calibrated"), data[1])) >= {
        "estimator__lam",
        "estimator__n_nodes",
    }


def test_an_ensemble_starts_from_its_recommended_members(data):
    recommended = default_member().get_params()
    for ensemble in (CalibratedEnsemble(n_members=2, seeds_per_member=1, random_state=0), "calibrated"):
        result = tune(ensemble, *data, n_trials=1, folds=2, space={"n_members": Int(2, 2)}, timeout=1e-9)
        assert result._estimator.estimator.get_params() == recommended
    space = default_space(default_member())
    assert nearest(space, recommended) == {name: recommended[name] for name in space if name != "n_nodes"}
    assert space["feature_bins"].options == (0, 8, 16)
    assert "criterion" not in space, (
        "a search must not choose a score that is wrong where follow-up depends on features"
    )
    assert "feature_bins" not in paper_space(DCS(time_unit="days"), data[1])


def test_no_more_trials_begin_after_the_timeout(data):
    result = tune("coxph", *data, n_trials=500, folds=2, timeout=0.5)
    assert 1 <= len(result.trials) < 500


# --- the test part ------------------------------------------------------------------------------------------------


def test_a_patient_is_never_judged_by_a_model_that_saw_him_and_the_test_part_by_none(tmp_path):
    """Times are unique and stand in the features as well, so that every patient that a model meets is known."""
    time = np.arange(1.0, 61)
    y = dcsurv.make_outcome(time, time % 3 > 0)
    X = np.column_stack([time, time])
    train, test = dcsurv.train_test_indices(y)
    tune(Spy(str(tmp_path)), X[train], y[train], n_trials=3, folds=3, space={"number": Int(0, 9)}, criterion="DDC")
    seen = {float(line) for line in (tmp_path / "seen.txt").read_text().split()}
    assert seen == set(time[train])
    assert not seen & set(time[test])


def test_the_labels_of_the_test_part_do_not_change_the_search(data):
    """The evidence's own search, with the truth and with every label of the test part made another."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    import tuning

    X, y = data
    train, test = dcsurv.train_test_indices(y, random_state=tuning.SPLIT)
    forged = y.copy()
    forged["time"][test] = y["time"][test][::-1] + 7
    assert (np.sort(dcsurv.train_test_indices(forged)[0]) == np.sort(train)).all()
    X_forged = X.copy()
    X_forged.loc[X.index[test], "age"] = 0.0
    same(*(tuning.search(*d, None, 1, quick=True) for d in ((X, y), (X_forged, forged))))


# --- studies that last --------------------------------------------------------------------------------------------

# Fits wait as long as a condition on files in a folder holds: what happens at the same time is no matter of speed.
SCRIPT = """
import os, pathlib, time, dcsurv
from dcsurv.datasets import load_metabric
from dcsurv.experiments.tuning import Float, tune

folder, fits = pathlib.Path({folder!r}), 0

class Waits(dcsurv.CoxPH):
    def fit(self, X, y, sample_weight=None):
        global fits
        fits += 1
        (folder / f"{{os.getpid()}}-{{fits}}").touch()
        while {condition}:
            time.sleep(0.02)
        return super().fit(X, y)

Waits.__qualname__ = Waits.__name__ = "CoxPH"
X, y = load_metabric()
space = {{"penalizer": Float(1e-4, 10.0, log=True)}}
tune(Waits(), X[:240], y[:240], n_trials={n_trials}, folds=2, space=space, storage={storage!r}, study_name="s")
"""


def start_search(storage, n_trials, folder, condition):
    script = SCRIPT.format(storage=str(storage), n_trials=n_trials, folder=str(folder), condition=condition)
    return subprocess.Popen(
        [sys.executable, "-c", script], env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True
    )


def wait_for(condition):
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, "nothing happens any more"
        time.sleep(0.02)


def joined(data, storage, n_trials):
    return tune("coxph", *data, n_trials=n_trials, folds=2, space=PENALTY, storage=storage, study_name="s")


@pytest.mark.filterwarnings("ignore")
def test_a_killed_search_goes_on_as_if_nothing_had_happened(data, tmp_path):
    """kill -9 in the middle of a trial: the trials that ended stay, the one that ran is begun again."""
    storage = tmp_path / "study"
    process = start_search(storage, 8, tmp_path, condition="fits == 8")
    wait_for(lambda: (tmp_path / f"{process.pid}-8").exists() or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    result = joined(data, storage, 8)
    states = result.trials["state"].value_counts().to_dict()
    assert states.pop("lost") == 1
    assert sum(states.values()) == 8
    undisturbed = tune("coxph", *data, n_trials=8, folds=2, space=PENALTY)
    kept = result.trials[result.trials["state"] != "lost"]
    np.testing.assert_array_equal(kept["penalizer"], undisturbed.trials["penalizer"])
    np.testing.assert_array_equal(kept["CDAUC"], undisturbed.trials["CDAUC"])
    assert len(joined(data, storage, 8).trials) == 9, "there is nothing left to do"


def open_study(storage, owner=None):
    study = TrialStudy(storage, "s", Criterion.make("CDAUC"), PENALTY, {}, 0)
    study._owner = owner or study._owner
    return study


@pytest.fixture(scope="module")
def dead():
    """The name of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return f"{socket.gethostname()}/{process.pid}/gone"


def test_a_trial_is_begun_again_however_often_its_search_is_killed(dead, tmp_path):
    here = open_study(tmp_path / "study")
    here.start_from([{"penalizer": 0.5}])
    here.give_back(here.propose(9))  # a user's Ctrl-C is no fault of the trial
    for losses in range(3):
        proposal = open_study(tmp_path / "study", dead).propose(9)
        assert (proposal.settings, proposal.losses) == ({"penalizer": 0.5}, losses)
        assert here.recover() == 1
    again = here.propose(9)
    assert (again.settings, again.losses) == ({"penalizer": 0.5}, 3)
    assert here.begun() == 1
    here.record(again, TrialResult("complete", 1.0, {}, [{"CDAUC": 0.7}]))
    here.record(here.propose(9), TrialResult("complete", 1.0, {}, [{"CDAUC": 0.8}]))
    result = TuningResult(here.optuna, CoxPH(), PENALTY, here.criterion)
    assert result.trials["state"].tolist() == ["lost"] * 4 + ["complete"] * 2
    assert (result.n_trials, result.best_value, result.own_value) == (2, 0.8, 0.7)


@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_was_lost_has_a_process_of_its_own_and_fails_with_that_alone(data):
    X, y = data
    half = np.arange(len(y)) % 2 == 0
    runner = TrialRunner(Broken(), [Fold(X[half], y[half], X[~half], y[~half])], Criterion.make("CDAUC"))
    with make_workers(runner, 1, None) as workers:
        deadly = workers.outcome(0, workers.submit(0, {"penalizer": 2}, {}, losses=1))
        harmless = workers.outcome(0, workers.submit(0, {"penalizer": 0.1}, {}, losses=0))
    assert (deadly.state, harmless.state) == ("failed", "complete")
    assert "its process died" in deadly.cause


def test_two_searches_together_begin_no_trial_too_many(tmp_path):
    """Both find that one is missing, and both take one: of the two that with the higher number is given back."""
    first, second = (open_study(tmp_path / "study") for _ in range(2))
    first.start_from([{"penalizer": 0.5}, {"penalizer": 0.7}])
    assert first.begun() == second.begun() == 0
    proposal = first.propose(1)
    assert second.propose(1) is None
    first.record(proposal, TrialResult("complete", 1.0, {}, [{"CDAUC": 0.7}]))
    assert first.begun() == second.begun() == 1
    result = TuningResult(first.optuna, CoxPH(), PENALTY, first.criterion)
    assert result.trials["penalizer"].tolist() == [0.5]
    assert second.propose(2).settings == {"penalizer": 0.7}, "settings to try first stay in the queue"


def test_progress_where_there_is_no_terminal(data, capsys):
    tune("coxph", *data, n_trials=2, folds=2, space=PENALTY, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("2 of 2 trials; best CDAUC 0.")
    assert lines[-1].endswith("2 complete, 0 stopped, 0 failed")


def test_searches_of_one_process_leave_each_others_trials_alone(tmp_path):
    first, second = (open_study(tmp_path / "study") for _ in range(2))
    with first.signs_of_life():
        first.propose(9)
        assert second.recover() == 0
    assert second.recover() == 1, "what a search that ended has left is taken over"


def test_a_lost_trial_is_nobodys_measure(dead, tmp_path):
    here, gone = open_study(tmp_path / "study"), open_study(tmp_path / "study", dead)
    outcome = TrialResult("complete", 1.0, {1000: (0.7,)}, [{"CDAUC": 0.7}, {"CDAUC": 0.6}])
    killed = gone.propose(9)
    for name, value in (("state", "complete"), ("steps", {"1000": [0.7]})):  # and killed before the last line
        killed.trial.set_user_attr(name, value)
    assert here.recover() == 1
    assert here.courses() == []
    here.record(here.propose(9), outcome)
    assert here.courses() == [("complete", {1000: (0.7,)})]


def test_a_search_leaves_warnings_and_optunas_log_as_they_were(data, tmp_path, monkeypatch):
    import optuna

    monkeypatch.setattr("dcsurv.experiments.tuning.study._SIGN_OF_LIFE", 0.02)
    before = list(warnings.filters), optuna.logging.get_verbosity()
    result = joined(data, tmp_path / "study", 4)
    assert (list(warnings.filters), optuna.logging.get_verbosity()) == before
    owners = {t.user_attrs["owner"] for t in result.study.trials}
    assert {f"alive {owner}" for owner in owners} <= set(result.study.user_attrs), "it did tell that it is alive"


def test_the_time_of_a_search_is_that_of_its_own_trials():
    """Two that overlap for 10 s, a pause, one more; lost, failed with their process, running and waiting ones."""
    import optuna
    from optuna.trial import FrozenTrial, TrialState

    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    import tuning

    begin = datetime(2024, 1, 1)
    study = optuna.create_study()
    for state, start, stop, told in (
        ("PRUNED", 0, 30, {"seconds": 30}),
        ("FAIL", 5, 9000, {"lost": True}),
        ("PRUNED", 20, 50, {"seconds": 30}),
        ("FAIL", 100, 9000, {"state": "failed"}),
        ("FAIL", 1000, 1007, {"seconds": None}),
        ("RUNNING", 1010, None, {}),
        ("WAITING", None, None, {}),
    ):
        dates = [None if t is None else begin + timedelta(seconds=t) for t in (start, stop)]
        study.add_trial(FrozenTrial(0, TrialState[state], None, *dates, {}, {}, told, {}, {}, 0))
    assert tuning.wall_seconds(SimpleNamespace(study=study)) == 50 + 7


def test_processes_of_a_killed_search_end_by_themselves(tmp_path):
    """They notice after an epoch at the latest that nobody wants their trial any more."""
    script = f"""
import os, pathlib, dcsurv
from dcsurv.datasets import load_metabric
from dcsurv.experiments.tuning import Float

class Endless(dcsurv.DCS):
    def fit(self, X, y, sample_weight=None):
        pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
        return super().fit(X, y)

X, y = load_metabric()
model = Endless(max_epochs=100_000, patience=100_000, n_nodes=5, decoder_layers=0)
dcsurv.tune(model, X[:200], y[:200], n_trials=2, space={{"lam": Float(0.1, 1)}}, workers=2)
"""
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        workers = [int(path.name) for path in tmp_path.iterdir()]
        assert all(map(_alive, workers))
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(_alive, workers)))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.filterwarnings("ignore")
def test_two_processes_join_one_study(data, tmp_path):
    """The first fit of each waits for that of the other, so that both have trials of their own."""
    storage = tmp_path / "study"
    both = [start_search(storage, 12, tmp_path, 'len(list(folder.glob("*-1"))) < 2') for _ in range(2)]
    assert [process.wait(timeout=GUARD) for process in both] == [0, 0]
    trials = joined(data, storage, 1).trials
    assert set(trials["state"]) <= {"complete", "pruned"}
    assert len(trials) == 12, "together they do exactly as many as were asked for"
    # Both may also find the study empty at the same moment and begin with the estimator's own settings.
    proposed = trials["penalizer"][trials["penalizer"] != trials["penalizer"].iloc[0]]
    assert proposed.nunique() == len(proposed) >= 10, "no proposed setting is run twice"
    owners = {t.user_attrs["owner"] for t in joined(data, storage, 1).study.trials}
    assert len(owners) == 2


def test_a_study_is_not_continued_with_anything_else(data, tmp_path):
    X, y = data
    options = {"n_trials": 2, "folds": 2, "space": PENALTY, "storage": tmp_path / "study"}
    tune("coxph", X, y, **options)
    for change, part in (
        ({"X": X.assign(age=X["age"] + 1)}, "data"),
        ({"X": X.rename(columns={"age": "years"})}, "data"),
        ({"y": y[::-1]}, "data"),
        ({"folds": 3}, "folds"),
        ({"random_state": 5}, "folds"),
        ({"space": {"penalizer": Float(1e-4, 1.0)}}, "space"),
        ({"criterion": "C-td"}, "criterion"),
        ({"estimator": CoxPH(time_unit="days")}, "model"),
    ):
        given = {"estimator": "coxph", "X": X, "y": y, **options, **change}
        with pytest.raises(TuningError, match=f"begun with another .*{part} .*choose another study_name"):
            tune(given.pop("estimator"), given.pop("X"), given.pop("y"), **given)
    assert len(tune("coxph", X, y, **options).trials) == 2
    assert len(tune("coxph", X, y, **{**options, "folds": 3}, study_name="another").trials) == 2


@pytest.fixture(scope="module")
def postgresql():
    """A PostgreSQL server of its own, at a file (a port that is free may be taken a moment later), not run by root."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(p) for p in [shutil.which("initdb")] if p]
    if not found:
        if os.environ.get("DCSURV_CI"):
            raise AssertionError("PostgreSQL must be installed where the tests are meant to be complete")
        pytest.skip("PostgreSQL is not installed: studies in a database are NOT tested here")
    binaries = found[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="dcsurv-", dir="/tmp"))  # the path of a socket must be short
    user = {}
    if os.getuid() == 0:  # the server refuses to run as root
        import pwd

        account = pwd.getpwnam("postgres" if any(e.pw_name == "postgres" for e in pwd.getpwall()) else "nobody")
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        os.chown(folder, account.pw_uid, account.pw_gid)
    base = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **user}
    subprocess.run([binaries / "initdb", "-D", base, "-U", "tuner", "--auth=trust", "-N"], check=True, **quiet)
    server = subprocess.Popen(
        [binaries / "postgres", "-D", base, "-c", "listen_addresses=", "-F", "-k", folder], **quiet
    )
    ready = [binaries / "pg_isready", "-h", folder]
    try:
        wait_for(lambda: subprocess.run(ready, check=False, **quiet).returncode == 0 or server.poll() is not None)
        yield f"postgresql://tuner@/postgres?host={folder}"
    finally:
        server.send_signal(signal.SIGINT)  # a fast shutdown
        server.wait(timeout=GUARD)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.filterwarnings("ignore")
def test_a_study_in_postgresql_is_shared_and_goes_on(postgresql, data, tmp_path):
    other = start_search(postgresql, 6, tmp_path, 'fits == 3 and not (folder / "go").exists()')  # in its second trial
    wait_for(lambda: (tmp_path / f"{other.pid}-3").exists() or other.poll() is not None)
    joined(data, postgresql, 6)
    (tmp_path / "go").touch()
    assert other.wait(timeout=GUARD) == 0
    result = joined(data, postgresql, 9)
    assert len(result.trials) == 9
    assert set(result.trials["state"]) <= {"complete", "pruned"}
    assert len({trial.user_attrs["owner"] for trial in result.study.trials}) == 3
    with pytest.raises(TuningError, match="begun with another data"):
        tune("coxph", data[0][::-1], data[1], n_trials=9, folds=2, space=PENALTY, storage=postgresql, study_name="s")


@pytest.fixture(scope="module")
def cluster():
    """A Dask scheduler with two workers, each a process of its own."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as started:
        yield started.scheduler_address


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_carries_trials(cluster, data):
    result = tune(small_dcs(), *data, n_trials=6, folds=2, space=DCS_SPACE, cluster=cluster, keep=1.0)
    assert result.trials["state"].tolist() == ["complete"] * 6
    row = result.trials.iloc[3]
    alone = evaluation(data, small_dcs(random_state=0), n_folds=2).run({name: row[name] for name in DCS_SPACE})
    assert row["CDAUC"] == pytest.approx(np.mean([fold["CDAUC"] for fold in alone.folds]), abs=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_is_not_there_is_refused(data):
    with pytest.raises(TuningError, match="no Dask scheduler answers"):
        tune("coxph", *data, n_trials=1, cluster="nowhere://at-all")


def test_ctrl_c_puts_the_running_trial_back(data, tmp_path, monkeypatch):
    storage = tmp_path / "study"
    fits = []
    original = CoxPH.fit

    def fit(self, X, y, sample_weight=None):
        fits.append(1)
        if len(fits) == 6:
            raise KeyboardInterrupt
        return original(self, X, y)

    monkeypatch.setattr(CoxPH, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        joined(data, storage, 5)
    monkeypatch.setattr(CoxPH, "fit", original)
    trials = joined(data, storage, 5).trials
    assert (trials["state"] == "lost").sum() == 1
    assert (trials["state"] != "lost").sum() == 5


# --- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        DCS(lam=0.3, n_nodes=12, random_state=4),
        paper_settings("DCS-log", "flchain"),
        CoxPH(penalizer=0.5, time_unit="days"),
        CalibratedEnsemble(estimator=DeepSurv(layers=2), n_members=3, maps=("rank",)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_settings_come_back_from_their_file(model, tmp_path):
    dcsurv.experiments.tuning.save_settings(tmp_path / "settings.json", model, criterion="CDAUC", value=0.7)
    again = read_settings(tmp_path / "settings.json")
    assert type(again) is type(model)
    wanted, found = model.get_params(), again.get_params()
    assert {k: str(v) for k, v in found.items()} == {k: str(v) for k, v in wanted.items()}


def test_the_recommended_model_comes_back_from_its_file(tmp_path):
    for model, member in ((CalibratedEnsemble(), default_member()), (CalibratedEnsemble(estimator=DCS()), DCS())):
        dcsurv.experiments.tuning.save_settings(tmp_path / "settings.json", model)
        again = read_settings(tmp_path / "settings.json")
        assert again.estimator.get_params() == member.get_params()
        assert tuple(again.companions or ()) == (() if model.estimator else COMPANIONS)
    (tmp_path / "settings.json").write_text('{"model": "ensemble", "parameters": {"estimator__lam": 0.3}}')
    assert (
        read_settings(tmp_path / "settings.json").estimator.get_params()
        == default_member().set_params(lam=0.3).get_params()
    )
    assert read_settings(tmp_path / "settings.json").companions == (), "version 0.1 knew no other families"


def test_the_settings_file_of_a_search_is_what_fit_takes(data, tmp_path):
    result = tune(small_dcs(), *data, n_trials=3, folds=2, space=DCS_SPACE)
    result.save_settings(tmp_path / "settings.json")
    document = json.loads((tmp_path / "settings.json").read_text())
    assert document["model"] == "dcs"
    assert document["criterion"] == "CDAUC"
    assert document["value"] == result.best_value == result.trials["CDAUC"].max()
    again = read_settings(tmp_path / "settings.json")
    assert again.get_params() == result.best_estimator().get_params()
    again.fit(*data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a settings file"),
        ("[]", "it names no model"),
        ('{"model": "dsc"}', "no model 'dsc'"),
        ('{"model": "dcs", "parameters": {"lambda": 1}}', r"sets \['lambda'\]"),
        ('{"model": "dcs", "format": 9}', "has format 9"),
    ],
)
def test_a_wrong_settings_file_is_refused(text, words, tmp_path):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(TuningError, match=words):
        read_settings(tmp_path / "settings.json")
    with pytest.raises(TuningError, match="no settings file"):
        read_settings(tmp_path / "none.json")


def test_a_tuned_model_is_an_estimator(data, tmp_path):
    X, y = data
    model = Tuned(estimator=small_dcs(), n_trials=3, folds=2, space=DCS_SPACE)
    assert clone(model).get_params()["n_trials"] == 3
    model.fit(X[:160], y[:160])
    curves = model.predict_survival_function(X[160:])
    refitted = model.result_.best_estimator().set_params(random_state=0).fit(X[:160], y[:160])
    np.testing.assert_array_equal(curves.values, refitted.predict_survival_function(X[160:]).values)
    assert model.estimator_.training_summary_["patients"] == 160, "the best settings are fitted to everything"
    assert model.score(X[160:], y[160:]) == dcsurv.metrics.concordance_index_td(y[160:], curves)
    np.testing.assert_array_equal(model.predict(X[160:]), refitted.predict(X[160:]))
    model.save(tmp_path / "model.safetensors")
    loaded = dcsurv.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_survival_function(X[160:]).values, curves.values)


def test_nested_cross_validation(data):
    scores = cross_val_score(
        Tuned(estimator="coxph", n_trials=2, folds=2), *data, cv=dcsurv.fold_indices(data[1], n_folds=3)
    )
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()


def test_every_figure_of_a_search_can_be_drawn_and_shows_its_trials(data, tmp_path):
    from dcsurv.figures import save

    result = tune(small_dcs(), *data, n_trials=12, folds=2, space=DCS_SPACE, criterion=("CDAUC", "DDC"))
    history, importance, parallel, front = (
        result.plot_history(),
        result.plot_importance(),
        result.plot_parallel(),
        result.plot_front(),
    )
    complete = result.trials[result.trials["state"] == "complete"]
    points = history.axes[0].lines[0]
    np.testing.assert_array_equal(points.get_xdata(), complete["number"])
    np.testing.assert_array_equal(points.get_ydata(), complete["CDAUC"])
    assert max(history.axes[0].lines[1].get_ydata()) == complete["CDAUC"].max()
    assert [t.get_text() for t in importance.axes[0].get_yticklabels()][-1] == result.importance().index[0].replace(
        "_", " "
    )
    assert result.importance().sum() == pytest.approx(1)
    assert len(parallel.axes[0].lines) == len(complete) + len(DCS_SPACE), "a line per trial and one per axis"
    np.testing.assert_array_equal(np.sort(front.axes[0].lines[2].get_ydata()), np.sort(result.front["DDC"]))
    for k, figure in enumerate((history, importance, parallel, front)):
        assert all(path.stat().st_size > 1000 for path in save(figure, tmp_path / f"figure{k}"))
    with pytest.raises(TuningError, match="needs two objectives"):
        tune("coxph", *data, n_trials=1, folds=2).plot_front()


def test_progress_shows_the_best_value_and_what_failed(data, capsys):
    space = {"penalizer": Choice((1, 0.1))}
    tune(Broken(penalizer=0.1), *data, n_trials=2, folds=2, space=space, start=[{"penalizer": 1}], progress=True)
    shown = " ".join(capsys.readouterr().err.split())
    assert "best CDAUC 0." in shown
    assert "trial 1 failed: MemoryError: no room for 40 GB" in shown
