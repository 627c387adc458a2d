"""Networks that are trained together: the loss, its gradient, the stack and the loop against one network at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from dcsurv import DCS
from dcsurv.calibration import CalibratedEnsemble, default_member
from dcsurv.datasets import simulate
from dcsurv.losses import StackedOutcomes, likelihood_ranking, stacked_likelihood_ranking
from dcsurv.models.together import can_be_trained_together, fit_together
from dcsurv.networks import EncoderDecoder, NetworksInTraining
from dcsurv.training import Trainee, train_together


def _patients(rng: np.random.Generator, shape: tuple[int, int], n_nodes: int) -> tuple[StackedOutcomes, torch.Tensor]:
    passed = torch.from_numpy(rng.choice([0.0, 0.3, 0.9, 1.0], shape))
    patients = StackedOutcomes.of(
        bucket=torch.from_numpy(rng.integers(0, n_nodes + 1, shape)),
        event=torch.from_numpy(rng.random(shape) < 0.6),
        passed=passed,
        weight=torch.from_numpy(rng.choice([0.0, 0.5, 1.0, 3.0], shape)),
    )
    return patients, passed


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 30),
    n_nodes=st.integers(1, 9),
    lam=st.sampled_from([0.0, 0.5, 4.0]),
    sigma=st.sampled_from([0.02, 0.3, 1.0]),
    censored_pairs=st.booleans(),
    spread=st.sampled_from([1.0, 30.0]),
)
def test_loss_and_gradient_are_those_of_each_network(
    seed: int, n: int, n_nodes: int, lam: float, sigma: float, censored_pairs: bool, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(spread * rng.normal(size=(3, n, n_nodes)))
    patients, passed = _patients(rng, (3, n), n_nodes)
    patients.weight[2] = 0.0  # a network whose whole batch is there to fill it
    how = {"lam": lam, "sigma": sigma, "event_censored_pairs": censored_pairs}
    loss, gradient = stacked_likelihood_ranking(logits, patients, **how)
    again, none = stacked_likelihood_ranking(logits, patients, with_gradient=False, **how)
    assert none is None
    assert torch.equal(loss, again)
    assert gradient is not None
    for m in range(3):
        one = logits[m].clone().requires_grad_()
        expected = likelihood_ranking(
            one, patients.bucket[m], patients.event[m], passed[m], sample_weight=patients.weight[m], **how
        )
        expected.backward()
        torch.testing.assert_close(loss[m], expected.detach(), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradient[m], one.grad, rtol=1e-7, atol=1e-10)


def _networks(n: int, *, layers: int = 2, bins: int = 4, dropout: float = 0.2) -> list[EncoderDecoder]:
    rng = np.random.default_rng(0)
    out = []
    for _ in range(n):
        network = EncoderDecoder(
            5, 6, encoder_layers=layers, encoder_size=7, decoder_layers=0, feature_bins=bins, dropout=dropout
        )
        if network.embedding is not None:
            X = rng.normal(size=(80, 5)).astype(np.float32)
            X[:, 3] = X[:, 3] > 0  # has no bins
            network.embedding.set_bins(X)
        out.append(network)
    return out


@pytest.mark.parametrize(("layers", "bins"), [(0, 0), (1, 0), (2, 4), (0, 4)])
def test_outputs_are_those_of_each_network(layers: int, bins: int) -> None:
    networks = _networks(3, layers=layers, bins=bins)
    x = torch.randn(3, 11, 5) * 3
    stack = NetworksInTraining(networks)
    for network, own, out in zip(networks, x, stack.outputs(x), strict=True):
        torch.testing.assert_close(network.eval()(own), out, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_gradients_are_those_of_each_network(layers: int) -> None:
    networks = _networks(3, layers=layers, dropout=0.0)
    stack = NetworksInTraining(networks)
    x, slope = torch.randn(3, 11, 5), torch.randn(3, 11, 6)
    _, hidden = stack.step(x, None)
    stack.backward(slope, hidden)
    moved = stack.weights - stack.weights.grad
    for network, own, of_outputs, weights in zip(networks, x, slope, moved, strict=True):
        (network(own) * of_outputs).sum().backward()
        expected = {name: value.detach() - value.grad for name, value in network.named_parameters()}
        stack.write(weights, network)
        for name, value in network.named_parameters():
            torch.testing.assert_close(value.detach(), expected[name], rtol=1e-4, atol=1e-5)


def test_what_dropout_cuts_off_moves_nothing() -> None:
    stack = NetworksInTraining(_networks(2, layers=1))
    keep = torch.full((2, 11, 7), 1.25)
    keep[:, :, 2] = 0.0
    x = torch.randn(2, 11, 5)
    outputs, hidden = stack.step(x, keep)
    stack.backward(torch.randn_like(outputs), hidden)
    n_inputs = (stack.weights.shape[1] - 7 - 6 - 7 * 6) // 7
    first = stack.weights.grad[:, : n_inputs * 7].view(2, n_inputs, 7)
    assert (first[:, :, 2] == 0).all()
    assert (first[:, :, 3] != 0).any()


def test_dropout_keeps_its_share_and_each_network_draws_for_itself() -> None:
    stack = NetworksInTraining(_networks(2))
    first, second = (stack.draw([np.random.default_rng(k) for k in seeds], 4000) for seeds in ((1, 2), (3, 2)))
    assert first is not None
    assert second is not None
    assert abs(float((first > 0).float().mean()) - 0.8) < 0.005
    assert abs(float(first.mean()) - 1.0) < 0.01
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], second[0])
    assert NetworksInTraining(_networks(2, dropout=0.0)).draw([], 5) is None


def test_only_networks_without_decoder_are_trained_together() -> None:
    assert can_be_trained_together(default_member())
    for changes in ({"criterion": "ranked"}, {"aggregation_layers": 2}, {"verbose": True}, {"decoder_layers": 1}):
        assert not can_be_trained_together(default_member(**changes))


_COHORT = simulate("independent", 400)
_X = StandardScaler().fit_transform(_COHORT.X.select_dtypes("number")).astype(np.float32)


def _members(seeds: list[int], **changes: object) -> list[DCS]:
    settings = {"preprocess": None, "n_nodes": 12, "encoder_size": 16, "max_epochs": 12, "patience": 3} | changes
    return [default_member(**settings, random_state=seed) for seed in seeds]


def test_a_member_does_not_depend_on_its_companions() -> None:
    halves = [np.arange(0, 200), np.arange(200, 400)]
    weight = np.linspace(0.5, 2.0, 400)
    company, alone = _members([1, 2, 3]), _members([2])
    fit_together(company, _X, _COHORT.y, weight, [halves[0], halves[1], np.arange(50, 250)])
    fit_together(alone, _X, _COHORT.y, weight, [halves[1]])
    assert company[1].history_.best_epoch == alone[0].history_.best_epoch
    np.testing.assert_allclose(company[1].survival_at_nodes(_X), alone[0].survival_at_nodes(_X), atol=1e-4)
    assert company[1].training_summary_["patients"] == 200
    assert np.abs(company[0].survival_at_nodes(_X) - company[1].survival_at_nodes(_X)).max() > 0.01


def test_training_together_learns_what_training_alone_does() -> None:
    rows = np.arange(300)
    company, alone = (_members([5, 6, 7, 8], max_epochs=60) for _ in range(2))
    fit_together(company, _X, _COHORT.y, None, [rows] * 4)
    for member in alone:
        member.fit_member(_X[rows], _COHORT.y[rows])
    losses = [np.mean([m.training_summary_["best_loss"] for m in some]) for some in (company, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert all(m.history_.stopped_by == "patience" for m in company)
    curves = [
        np.mean([m.survival_at(_X[300:], np.array([2.0, 5.0])) for m in some], axis=0) for some in (company, alone)
    ]
    assert np.abs(curves[0] - curves[1]).mean() < 0.03


def test_a_member_that_has_ended_keeps_its_best_weights_while_others_go_on() -> None:
    members = _members([1, 2, 3, 4], max_epochs=40, patience=2)
    fit_together(members, _X, _COHORT.y, None, [np.arange(k, 400, 2) for k in (0, 1, 0, 1)])
    epochs = [m.training_summary_["epochs"] for m in members]
    assert len(set(epochs)) > 1
    for member in members:
        history = member.history_
        assert history.best_epoch == 1 + int(np.argmin(history.validation_loss))
        assert len(history.training_loss) == len(history.validation_loss) == len(history.training_loss)


def test_rows_take_turns_where_an_epoch_is_shorter_than_they_are() -> None:
    """Each row is trained on once before any comes again, whatever an epoch holds."""
    network = _networks(1, layers=0, bins=0)[0]
    n = 100
    seen: list[int] = []

    def loss(
        outputs: torch.Tensor, patients: StackedOutcomes, with_gradient: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if with_gradient:
            seen.extend(patients.bucket[patients.weight > 0].tolist())
        return outputs.mean((1, 2)), torch.zeros_like(outputs) if with_gradient else None

    patients = StackedOutcomes(torch.arange(n), torch.ones(n, dtype=torch.bool), torch.zeros(n), torch.ones(n))
    trainee = Trainee(network, np.arange(n), patients, np.arange(90), np.arange(90, 100), seed=1)
    train_together([trainee], torch.randn(n, 5), loss, epoch_rows=36, batch_size=10, max_epochs=5, patience=5)
    assert len(set(seen[:72])) == 72
    assert sorted(seen) == sorted([*range(90), *range(90)])


def test_a_loss_that_is_no_number_is_said() -> None:
    with pytest.raises(FloatingPointError, match="Lower learning_rate"):
        fit_together(_members([1], learning_rate=1e30), _X, _COHORT.y, None, [np.arange(200)])


def test_features_that_processes_share_are_trained_on_without_a_warning() -> None:
    shared = _X.copy()
    shared.setflags(write=False)
    torch.set_warn_always(True)
    try:
        fit_together(_members([1], max_epochs=1), shared, _COHORT.y, None, [np.arange(200)])
    finally:
        torch.set_warn_always(False)


def test_clipping_bounds_the_gradient_of_each_network() -> None:
    free, clipped = (_members([1, 2], clip_norm=norm, max_epochs=4) for norm in (None, 1e-12))
    for members in (free, clipped):
        fit_together(members, _X, _COHORT.y, None, [np.arange(200)] * 2)
    change = [np.ptp(members[0].history_.validation_loss) for members in (free, clipped)]
    assert change[1] < 0.2 * change[0]


def test_the_same_bits_for_any_number_of_jobs() -> None:
    fits = [
        CalibratedEnsemble(estimator=_members([0])[0], n_members=3, seeds_per_member=2, n_jobs=jobs, random_state=4)
        for jobs in (1, 2)
    ]
    first, second = (model.fit(_X, _COHORT.y).predict_survival_function(_X[:50]) for model in fits)
    assert np.array_equal(first.values, second.values)
