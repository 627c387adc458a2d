"""Losses against the authors' code (TensorFlow values in tests/reference), pycox, and properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dcsurv.losses import (
    calibrated_ranking,
    case_control,
    cox_partial_likelihood,
    drsa,
    ranked_probability_score,
    ranking_kernel,
    survival_from_logits,
)

REFERENCE = Path(__file__).parent / "reference"
DCS_CASES = json.loads((REFERENCE / "dcs_loss.json").read_text())
DRSA_CASES = json.loads((REFERENCE / "drsa_loss.json").read_text())


def leaf(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def dcs_inputs(case: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    bucket = torch.as_tensor(np.searchsorted(case["grid"][1:], case["time"]))
    return leaf(case["hazard"]), bucket, torch.tensor(case["event"])


def logit(hazard: torch.Tensor) -> torch.Tensor:
    return hazard.log() - torch.log1p(-hazard)


@pytest.mark.parametrize("case", DCS_CASES, ids=range(len(DCS_CASES)))
def test_dcs_loss_equals_authors(case: dict[str, Any]) -> None:
    hazard, bucket, event = dcs_inputs(case)
    survival = survival_from_logits(logit(hazard))
    score = ranked_probability_score(survival, bucket, event).sum()
    kernel, pairs = ranking_kernel(
        survival, bucket, event, sigma=case["sigma"], event_censored_pairs=case["event_censored_pairs"]
    )
    if case["normalize"]:
        score, kernel = score / survival.numel(), kernel / max(1.0, pairs.item())
    assert score.item() == pytest.approx(case["rps"], rel=1e-5, abs=1e-7)
    assert kernel.item() == pytest.approx(case["kernel"], rel=1e-5, abs=1e-7)
    total = calibrated_ranking(
        survival,
        bucket,
        event,
        lam=case["lambda_"],
        sigma=case["sigma"],
        event_censored_pairs=case["event_censored_pairs"],
        normalize=case["normalize"],
    )
    total.backward()
    assert total.item() == pytest.approx(case["total"], rel=1e-5)
    assert hazard.grad is not None
    np.testing.assert_allclose(hazard.grad, case["grad_hazard"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", DRSA_CASES, ids=range(len(DRSA_CASES)))
def test_drsa_loss_equals_reference(case: dict[str, Any]) -> None:
    hazard = leaf(case["hazard"])
    loss = drsa(logit(hazard), torch.tensor(case["bucket"]), torch.tensor(case["event"]), alpha=case["alpha"])
    loss.backward()
    assert loss.item() == pytest.approx(case["total"], rel=1e-5)
    assert hazard.grad is not None
    np.testing.assert_allclose(hazard.grad, case["grad_hazard"], rtol=1e-5, atol=1e-5)


def test_survival_from_logits_is_the_product_of_survived_buckets() -> None:
    hazard = torch.rand(4, 7, dtype=torch.float64)
    np.testing.assert_allclose(survival_from_logits(logit(hazard)), torch.cumprod(1 - hazard, 1), rtol=1e-12)


def test_node_weights_of_the_score_are_a_weighted_sum_over_nodes() -> None:
    case = DCS_CASES[16]
    hazard, bucket, event = dcs_inputs(case)
    survival = torch.cumprod(1 - hazard, 1).detach()
    per_node = [
        ranked_probability_score(survival, bucket, event, torch.eye(survival.shape[1])[[node]].double())
        for node in range(survival.shape[1])
    ]
    weight = torch.rand_like(survival)
    expected = sum(weight[:, node] * score for node, score in enumerate(per_node))
    np.testing.assert_allclose(ranked_probability_score(survival, bucket, event, weight), expected, rtol=1e-12)


def random_batch(seed: int, n: int, ties: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    time = rng.integers(1, 6, n).astype(float) if ties else rng.permutation(n) + rng.uniform(0, 0.5, n)
    return leaf(rng.normal(size=n)), torch.as_tensor(time), torch.as_tensor(rng.random(n) < 0.6)


@pytest.mark.parametrize("seed", range(5))
def test_partial_likelihood_equals_pycox_without_ties(seed: int) -> None:
    from pycox.models.loss import cox_ph_loss

    g, time, event = random_batch(seed, 40)
    ours = cox_partial_likelihood(g, time, event)
    (gradient,) = torch.autograd.grad(ours, g)
    theirs = cox_ph_loss(g, time, event, eps=0.0)
    (expected,) = torch.autograd.grad(theirs, g)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


# Importing torchsurv and its way of mentioning ties both warn.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning", "ignore:Ties in:UserWarning")
@pytest.mark.parametrize("seed", range(3))
def test_partial_likelihood_with_ties_is_breslows_and_ignores_the_order(seed: int) -> None:
    from torchsurv.loss.cox import neg_partial_log_likelihood

    g, time, event = random_batch(seed, 30, ties=True)
    ours = cox_partial_likelihood(g, time, event).item()
    total = neg_partial_log_likelihood(g, event, time, ties_method="breslow", reduction="sum")
    theirs = (total / event.sum()).item()
    assert ours == pytest.approx(theirs, abs=1e-6)
    order = torch.randperm(30)
    assert cox_partial_likelihood(g[order], time[order], event[order]).item() == pytest.approx(ours, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_case_control_equals_pycox(seed: int) -> None:
    from pycox.models.loss import cox_cc_loss

    case, control = (
        leaf(np.random.default_rng(seed).normal(size=20)),
        leaf(np.random.default_rng(9).normal(size=20)),
    )
    ours = case_control(case, control)
    theirs = cox_cc_loss(case, [control])
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    np.testing.assert_allclose(torch.autograd.grad(ours, case)[0], torch.autograd.grad(theirs, case)[0], atol=1e-6)


# Every loss on one footing: raw outputs of a network (n, L) or (n,), bucket, event, weight.
def all_losses(raw: torch.Tensor, bucket: torch.Tensor, event: torch.Tensor, weight: Any) -> dict[str, torch.Tensor]:
    survival = survival_from_logits(raw)
    return {
        "cox": cox_partial_likelihood(raw[:, 0], bucket.double(), event, weight),
        "case_control": case_control(raw[event, 0], raw[event, 1], None if weight is None else weight[event]),
        "drsa": drsa(raw, bucket, event, alpha=0.4, sample_weight=weight),
        "dcs": calibrated_ranking(survival, bucket, event, lam=1.0, sigma=0.5, sample_weight=weight),
        "kamran": calibrated_ranking(
            survival,
            bucket,
            event,
            lam=1.0,
            sigma=0.5,
            event_censored_pairs=False,
            normalize=False,
            sample_weight=weight,
        ),
    }


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 6),
    scale=st.sampled_from([0.0, 1.0, 50.0, 1e3]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    weighted=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_no_batch_gives_nan(n: int, scale: float, share: float, weighted: bool, seed: int) -> None:
    """Size one, no events, all events, saturated outputs, times beyond the grid, zero weights."""
    rng = np.random.default_rng(seed)
    for dtype in (torch.float32, torch.float64):
        raw = torch.as_tensor(rng.normal(size=(n, 4)) * scale, dtype=dtype).requires_grad_()
        bucket = torch.as_tensor(rng.integers(0, 5, n))
        event = torch.as_tensor(rng.random(n) < share)
        weight = torch.as_tensor(rng.integers(0, 3, n), dtype=dtype) if weighted else None
        for name, loss in all_losses(raw, bucket, event, weight).items():
            assert torch.isfinite(loss), name
            (gradient,) = torch.autograd.grad(loss, raw, retain_graph=True)
            assert torch.isfinite(gradient).all(), name


@pytest.mark.parametrize("name", ["cox", "case_control", "drsa", "dcs", "kamran"])
def test_whole_weights_equal_repeated_rows(name: str) -> None:
    rng = np.random.default_rng(0)
    raw = torch.as_tensor(rng.normal(size=(12, 4)))
    bucket, event = torch.as_tensor(rng.integers(0, 5, 12)), torch.as_tensor(rng.random(12) < 0.6)
    times = torch.as_tensor(rng.integers(0, 4, 12))
    weighted = all_losses(raw, bucket, event, times.double())[name]
    repeated = all_losses(*(t.repeat_interleave(times, 0) for t in (raw, bucket, event)), None)[name]
    assert weighted.item() == pytest.approx(repeated.item(), rel=1e-10)


def test_beyond_the_grid_an_event_counts_as_outliving_it() -> None:
    logits = torch.randn(1, 5)
    beyond, last = torch.tensor([5]), torch.tensor([4])
    event, censored = torch.tensor([True]), torch.tensor([False])
    assert drsa(logits, beyond, event, alpha=0.3) == drsa(logits, last, censored, alpha=0.3)


def test_the_likelihood_is_that_of_curves_that_run_linearly() -> None:
    """Against SurvivalCurves: the density of an event, the survival at a censoring, node by node."""
    from dcsurv.curves import SurvivalCurves
    from dcsurv.grid import TimeGrid
    from dcsurv.losses import discrete_likelihood, survival_from_logits

    rng = np.random.default_rng(0)
    grid = TimeGrid(np.array([1.0, 2.0, 4.0, 7.0]), "quantile")
    time = np.concatenate([[1.0, 4.0, 7.0, 9.0, 9.0], rng.uniform(0, 8, 40)])  # at nodes, beyond the grid, between
    event = np.concatenate([[0, 1, 0, 1, 0], rng.integers(0, 2, 40)]).astype(bool)
    logits = torch.tensor(rng.normal(size=(45, 4)))
    curves = SurvivalCurves(grid.nodes, survival_from_logits(logits).numpy())
    ours = discrete_likelihood(
        logits, torch.tensor(grid.bucket(time)), torch.tensor(event), torch.tensor(grid.passed(time))
    )
    knots = np.append(0.0, grid.nodes)
    for i, (z, d) in enumerate(zip(time, event, strict=True)):
        if d and z <= 7:
            end = int(np.searchsorted(knots, z))
            at = curves[i](knots[[end - 1, end]])
            expected = -np.log(at[0] - at[1])  # the chance of an event in the interval
        else:
            expected = -np.log(curves[i](min(z, 7.0)))
        assert float(ours[i]) == pytest.approx(expected, abs=1e-9)


def test_the_likelihood_and_its_gradient_stay_finite() -> None:
    from dcsurv.losses import likelihood_ranking

    logits = torch.tensor([[-200.0, 200.0], [200.0, -200.0], [0.0, 0.0]], requires_grad=True)
    bucket, passed = torch.tensor([0, 2, 1]), torch.tensor([1.0, 1.0, 0.0])
    for event in ([1, 0, 1], [0, 0, 0]):
        loss = likelihood_ranking(logits, bucket, torch.tensor(event), passed, lam=0.5, sigma=1.0)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()


def test_weights_of_the_likelihood_are_copies() -> None:
    from dcsurv.losses import likelihood_ranking

    torch.manual_seed(0)
    logits, bucket = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 1, 0])
    event, passed = torch.tensor([1, 0, 1, 0, 1, 0]), torch.full((6,), 0.5, dtype=torch.float64)
    weight = torch.tensor([2.0, 1, 1, 1, 1, 1], dtype=torch.float64)
    rows = torch.tensor([0, 0, 1, 2, 3, 4, 5])
    kernel = {"lam": 0.5, "sigma": 1.0}
    weighted = likelihood_ranking(logits, bucket, event, passed, sample_weight=weight, **kernel)
    copied = likelihood_ranking(logits[rows], bucket[rows], event[rows], passed[rows], **kernel)
    assert float(weighted) == pytest.approx(float(copied), abs=1e-12)
