"""The metrics against the packages people use now, on random cohorts; the real cohorts are in test_paper_targets."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from cohorts import CASES, random_cohort
from dcsurv import make_outcome
from dcsurv.metrics import (
    brier_score,
    concordance_index_harrell,
    concordance_index_td,
    concordance_index_uno,
    cumulative_dynamic_auc,
    d_calibration,
    ddc,
    integrated_brier_score,
)
from dcsurv.metrics.distribution import bin_contributions, divergence

REFERENCE = Path(__file__).parent / "reference"

cases = pytest.mark.parametrize("name", CASES)
seeds = pytest.mark.parametrize("seed", range(4))


def sksurv_y(y):
    from sksurv.util import Surv

    return Surv.from_arrays(y["event"], y["time"])


@cases
@seeds
@pytest.mark.parametrize(("ties", "method"), [("adjusted", "adj_antolini"), ("antolini", "antolini")])
def test_concordance_td_equals_pycox(name, seed, ties, method):
    from pycox.evaluation.concordance import concordance_td

    y, curves = random_cohort(seed, **CASES[name])
    at_own_times = curves.evaluate(y["time"])  # column i holds every patient's S(z_i)
    expected = concordance_td(y["time"], y["event"], at_own_times.T, np.arange(len(y)), method)
    assert concordance_index_td(y, curves, ties=ties) == pytest.approx(expected, abs=1e-12)


@cases
@seeds
def test_concordance_td_in_the_paper_convention_equals_pycox_evalsurv(name, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pycox.evaluation import EvalSurv

    y, curves = random_cohort(seed, **CASES[name])
    y_train, _ = random_cohort(seed + 100, n=150, tied_times=CASES[name].get("tied_times", False))
    nodes = np.unique(y_train["time"])
    frame = curves.project(nodes).to_frame().T
    expected = EvalSurv(frame, y["time"], y["event"].astype(int)).concordance_td("adj_antolini")
    value = concordance_index_td(y, curves, convention="paper", y_train=y_train)
    assert value == pytest.approx(expected, abs=1e-12)


@cases
@seeds
@pytest.mark.parametrize("tied_tol", [1e-8, 1e-3])
@pytest.mark.parametrize("from_train", [False, True])
def test_cdauc_equals_scikit_survival(name, seed, tied_tol, from_train):
    from sksurv.metrics import cumulative_dynamic_auc as oracle

    y, curves = random_cohort(seed, **CASES[name])
    y_train = random_cohort(seed + 100, **{**CASES[name], "n": 400})[0] if from_train else None
    events = y["time"][y["event"]]
    times = np.linspace(events.min(), np.quantile(y["time"], 0.9), 21)[:-1]
    times = np.unique(times[times < (y if y_train is None else y_train)["time"].max()])
    inside = y["time"] <= (y if y_train is None else y_train)["time"].max()
    y, curves = y[inside], curves[inside]
    times = times[times < y["time"].max()]
    auc, mean = oracle(
        sksurv_y(y if y_train is None else y_train), sksurv_y(y), 1 - curves.evaluate(times), times, tied_tol=tied_tol
    )
    ours = cumulative_dynamic_auc(y, curves, times=times, y_train=y_train, tied_tol=tied_tol, censoring_weights="at")
    np.testing.assert_allclose(ours.auc, auc, atol=1e-10)
    assert ours.mean == pytest.approx(mean, abs=1e-10)


@cases
@seeds
def test_brier_equals_scikit_survival(name, seed):
    from sksurv.metrics import brier_score as oracle
    from sksurv.metrics import integrated_brier_score as oracle_integrated

    y, curves = random_cohort(seed, **CASES[name])
    y_train, _ = random_cohort(seed + 100, **{**CASES[name], "n": 400})
    inside = y["time"] <= y_train["time"].max()
    y, curves = y[inside], curves[inside]
    times = np.unique(np.quantile(y["time"], np.linspace(0.1, 0.85, 15)))
    _, expected = oracle(sksurv_y(y_train), sksurv_y(y), curves.evaluate(times), times)
    used, score = brier_score(y, curves, times, y_train=y_train, censoring_weights="at")
    np.testing.assert_array_equal(used, times)
    np.testing.assert_allclose(score, expected, atol=1e-12)
    integrated = integrated_brier_score(y, curves, times=times, y_train=y_train, censoring_weights="at")
    expected = oracle_integrated(sksurv_y(y_train), sksurv_y(y), curves.evaluate(times), times)
    assert integrated == pytest.approx(expected, abs=1e-12)


@cases
@seeds
def test_static_concordance_equals_scikit_survival(name, seed):
    from sksurv.metrics import concordance_index_censored, concordance_index_ipcw

    y, curves = random_cohort(seed, **CASES[name])
    y_train, _ = random_cohort(seed + 100, **{**CASES[name], "n": 400})
    inside = y["time"] < y_train["time"].max()
    y, curves = y[inside], curves[inside]
    risk = np.round(-curves.rmst(), 1)
    expected = concordance_index_censored(y["event"], y["time"], risk)[0]
    assert concordance_index_harrell(y, risk) == pytest.approx(expected, abs=1e-12)
    tau = float(np.quantile(y["time"], 0.8)) + 1e-9
    expected = concordance_index_ipcw(sksurv_y(y_train), sksurv_y(y), risk, tau=tau)[0]
    ours = concordance_index_uno(y, risk, y_train=y_train, tau=tau, censoring_weights="at")
    assert ours == pytest.approx(expected, abs=1e-12)


@cases
@seeds
def test_d_calibration_equals_survivaleval(name, seed):
    from SurvivalEVAL.evaluations.calibration.distributional.distribution_calibration import d_calibration as oracle

    y, curves = random_cohort(seed, **CASES[name])
    own = curves.at_own(y["time"])
    statistic, p_value, counts = oracle(own, y["event"])
    ours = d_calibration(y, curves)
    np.testing.assert_allclose(ours.bins * len(y), np.asarray(counts)[::-1], atol=1e-9)
    assert ours.statistic == pytest.approx(statistic, abs=1e-9)
    assert ours.p_value == pytest.approx(p_value, abs=1e-9)


@pytest.mark.parametrize("case", json.loads((REFERENCE / "ddc.json").read_text()))
def test_ddc_equals_the_authors(case):
    survival, event = np.array(case["survival_at_time"]), np.array(case["event"], dtype=bool)
    bins = bin_contributions(survival, event).mean(axis=0)
    np.testing.assert_allclose(bins, case["bin_fraction"], atol=1e-9)
    assert ((bins - 0.1) ** 2).sum() == pytest.approx(case["d_calibration_mse"], abs=1e-9)
    assert divergence(bins) == pytest.approx(case["ddc"], abs=1e-8)


def test_ddc_on_bin_edges_and_at_zero():
    """Cases that the authors' values do not cover: s on an edge, a censored s = 0, and s = 1."""
    edges = np.arange(11) / 10
    bins = bin_contributions(edges, np.ones(11, dtype=bool))
    assert bins.argmax(axis=1).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]
    censored = bin_contributions(edges, np.zeros(11, dtype=bool))
    np.testing.assert_allclose(censored.sum(axis=1), 1.0)
    assert censored[0].tolist() == [1.0] + [0.0] * 9, "a censored s = 0 keeps its mass, in the first bin"
    np.testing.assert_allclose(censored[3, :4], [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-12)
    np.testing.assert_allclose(censored[10], 0.1)


def test_ddc_is_zero_for_a_flat_histogram_and_ln_10_for_a_spike():
    time = np.arange(1.0, 11.0)
    y = make_outcome(time, np.ones(10))
    assert ddc(y, (np.tile(1.05 - time / 10, (10, 1)), time)) == pytest.approx(0, abs=1e-12)
    assert ddc(y, (np.full((10, 10), 0.5), time)) == pytest.approx(np.log(10))
