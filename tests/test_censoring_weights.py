"""The weighted score: its weights, and what it does to a simulated cohort whose true curves are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dcsurv import DCS, TimeGrid, make_outcome
from dcsurv.losses import censoring_node_weight, ranked_probability_score
from dcsurv.nonparametric import censoring_curve, kaplan_meier

HAZARD = {0: 0.05, 1: 0.15}  # per unit of time, by group
CENSORING = 0.1
END = 20.0


def simulated(n: int, seed: int, end: float = END) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each patient, as a feature, and outcomes of which about half are censored."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    event_time = rng.exponential(1 / np.vectorize(HAZARD.get)(group))
    stop = np.minimum(rng.exponential(1 / CENSORING, n), end)
    return group[:, None].astype(float), make_outcome(np.minimum(event_time, stop), event_time <= stop)


def truth(times: np.ndarray) -> np.ndarray:
    """Return the true curves of the two groups, (2, T)."""
    return np.array([np.exp(-rate * times) for rate in HAZARD.values()])


def test_weights_are_the_inverse_probabilities_of_being_seen() -> None:
    _, y = simulated(50, 0)
    g = censoring_curve(y)
    nodes = np.array([1.0, 3.0, 8.0])
    bucket = torch.as_tensor(np.searchsorted(nodes, y["time"]))
    own = 1 / g.before(y["time"])
    weight = censoring_node_weight(bucket, torch.as_tensor(1 / g.before(nodes)), torch.as_tensor(own)).numpy()
    for i, time in enumerate(y["time"]):
        for j, node in enumerate(nodes):
            assert weight[i, j] == pytest.approx(1 / g.before(node) if node < time else own[i])
    assert len(np.unique(weight)) > 10


def best_constant(weighted: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and the one curve for all patients that the score likes best: closed form, no training."""
    _, y = simulated(20_000, 1)
    grid = TimeGrid.make(y, "quantile", 20)
    bucket, event = torch.as_tensor(grid.bucket(y["time"])), torch.as_tensor(y["event"].copy())
    weight = None
    if weighted:
        g = censoring_curve(y)
        at_nodes, own = (torch.as_tensor(1 / g.before(t).clip(0.05)) for t in (grid.nodes, y["time"]))
        weight = censoring_node_weight(bucket, at_nodes, own)
    # The score is quadratic in the curve: its minimum follows from its gradients at two curves.
    ends = []
    for start in (0.0, 1.0):
        curve = torch.full((grid.size,), start, dtype=torch.float64, requires_grad=True)
        ranked_probability_score(curve.expand(len(y), -1), bucket, event, weight).sum().backward()
        ends.append(curve.grad.numpy())
    return grid.nodes, -ends[0] / (ends[1] - ends[0])


def test_the_plain_score_is_biased_and_the_weighted_one_is_not() -> None:
    nodes, plain = best_constant(weighted=False)
    _, weighted = best_constant(weighted=True)
    inside = nodes < END  # at the last node nobody is left
    true = truth(nodes).mean(axis=0)
    assert np.abs(weighted - true)[inside].max() < 0.02
    assert (true - plain)[inside].max() > 0.1
    assert (plain <= true + 0.01)[inside].all()


def test_a_network_trained_with_weights_comes_close_to_the_truth() -> None:
    X, y = simulated(4000, 2)
    times = np.linspace(1, 18, 30)
    errors = {}
    for criterion in ("ranked", "weighted"):
        model = DCS(
            lam=0.0,
            decoder_layers=0,
            n_nodes=20,
            criterion=criterion,
            random_state=0,
            preprocess=None,
        )
        curves = model.fit(X, y).predict_survival_function(np.array([[0.0], [1.0]]))
        errors[criterion] = curves(times) - truth(times)
    assert errors["ranked"].mean() < -0.06
    assert abs(errors["weighted"].mean()) < 0.015
    assert np.abs(errors["weighted"]).mean() < 0.03


def test_a_study_that_ends_for_all_at_once_does_not_pull_the_last_node_to_zero() -> None:
    end = 5.0
    X, y = simulated(3000, 6, end)
    assert (y["time"] == end).mean() > 0.2
    ends = {}
    for criterion in ("ranked", "weighted"):
        model = DCS(
            lam=0.0,
            decoder_layers=0,
            n_nodes=20,
            criterion=criterion,
            random_state=0,
            preprocess=None,
        )
        ends[criterion] = model.fit(X, y).predict_survival_function(np.array([[0.0], [1.0]]))([end])[:, 0]
    true = truth(np.array([end]))[:, 0]
    assert np.abs(ends["weighted"] - true).max() < 0.06
    assert ends["ranked"][0] < true[0] / 2


def test_nobody_censored_means_no_weights() -> None:
    X, y = simulated(400, 3)
    y["event"] = True
    fits = [
        DCS(decoder_layers=0, max_epochs=3, criterion=criterion, random_state=0).fit(X, y).predict(X)
        for criterion in ("ranked", "weighted")
    ]
    assert np.array_equal(*fits)


def test_no_weight_exceeds_its_limit_and_nodes_that_hardly_anybody_reaches_are_left_out() -> None:
    X, y = simulated(400, 4)
    y["time"][:385] = np.minimum(y["time"][:385], 0.5)
    y["event"][:385] = False  # most are censored at once: later patients would weigh hundreds
    y["event"][385:] = True
    model = DCS(decoder_layers=0, max_epochs=2, criterion="weighted", random_state=0).fit(X, y)
    all_rows = np.arange(len(y))
    weights = model._node_weights(y, None, (all_rows, all_rows[:0]), torch.device("cpu"))
    assert weights is not None
    found = weights(torch.as_tensor(all_rows)).numpy()
    assert 1 < found.max() <= 20
    late = model.grid_.nodes > 0.5
    assert late.any()
    assert (found[:, late] == 0).all()
    assert (found[:, ~late] > 0).all()


@pytest.mark.parametrize("decoder_layers", [0, 1])
def test_training_starts_at_the_hazards_of_the_cohort(decoder_layers: int) -> None:
    X, y = simulated(2000, 7)
    model = DCS(decoder_layers=decoder_layers, learning_rate=1e-12, max_epochs=1, random_state=0).fit(X, y)
    start = model.predict_survival_function(X).values.mean(axis=0)
    gap = np.abs(start - kaplan_meier(y)(model.predict_survival_function(X[:1]).times)).max()
    assert gap < (0.15 if decoder_layers == 0 else 0.35)
    paper = model.set_params(convention="paper", n_nodes=10).fit(X, y)
    assert paper.predict_survival_function(X).values[:, 0].mean() == pytest.approx(0.5, abs=0.1)


def test_bins_spread_a_feature_without_losing_its_order() -> None:
    from dcsurv.networks.embedding import PiecewiseLinear

    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), rng.integers(0, 2, 500), rng.integers(0, 5, 500)]).astype(np.float32)
    embedding = PiecewiseLinear(3, 4)
    embedding.set_bins(X)
    far = torch.tensor([[-9.0, 0, 0], [9.0, 1, 4]])
    out = embedding(torch.cat([torch.from_numpy(X), far]))
    assert out.shape == (502, embedding.width)
    bins = out[:, 3:].reshape(-1, 3, 4)
    order = np.argsort(np.append(X[:, 0], [-9, 9]))
    assert (np.diff(bins[:, 0].sum(1).numpy()[order]) > 0).all()  # strictly increasing, also outside
    assert (bins[:, 1] == 0).all()  # an uneven pair of values has one bin, which is the feature itself
    inside = bins[:500, 0].numpy()
    quartile = np.quantile(X[:, 0], 0.25)
    assert (inside[X[:, 0] > quartile, 0] == 1).all()
    assert (inside[X[:, 0] <= quartile, 1] == 0).all()


def test_a_model_with_bins_and_weights_survives_its_file(tmp_path) -> None:
    X, y = simulated(200, 5)
    X = np.column_stack([X, np.random.default_rng(1).normal(size=200)])
    model = DCS(decoder_layers=0, feature_bins=6, criterion="weighted", max_epochs=2, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    import dcsurv

    again = dcsurv.load(tmp_path / "model")
    assert again.feature_bins == 6
    assert np.array_equal(again.predict(X), model.predict(X))
