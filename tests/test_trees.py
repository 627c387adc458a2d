"""Models made of trees: their likelihood, their walk, their files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.stats import kstest
from sklearn.base import clone
from sklearn.tree import DecisionTreeRegressor

import dcsurv
from dcsurv import BoostedHazards, CalibratedEnsemble, HazardForest, make_outcome, persistence
from dcsurv.datasets import load, simulate
from dcsurv.models.baseline import MAX_NODES
from dcsurv.nonparametric import StepFunction, breslow
from dcsurv.persistence import ModelFileError
from dcsurv.trees import BlockHazard, Growth, TimeBlocks, Trees, boosted
from dcsurv.trees.growing import _Grower

SMALL = [BoostedHazards(max_rounds=30, random_state=0), HazardForest(n_trees=30, random_state=0)]
both = pytest.mark.parametrize("model", SMALL, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module")
def metabric() -> Any:
    X, y = load("metabric")
    return X, y


def patients(n: int = 200, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    time = np.ceil(10 * rng.exponential(np.exp(-X[:, 0].astype(float))))  # with ties
    return X, make_outcome(time, rng.random(n) < 0.7)


def nodes_of(tree: Any, leaves: Any) -> Any:
    """The nodes of a tree of scikit-learn, a left child right after its parent, and values of its leaves."""
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if tree.children_left[node] >= 0:
            waiting += [tree.children_right[node], tree.children_left[node]]
    place, inner = np.argsort(order), tree.children_left[order] >= 0
    # A number of single precision is at most a threshold if and only if it is at most the next such number below.
    threshold = tree.threshold[order]
    rounded = threshold.astype(np.float32)
    down = np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    return (
        np.where(inner, tree.feature[order], -1).astype(np.int32),
        np.where(inner, place[tree.children_right[order]], 0).astype(np.int32),
        np.where(inner, down, leaves[order]).astype(np.float32),
    )


def blocks_of(y: Any, n_blocks: int) -> TimeBlocks:
    times, events = np.unique(y["time"][y["event"]], return_counts=True)
    return TimeBlocks.cut(times, events.astype(float), n_blocks)


# --- rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", [1, 2, 5])
def test_rows_share_out_the_hazard_that_patients_lived_through(n_blocks: int) -> None:
    _, y = patients()
    blocks = blocks_of(y, n_blocks)
    rows = blocks.rows(y, None)
    hazard = StepFunction(*breslow(y["time"].copy(), y["event"], np.ones(len(y))), initial=0.0)
    np.testing.assert_allclose(np.bincount(rows.patient, rows.exposure, len(y)), hazard(y["time"]), atol=1e-12)
    np.testing.assert_array_equal(np.bincount(rows.patient, rows.event, len(y)), y["event"])
    # As many events are expected as there were, in every block.
    np.testing.assert_allclose(np.bincount(rows.block, rows.exposure), np.bincount(rows.block, rows.event), rtol=1e-10)
    assert rows.block.max() == blocks.n_blocks - 1 == n_blocks - 1
    ends = np.append(-np.inf, blocks.ends)
    inside = (y["time"][rows.patient] > ends[rows.block]) & (y["time"][rows.patient] <= ends[rows.block + 1])
    assert inside[rows.event > 0].all()


def test_baseline_of_a_cohort_without_features_is_that_of_nelson_and_aalen() -> None:
    _, y = patients()
    blocks = blocks_of(y, 4)
    rows = blocks.rows(y, None)
    baseline = BlockHazard.estimated(blocks, y, rows, np.ones(len(rows)))
    _, expected = breslow(y["time"].copy(), y["event"], np.ones(len(y)))
    np.testing.assert_allclose(-np.log(baseline.survival(np.ones((1, 4)))[0]), expected, rtol=1e-10)


def test_baseline_makes_as_many_events_expected_as_observed() -> None:
    X, y = patients()
    blocks = blocks_of(y, 3)
    rows = blocks.rows(y, None)
    relative = np.exp(0.3 * X[rows.patient, 0] * (1 + rows.block))
    baseline = BlockHazard.estimated(blocks, y, rows, relative)
    table = np.ones((len(y), 3))
    table[rows.patient, rows.block] = relative
    hazard = -np.log(baseline.survival(table))
    at = np.searchsorted(blocks.times, y["time"], side="right")
    lived = np.concatenate([np.zeros((len(y), 1)), hazard], axis=1)[np.arange(len(y)), at]
    assert lived.sum() == pytest.approx(y["event"].sum())


def test_blocks_hold_about_as_many_events_each() -> None:
    events = np.array([1.0, 1, 1, 1, 8, 1, 1, 1, 1, 1])
    blocks = TimeBlocks.cut(np.arange(10.0), events, 4)
    sums = np.bincount(blocks.block, events)
    assert (np.diff(blocks.block) >= 0).all()
    assert set(np.diff(blocks.block)) <= {0, 1}
    assert sums.max() <= 8 + 1
    assert TimeBlocks.cut(np.array([3.0]), np.array([5.0]), 4).n_blocks == 1


# --- the walk -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"max_leaf_nodes": 25}, {"max_depth": 1}], ids=["deep", "best first", "stump"])
def test_one_walk_for_all_blocks_equals_scikit_learn_on_every_row(options: Any) -> None:
    rng = np.random.default_rng(0)
    n, n_blocks = 150, 6
    X = rng.normal(size=(n, 3)).round(1).astype(np.float32)  # with ties
    X[:, 2] *= 1e-3
    expanded = np.column_stack([np.repeat(X, n_blocks, axis=0), np.tile(np.arange(n_blocks), n)]).astype(np.float32)
    target = expanded[:, 0] * np.sin(expanded[:, 3]) + rng.normal(size=len(expanded))
    grown, expected = [], np.zeros(len(expanded))
    for seed in range(30):
        splitter = "random" if seed % 2 else "best"
        tree = DecisionTreeRegressor(splitter=splitter, random_state=seed, **options).fit(expanded, target).tree_
        value = tree.value[:, 0, 0].astype(np.float32)  # as a file holds them
        grown.append((tree, value))
        expected += value[tree.apply(expanded)]
    trees = Trees.joined([nodes_of(tree, value) for tree, value in grown], 3)
    if options != {"max_depth": 1}:
        assert (trees.feature == 3).any(), "no split on time is tested"
    np.testing.assert_array_equal(trees.sums(X, n_blocks), expected.reshape(n, n_blocks))
    # At the thresholds themselves, too.
    at = np.repeat(X[:1], 200, axis=0)
    at[:, 0] = rng.choice(trees.value[trees.feature == 0], 200)
    rows = np.column_stack([np.repeat(at, n_blocks, axis=0), np.tile(np.arange(n_blocks), 200)]).astype(np.float32)
    expected = np.sum([value[tree.apply(rows)].astype(np.float64) for tree, value in grown], axis=0)
    np.testing.assert_array_equal(trees.sums(at, n_blocks).ravel(), expected)
    again = Trees.from_arrays(trees.to_arrays(), 3)
    np.testing.assert_array_equal(again.sums(X, n_blocks), trees.sums(X, n_blocks))


def test_no_trees_change_nothing() -> None:
    none = Trees.from_arrays(Trees.joined([], 2).to_arrays(), 2)
    assert len(none) == 0
    np.testing.assert_array_equal(none.sums(np.ones((3, 2), dtype=np.float32), 2), 0)


def test_columns_are_counted_before_the_walk() -> None:
    with pytest.raises(ValueError, match="3 columns, but the trees were grown on 2"):
        Trees.joined([], 2).sums(np.ones((3, 3), dtype=np.float32), 1)


# --- growing --------------------------------------------------------------------------------------------------


def grown_once(X: Any, rows: Any, growth: Growth, seed: int = 0) -> Any:
    """One tree on all patients: its nodes, and what was observed and expected in each."""
    grower = _Grower(X, rows, growth, np.random.RandomState(seed))
    return grower.tree(rows.weight * rows.event, rows.weight * rows.exposure, grower.patients.copy())


def test_a_grown_tree_is_that_of_scikit_learn_where_chance_has_no_choice() -> None:
    """Every threshold between two values is the same split, and all features are tried."""
    rng = np.random.default_rng(0)
    X, y = patients(400)
    X = np.concatenate([X > 0, rng.normal(size=(400, 3)) > 0.5], axis=1).astype(np.float32)
    rows = blocks_of(y, 2).rows(y, rng.uniform(0.5, 2.0, 400))
    expanded = np.column_stack([X[rows.patient], rows.block]).astype(np.float32)
    for depth in (1, 3, 8):
        growth = Growth(max_depth=depth, min_leaf=4.0, max_features=1.0, subsample=1.0)
        nodes, observed, mass = grown_once(X, rows, growth)
        weight = rows.weight * rows.exposure
        theirs = DecisionTreeRegressor(max_depth=depth, min_weight_fraction_leaf=4.0 / weight.sum())
        theirs.fit(expanded, rows.event / rows.exposure, sample_weight=weight)
        assert len(observed) == theirs.tree_.node_count
        ours = Trees.joined([(nodes[0], nodes[1], np.where(nodes[0] < 0, observed / mass, nodes[2]).astype("f4"))], 7)
        np.testing.assert_allclose(ours.sums(X, 2)[rows.patient, rows.block], theirs.predict(expanded), rtol=1e-6)
        assert mass[nodes[0] < 0].min() >= 4.0


@pytest.mark.parametrize("n_blocks", [1, 4])
def test_what_a_tree_counts_in_its_nodes_is_what_its_rows_add_up_to(n_blocks: int) -> None:
    X, y = patients(500)
    rows = blocks_of(y, n_blocks).rows(y, None)
    growth = Growth(max_depth=None, min_leaf=2.0, max_features=1.0, subsample=1.0)
    (feature, right, value), observed, mass = grown_once(X, rows, growth)
    assert (feature >= 0).sum() > 20
    inside = {0: np.ones(len(rows), dtype=bool)}
    for node in np.flatnonzero(feature >= 0):
        x = X[rows.patient, feature[node]] if feature[node] < 4 else rows.block
        here = inside[node]
        inside[node + 1], inside[right[node]] = here & (x <= value[node]), here & (x > value[node])
    assert sorted(inside) == list(range(len(feature)))
    np.testing.assert_allclose(observed, [rows.event[inside[node]].sum() for node in range(len(feature))])
    np.testing.assert_allclose(mass, [rows.exposure[inside[node]].sum() for node in range(len(feature))])
    assert mass[feature < 0].min() >= 2.0 - 1e-9


def test_thresholds_are_anywhere_between_the_smallest_and_the_largest_value() -> None:
    X, y = patients(100)
    rows = blocks_of(y, 1).rows(y, None)
    growth = Growth(max_depth=1, min_leaf=1e-9, max_features=0.2, subsample=1.0)  # one feature is tried
    roots = [grown_once(X, rows, growth, seed)[0] for seed in range(800)]
    column = np.array([feature[0] for feature, _, _ in roots])
    assert np.bincount(column, minlength=4).min() > 100
    seen = X[np.unique(rows.patient)].astype(float)
    low, high = seen.min(axis=0)[column], seen.max(axis=0)[column]
    share = (np.array([value[0] for _, _, value in roots]) - low) / (high - low)
    assert kstest(share, "uniform").pvalue > 0.01


def test_a_leaf_of_boosting_is_a_newton_step() -> None:
    """With the root as the only leaf the log hazard approaches the log of observed by expected events."""
    X, y = patients()
    rows = blocks_of(y, 1).rows(y, None)
    rows = dataclasses.replace(rows, exposure=rows.exposure / 2)  # twice as many as expected
    growth = Growth(max_depth=1, min_leaf=1e9, max_features=1.0, subsample=1.0)
    how: Any = {"min_rounds": 0, "max_rounds": 40, "patience": 5, "folds": 2, "ridge": 0.0, "learning_rate": 1.0}
    trees, left_out, summary = boosted(X, rows, growth, np.random.RandomState(0), **how)
    np.testing.assert_allclose(trees.sums(X, 1), np.log(2), atol=0.02)
    np.testing.assert_allclose(left_out, np.log(2), atol=0.1)
    assert summary["loss"] < summary["loss_at_start"]


def test_patients_are_predicted_for_the_baseline_by_trees_that_have_not_seen_them() -> None:
    """Features that mean nothing explain seen patients, and nobody else."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)).astype(np.float32), patients(300)[1]
    for model in (BoostedHazards(min_rounds=80, random_state=0), HazardForest(random_state=0, min_leaf=1.0)):
        model.fit(X, y)
        rows = model._blocks(y, None).rows(y, None)
        growth = Growth(max_depth=model.max_depth, min_leaf=model.min_leaf, max_features=1.0, subsample=0.632)
        trees, left_out, _ = model.grow(X, rows, growth, np.random.RandomState(0))
        seen = trees.sums(X, rows.block.max() + 1)[rows.patient, rows.block]
        gain = [float(rows.event @ f - rows.exposure @ np.exp(f) + rows.exposure.sum()) for f in (seen, left_out)]
        assert gain[0] > 20, type(model)
        assert gain[1] < 0, type(model)


@both
def test_interactions_and_changing_effects_are_found(model: Any) -> None:
    """A feature that harms early and helps late: no proportional hazards, and curves cross."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1500, 3)).astype(np.float32)
    raised = X[:, 0] > 0
    early = rng.exponential(np.where(raised, 1.0, 5.0))
    time = np.where(early < 2, early, 2 + rng.exponential(np.where(raised, 8.0, 1.5)))
    y = make_outcome(time, np.ones(len(time)))
    fitted = clone(model).set_params(preprocess=None).fit(X[:1000], y[:1000])
    proportional = clone(fitted).set_params(n_blocks=1).fit(X[:1000], y[:1000])
    low, high = (fitted.predict_survival_function(np.array([[x, 0, 0]], dtype=np.float32)) for x in (-1, 1))
    assert high(1.0)[0] < low(1.0)[0] - 0.2
    assert high(8.0)[0] > low(8.0)[0]
    at = np.array([1.0, 3.0, 5.0, 8.0])
    alive = y["time"][1000:, None] > at
    predicted = [one.predict_survival_function(X[1000:], at).values for one in (fitted, proportional)]
    brier = [np.mean((survival - alive) ** 2) for survival in predicted]
    assert brier[0] < brier[1] - 0.003, brier
    assert fitted.training_summary_["blocks"] == 5
    assert proportional.relative_hazards(X).shape == (1500, 1)


@both
def test_probabilities_are_true_where_the_truth_is_known(model: Any) -> None:
    cohort = simulate("independent", 3000)
    fitted = clone(model).fit(cohort.X[:2000], cohort.y[:2000])
    times = np.quantile(cohort.y["time"], [0.25, 0.5, 0.75])
    predicted = fitted.predict_survival_function(cohort.X[2000:], times).values
    truth = cohort.truth(times)[2000:]
    assert np.abs(predicted.mean(axis=0) - truth.mean(axis=0)).max() < 0.03
    assert np.abs(predicted - truth).mean() < 0.08


@both
def test_few_patients_and_many_features_make_no_extreme_curves(model: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 30)), make_outcome(rng.exponential(size=60), rng.random(60) < 0.5)
    curves = clone(model).fit(X, y).predict_survival_function(rng.normal(size=(200, 30)))
    middle = curves(np.array([np.median(y["time"])]))[:, 0]
    assert np.isfinite(curves.values).all()
    assert middle.min() > 0.3
    assert np.ptp(middle) < 0.5


@both
def test_weights_are_repeated_rows_to_the_likelihood(model: Any) -> None:
    """To rows, expectations and baseline; which patients are drawn together is chance."""
    X, y = patients()
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    repeated = np.repeat(np.arange(len(y)), weight)
    model = clone(model).set_params(n_blocks=3)
    blocks = [model._blocks(y, weight.astype(float)), model._blocks(y[repeated], None)]
    rows = [blocks[0].rows(y, weight.astype(float)), blocks[1].rows(y[repeated], None)]
    np.testing.assert_array_equal(blocks[0].ends, blocks[1].ends)
    for name in ("exposure", "event"):
        sums = [np.bincount(one.block, one.weight * getattr(one, name)) for one in rows]
        np.testing.assert_allclose(*sums)
    relative = [np.exp(0.3 * x[one.patient, 0]) for x, one in zip((X, X[repeated]), rows, strict=True)]
    both_ways = [
        BlockHazard.estimated(b, o, r, e) for b, o, r, e in zip(blocks, (y, y[repeated]), rows, relative, strict=True)
    ]
    np.testing.assert_allclose(both_ways[0].within, both_ways[1].within)


def test_curves_stay_fine_where_nodes_are_thinned() -> None:
    n = MAX_NODES + 500
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)).astype(np.float32)
    y = make_outcome(rng.exponential(np.exp(-X[:, 0])), np.ones(n))
    model = BoostedHazards(max_rounds=5, random_state=0, preprocess=None).fit(X, y)
    assert len(model.nodes) == MAX_NODES
    # No event is lost between nodes: without features, the baseline is that of the whole cohort at all of them.
    blocks = model.baseline_.blocks
    rows = blocks.rows(y, None)
    plain = BlockHazard.estimated(blocks, y, rows, np.ones(len(rows)))
    times, hazard = breslow(y["time"].copy(), y["event"], np.ones(n))
    expected = StepFunction(times, hazard, initial=0.0)(blocks.times)
    np.testing.assert_allclose(-np.log(plain.survival(np.ones((1, blocks.n_blocks)))[0]), expected, rtol=1e-10)
    assert rows.event.sum() == n


# --- members and files ----------------------------------------------------------------------------------------


@both
def test_an_ensemble_of_trees(model: Any, metabric: Any, tmp_path: Path) -> None:
    X, y = metabric
    ensemble = CalibratedEnsemble(estimator=clone(model), n_members=2, seeds_per_member=1, random_state=0)
    ensemble.fit(X[:500], y[:500]).save(tmp_path / "ensemble.safetensors")
    loaded = dcsurv.load(tmp_path / "ensemble.safetensors")
    np.testing.assert_array_equal(loaded.predict(X[500:600]), ensemble.predict(X[500:600]))
    assert (tmp_path / "ensemble.safetensors").stat().st_size < 500_000


@pytest.fixture(scope="module")
def file(metabric: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y = metabric
    path = tmp_path_factory.mktemp("trees") / "model.safetensors"
    BoostedHazards(max_rounds=5, random_state=0).fit(X[:300], y[:300]).save(path)
    return path


def changed(arrays: Any, name: str, position: Any, value: Any) -> None:
    arrays[name] = arrays[name].copy()
    arrays[name][position] = value


def first_inner(arrays: Any) -> int:
    return int(np.flatnonzero(arrays["trees.feature"] >= 0)[0])


DAMAGES = {
    "loop": (lambda a: changed(a, "trees.right", first_inner(a), first_inner(a)), "do not come after it"),
    "back": (lambda a: changed(a, "trees.right", np.flatnonzero(a["trees.feature"] >= 0)[-1], 0), "not come after"),
    "beyond": (lambda a: changed(a, "trees.right", first_inner(a), 10**9), "in the same tree"),
    "negative child": (lambda a: changed(a, "trees.right", first_inner(a), -5), "do not come after it"),
    "other tree": (lambda a: changed(a, "trees.right", first_inner(a), a["trees.start"][1]), "in the same tree"),
    "inner node at the end": (lambda a: changed(a, "trees.feature", -1, 0), "in the same tree"),
    "feature": (lambda a: changed(a, "trees.feature", first_inner(a), 1000), "a feature that is not among"),
    "negative feature": (lambda a: changed(a, "trees.feature", 0, -2), "a feature that is not among"),
    "threshold": (lambda a: changed(a, "trees.value", 0, np.nan), "not all finite"),
    "start": (lambda a: changed(a, "trees.start", -1, 3), "first nodes"),
    "late start": (lambda a: changed(a, "trees.start", 0, 1), "first nodes"),
    "falling start": (lambda a: changed(a, "trees.start", 1, 10**6), "first nodes"),
    "no start": (lambda a: a.update({"trees.start": a["trees.start"][:0]}), "first nodes"),
    "length": (lambda a: a.update({"trees.value": a["trees.value"][:-1]}), "same length"),
    "type": (lambda a: a.update({"trees.feature": a["trees.feature"].astype(np.int64)}), "type int32"),
    "shape": (lambda a: a.update({"trees.right": a["trees.right"][None]}), "not a list"),
    "missing": (lambda a: a.pop("trees.value"), "value"),
    "times": (lambda a: changed(a, "baseline.times", 1, -1.0), "not ascending"),
    "blocks": (lambda a: changed(a, "baseline.block", -1, 10**6), "do not follow"),
    "negative block": (lambda a: changed(a, "baseline.block", 0, -1), "do not follow"),
    "hazard": (lambda a: changed(a, "baseline.within", 3, -1.0), "does not rise"),
    "infinite hazard": (lambda a: changed(a, "baseline.within", -1, np.inf), "does not rise"),
    "no times": (lambda a: a.update({k: a[k][:0] for k in a if k.startswith("baseline.")}), "same length"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_trees_are_refused_even_with_a_valid_digest(damage: str, file: Path, tmp_path: Path) -> None:
    change, message = DAMAGES[damage]
    header, arrays = persistence.read(file)
    change(arrays)
    text, path = json.dumps(header, sort_keys=True), tmp_path / "model.safetensors"
    entry = {"header": text, "sha256": persistence._digest(text, arrays)}
    save_file(arrays, path, {"dcsurv": json.dumps(entry)})
    with pytest.raises(ModelFileError, match=message):
        persistence.load(path)


def test_leaves_are_of_several_patients(metabric: Any) -> None:
    """A file holds numbers for groups only: those in which some events were to be expected."""
    X, y = metabric
    model = HazardForest(n_trees=5, random_state=0, subsample=1.0).fit(X[:600], y[:600])
    prepared = model.prepare(X[:600])
    blocks = model._blocks(y[:600], None)
    rows = blocks.rows(y[:600], None)
    trees = model.trees_
    one = Trees(
        trees.n_columns, trees.start[:2], *(a[: trees.start[1]] for a in (trees.feature, trees.right, trees.value))
    )
    leaf = one.sums(prepared, blocks.n_blocks)[rows.patient, rows.block]
    _, where = np.unique(leaf, return_inverse=True)
    assert np.bincount(where, rows.exposure).min() >= model.min_leaf - 1e-9


def test_names_on_the_command_line_and_in_searches(metabric: Any) -> None:
    from dcsurv.kinds import kind_named, make_model

    X, y = metabric
    for name, kind in (("boosted", BoostedHazards), ("forest", HazardForest)):
        assert type(make_model(name)) is kind
        assert kind_named(name).is_member
        lowest = {key: getattr(one, "low", None) for key, one in kind_named(name).space.items()}
        kind(**{**kind_named(name).quick, **lowest}, random_state=0).fit(X[:200], y[:200])
