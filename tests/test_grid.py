from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcsurv import TimeGrid, make_outcome, train_test_indices
from dcsurv.cli.words import option
from dcsurv.datasets import load
from dcsurv.messages import InputError

GRIDS = json.loads((Path(__file__).parent / "reference" / "grids.json").read_text())


@pytest.mark.parametrize(
    ("dataset", "case"),
    [
        pytest.param(name, case, id=f"{name}-{case['kind']}-{case['nodes']}")
        for name, info in GRIDS.items()
        for case in info["grids"]
    ],
)
def test_paper_grids_equal_the_authors(dataset, case):
    _, y = load(dataset)
    train, test = train_test_indices(y, random_state=40)
    info = GRIDS[dataset]
    assert (len(train), len(test), y["event"][train].sum()) == (info["n_train"], info["n_test"], info["train_events"])
    spacing = {"quantiles": "quantile", "logarithmic": "log"}.get(case["kind"], case["kind"])
    grid = TimeGrid.make(y[train], spacing, case["nodes"], convention="paper")
    np.testing.assert_array_equal(np.append(0, grid.nodes), case["grid"])


def test_paper_rounding_makes_the_duplicates_that_the_default_removes():
    _, y = load("support")
    y = y[train_test_indices(y, random_state=40)[0]]
    for spacing, duplicates in [("log", 8), ("quantile", 14)]:
        paper = TimeGrid.make(y, spacing, 140, convention="paper")
        assert 141 - len(np.unique(np.append(0, paper.nodes))) == duplicates
        default = TimeGrid.make(y, spacing, 140)
        assert default.size <= 140
        assert (np.diff(default.nodes) > 0).all()


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 50),
    n_nodes=st.integers(1, 30),
    spacing=st.sampled_from(["linear", "log", "quantile"]),
    unit=st.sampled_from([1.0, 30.0, 1 / 365]),
)
def test_default_grids_ascend_cover_every_time_and_scale_with_the_unit(seed, n, n_nodes, spacing, unit):
    rng = np.random.default_rng(seed)
    time = rng.exponential(100, n) + 0.01
    event = np.ones(n, dtype=bool)
    grid = TimeGrid.make((time, event), spacing, n_nodes)
    assert grid.nodes[0] > 0
    assert (np.diff(grid.nodes) > 0).all()
    assert grid.nodes[-1] == pytest.approx(time.max())
    assert 1 <= grid.size <= n_nodes
    other = TimeGrid.make((time * unit, event), spacing, n_nodes)
    np.testing.assert_allclose(other.nodes, grid.nodes * unit, rtol=1e-9)
    bucket = grid.bucket(time)
    inside = bucket < grid.size
    assert (grid.nodes[bucket[inside]] >= time[inside]).all()
    after_first = inside & (bucket > 0)
    assert (grid.nodes[bucket[after_first] - 1] < time[after_first]).all()


def test_bucket_is_the_first_node_at_or_after_the_time():
    grid = TimeGrid(np.array([1.0, 2.0, 4.0]), "linear")
    assert grid.bucket([0, 1, 1.5, 2, 4, 4.1]).tolist() == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda y: TimeGrid.make(y, "cubic", 5), "spacing is 'cubic'"),
        (lambda y: TimeGrid.make(y, "linear", 0), "at least 1"),
        (lambda y: TimeGrid.make(y, "linear", 5.5), r"n_nodes is 5\.5"),
        (lambda y: TimeGrid.make(y, "log", 5, convention="paper"), "in whole days, but the last time is 3"),
        (lambda y: TimeGrid.make(y, "linear", 5, convention="mine"), "convention is 'mine'"),
        (lambda y: TimeGrid.make(([0.0, 0.0], [1, 0]), "linear", 5), "every time is 0"),
        (lambda y: TimeGrid.make(([1.0, 2.0], [0, 0]), "log", 5), "no event after time 0"),
        (lambda y: TimeGrid(np.array([2.0, 1.0]), "linear"), "ascending"),
        (lambda y: TimeGrid(np.array([]), "linear"), "one-dimensional"),
    ],
)
def test_bad_grids_are_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call(make_outcome([1.0, 2.0, 3.0], [1, 0, 1]))


@pytest.mark.parametrize(
    ("spacing", "convention", "remedy", "said"),
    [
        ("log", "paper", "use convention='default'.", "use --set convention=default."),
        ("log", "default", "Use spacing='linear' or", "Use --set spacing=linear or --set spacing=quantile."),
    ],
)
def test_remedies_are_said_as_options_on_the_command_line(spacing, convention, remedy, said):
    with pytest.raises(InputError) as caught:
        TimeGrid.make(([1.0, 2.0], [0, 0]), spacing, 5, convention)
    assert remedy in str(caught.value)
    assert said in caught.value.say(option)
