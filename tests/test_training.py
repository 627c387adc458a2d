"""The training loop: what it keeps, when it stops, what it leaves untouched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dcsurv import make_outcome
from dcsurv.training import History, evaluate, isolated_torch, train, validation_split
from dcsurv.training.loop import _deal


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator)
    return x, x @ torch.tensor([1.0, -2.0, 0.5]) + 0.5 * torch.randn(60, generator=generator)


def squared_error(data: tuple[Tensor, Tensor]):
    x, target = data

    def loss(network: nn.Module, rows: Tensor) -> Tensor:
        return (network(x[rows]).squeeze(1) - target[rows]).square().mean()

    return loss


def fresh_network(seed: int = 0) -> nn.Module:
    with isolated_torch(seed):
        return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Batches and dropout come from torch's global generator, which the models isolate and these tests do not."""
    torch.manual_seed(0)


TRAIN, VALIDATION = torch.arange(48), torch.arange(48, 60)


def test_learns_and_keeps_the_weights_of_the_best_epoch(data: tuple[Tensor, Tensor]) -> None:
    network, loss = fresh_network(), squared_error(data)
    before = evaluate(network, loss, VALIDATION)
    # A large step makes the loss go up and down, so that the last epoch is not the best one.
    history = train(network, loss, TRAIN, VALIDATION, batch_size=8, learning_rate=0.1, max_epochs=30, patience=30)
    assert min(history.validation_loss) < before / 2
    assert history.best_epoch == 1 + int(np.argmin(history.validation_loss)) < 30
    assert evaluate(network, loss, VALIDATION) == min(history.validation_loss)
    assert not network.training
    assert history.stopped_by == "max_epochs"
    assert len(history.training_loss) == len(history.validation_loss) == 30


def test_stops_when_patience_runs_out(data: tuple[Tensor, Tensor]) -> None:
    history = train(fresh_network(), squared_error(data), TRAIN, VALIDATION, learning_rate=0.3, patience=3)
    assert history.stopped_by == "patience"
    assert len(history.training_loss) == history.best_epoch + 3


def test_without_validation_rows_the_training_loss_is_watched(data: tuple[Tensor, Tensor]) -> None:
    history = train(fresh_network(), squared_error(data), TRAIN, TRAIN[:0], max_epochs=5)
    assert history.validation_loss == []
    assert history.best_epoch == 1 + int(np.argmin(history.training_loss))


@pytest.mark.parametrize("n", [2, 3, 5, 9, 49, 51, 101])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 50, 1000])
def test_batches_hold_every_row_once_and_never_one_alone(n: int, batch_size: int) -> None:
    batches = _deal(torch.arange(n), batch_size)
    assert torch.equal(torch.cat(batches), torch.arange(n))
    sizes = [len(batch) for batch in batches]
    assert min(sizes) >= 2
    assert max(sizes) <= max(batch_size, 3)
    assert max(sizes) - min(sizes) <= 1


def test_batch_normalisation_survives_a_remainder_of_one(data: tuple[Tensor, Tensor]) -> None:
    history = train(fresh_network(), squared_error(data), TRAIN[:41], VALIDATION, batch_size=8, max_epochs=1)
    assert np.isfinite(history.training_loss).all()


def test_same_seed_same_bits_and_the_global_generator_is_left_alone(data: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(123)
    expected_next = torch.rand(1)
    torch.manual_seed(123)
    weights = []
    for _ in range(2):
        with isolated_torch(7):
            network = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
            train(network, squared_error(data), TRAIN, VALIDATION, max_epochs=3)
        weights.append(network.state_dict())
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name])
    assert torch.equal(torch.rand(1), expected_next)


@pytest.mark.parametrize("at_call", [1, 9], ids=["in the first epoch", "in a later epoch"])
def test_ctrl_c_keeps_the_best_weights_and_warns(data: tuple[Tensor, Tensor], at_call: int) -> None:
    plain, calls = squared_error(data), 0

    def interrupted(network: nn.Module, rows: Tensor) -> Tensor:
        nonlocal calls
        calls += network.training
        if calls == at_call:
            calls += 1
            os.kill(os.getpid(), signal.SIGINT)
        return plain(network, rows)

    network = fresh_network()
    with pytest.warns(UserWarning, match="interrupted in epoch"):
        history = train(network, interrupted, TRAIN, VALIDATION, batch_size=16)
    assert history.stopped_by == "interrupt"
    assert len(history.training_loss) == len(history.validation_loss) == (0 if at_call == 1 else 2)
    if at_call > 1:
        assert evaluate(network, plain, VALIDATION) == min(history.validation_loss)
    assert not network.training


def test_a_diverging_loss_is_an_error_that_says_what_to_do(data: tuple[Tensor, Tensor]) -> None:
    x, target = data
    loss = squared_error((x * 1e38, target))
    with pytest.raises(FloatingPointError, match=r"training loss became .* in epoch 1\. Lower learning_rate"):
        train(nn.Linear(3, 1), loss, TRAIN, VALIDATION)


def test_clipping_and_weight_decay_take_effect(data: tuple[Tensor, Tensor]) -> None:
    def size_after(**options: float) -> float:
        network = fresh_network()
        with isolated_torch(0):
            train(network, squared_error(data), TRAIN, VALIDATION, max_epochs=3, learning_rate=0.05, **options)
        return float(sum(p.detach().square().sum() for p in network.parameters()))

    plain = size_after()
    assert size_after(weight_decay=1.0) < plain
    assert size_after(clip_norm=1e-12) != plain  # Adam rescales steps, so only an absurd limit shows


def test_validation_split_is_stratified_seeded_and_leaves_events_on_both_sides() -> None:
    event = np.arange(100) % 5 == 0
    y = make_outcome(np.arange(100) + 1.0, event)
    training, validation = validation_split(y, 0.1, 3)
    assert sorted([*training, *validation]) == list(range(100))
    assert (len(validation), event[validation].sum()) == (10, 2)
    np.testing.assert_array_equal(validation, validation_split(y, 0.1, 3)[1])
    assert set(validation) != set(validation_split(y, 0.1, 4)[1])
    for seed in range(20):
        rare = make_outcome(np.arange(20) + 1.0, np.arange(20) == 7)
        assert len(validation_split(rare, 0.2, seed)[1]) == 0
    assert len(validation_split(y, 0.0, 3)[1]) == 0


def test_progress_is_shown_only_when_asked(data: tuple[Tensor, Tensor], capsys: pytest.CaptureFixture[str]) -> None:
    train(fresh_network(), squared_error(data), TRAIN, VALIDATION, max_epochs=2)
    assert capsys.readouterr().out == ""
    train(fresh_network(), squared_error(data), TRAIN, VALIDATION, max_epochs=2, verbose=True)
    assert "epoch 2/2" in capsys.readouterr().out


def test_history_plots_and_summarises() -> None:
    import matplotlib

    matplotlib.use("Agg")
    history = History([3.0, 2.0, 1.0], [3.0, 1.5, 2.0], best_epoch=2, stopped_by="patience")
    axes = history.plot()
    assert [line.get_label() for line in axes.lines] == ["training", "validation", "kept: epoch 2"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), history.validation_loss)
    assert history.summary() == {"epochs": 3, "best_epoch": 2, "best_loss": 1.5, "stopped_by": "patience"}
    matplotlib.pyplot.close("all")


def test_torch_is_imported_by_the_first_network_and_with_the_threads_of_its_block() -> None:
    """Who needs no network does not wait for torch; whoever imports it inside of a block gets one thread there."""
    code = """
import sys
import dcsurv.calibration, dcsurv.experiments, dcsurv.explanation, dcsurv.metrics, dcsurv.report, dcsurv.validation
from dcsurv.datasets import simulate
from dcsurv.models.tensors import torch
from dcsurv.training import one_thread, watch
cohort = simulate("independent", 200)
with one_thread():
    dcsurv.CoxPH().fit(cohort.X, cohort.y).predict_survival_function(cohort.X)
    assert "torch" not in sys.modules
    with one_thread():
        print(torch.get_num_threads())
    print(torch.get_num_threads())
print(torch.get_num_threads())
with one_thread():
    print(torch.get_num_threads())
print(torch.get_num_threads())
"""
    environment = os.environ | {"OMP_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["1", "1", "3", "1", "3"], done.stderr
