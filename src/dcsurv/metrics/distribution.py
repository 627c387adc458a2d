"""Calibration over the whole distribution: D-calibration, DDC, and what a perfect model would score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.curves import as_curves
from dcsurv.grid import Convention
from dcsurv.metrics.catalogue import Metric, register_metric
from dcsurv.metrics.inputs import counted, node_after, paper_nodes
from dcsurv.metrics.null import drawn_outcomes
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import BoolArray, FloatArray, check_sample_weight, unpack

N_BINS = 10


@dataclass(frozen=True)
class DCalibration:
    """The histogram of S(z|x) in ten bins with its distance from flat.

    Attributes
    ----------
    bins : array of float
        Share of the patients in each bin, lowest survival first, (10,).
    score : float
        Sum over bins of (share - 1/10)^2.
    statistic : float
        Haider's chi-square.
    p_value : float
        Of the test; a small one says that the model is not D-calibrated.

    Examples
    --------
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import d_calibration
    >>> cohort = simulate("independent", 1000)
    >>> found = d_calibration(cohort.y, cohort.truth)
    >>> found.bins.shape, found.p_value > 0.05  # the truth is calibrated
    ((10,), True)
    """

    bins: FloatArray
    score: float
    statistic: float
    p_value: float


def bin_contributions(survival: FloatArray, event: BoolArray) -> FloatArray:
    """Return how much of each patient falls in each bin, (n, 10); every row sums to 1.

    An event falls in the bin of S(z). A censored patient is spread over where S may end up below S(z) = s in bin k:
    (s - k/10) / s in that bin and 0.1 / s in each lower one; s = 0 puts all of it in the first bin.
    """
    edges = np.arange(N_BINS) / N_BINS
    # searchsorted against the very edges decides what "on an edge" means; s * 10 would round .3 down to bin 2.
    own = np.searchsorted(edges, survival, side="right") - 1
    n = len(survival)
    rows = np.arange(n)
    out = np.zeros((n, N_BINS))
    safe = np.where(survival > 0, survival, 1.0)
    out[:] = np.where((edges < edges[own][:, None]) & ~event[:, None], (1 / N_BINS) / safe[:, None], 0.0)
    share = np.where(survival > 0, (survival - edges[own]) / safe, 1.0)
    out[rows, own] = np.where(event, 1.0, share)
    return out


def divergence(bins: FloatArray) -> FloatArray:
    """Return sum_b P(b) ln(P(b) / 0.1) along the last axis."""
    from scipy.special import xlogy

    return np.asarray(xlogy(bins, bins * N_BINS).sum(axis=-1))


def survival_at_own_time(
    y: Any, curves: Any, convention: Convention, y_train: Any | None
) -> tuple[FloatArray, BoolArray]:
    """Return S(z_i | x_i) as D-calibration reads it, and the events, in the order of ``y``."""
    time, event = unpack(y)
    nodes = paper_nodes(convention, y_train)
    own = time if nodes is None else node_after(nodes, time)
    return as_curves(curves, len(time)).at_own(own), event


def d_calibration(
    y: Any,
    curves: Any,
    *,
    sample_weight: npt.ArrayLike | None = None,
    convention: Convention = "default",
    y_train: Any | None = None,
) -> DCalibration:
    """Test whether S(z|x) is uniform over patients, as it is for a perfect model (Haider et al., 2020).

    Bins are [k/10, (k+1)/10), the last one closed. A censored patient is spread over the bins where the event may
    still fall. Weights count as copies: the test takes their sum for the number of patients.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.
    convention : {"default", "paper"}, default "default"
        ``"default"`` reads S(z). ``"paper"`` projects on the times in ``y_train`` and reads the first node strictly
        after z.
    y_train : outcome or None, default None
        Outcome of the training part, which the paper's convention needs.

    Returns
    -------
    DCalibration
        The histogram and the test.
    """
    y, predicted, counts = counted(y, curves, sample_weight)
    survival, event = survival_at_own_time(y, predicted, convention, y_train)
    weight = check_sample_weight(counts, len(event))
    from scipy.special import chdtrc

    bins = weight @ bin_contributions(survival, event) / weight.sum()
    score = float(((bins - 1 / N_BINS) ** 2).sum())
    statistic = float(score * N_BINS * weight.sum())
    return DCalibration(bins, score, statistic, float(chdtrc(N_BINS - 1, statistic)))


def ddc(
    y: Any,
    curves: Any,
    *,
    sample_weight: npt.ArrayLike | None = None,
    convention: Convention = "default",
    y_train: Any | None = None,
) -> float:
    """Return the distributional divergence for calibration: Kullback-Leibler from the D-calibration bins to flat.

    DDC = sum_b P(b) ln(P(b) / 0.1), 0 for a flat histogram and at most ln 10. A perfect model does not reach 0 on a
    finite cohort: :func:`ddc_floor` says what it would score.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.
    convention : {"default", "paper"}, default "default"
        How S(z) is read; see :func:`d_calibration`.
    y_train : outcome or None, default None
        Outcome of the training part, which the paper's convention needs.

    Returns
    -------
    float
        Between 0 and ln 10.
    """
    return float(
        divergence(d_calibration(y, curves, sample_weight=sample_weight, convention=convention, y_train=y_train).bins)
    )


def ddc_floor(y: Any, curves: Any, *, n_simulations: int = 200, random_state: int = 0) -> float:
    """Return the mean DDC that these curves would score if they were the truth, on a cohort of this size.

    It is the ``floor`` of :func:`evaluate`: outcomes are drawn from the model's own curves and censored as ``y`` was.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    n_simulations : int, default 200
        How many cohorts to simulate.
    random_state : int, default 0
        Seed.

    Returns
    -------
    float
        The mean DDC of the simulated cohorts.
    """
    if n_simulations < 1:
        raise ValueError(f"n_simulations is {n_simulations}, but at least 1 is needed.")
    outcome, predicted, _ = counted(y, curves, None)
    setting = Setting(outcome, predicted)
    return float(
        np.mean([ddc(drawn, predicted) for drawn in drawn_outcomes(setting, None, n_simulations, random_state)])
    )


def _prepare(setting: Setting) -> Prepared:
    own, event = survival_at_own_time(setting.y, setting.curves, setting.convention, setting.y_train)
    bins = bin_contributions(own, event)[setting.cohort.order]

    def values(weighting: Weighting) -> FloatArray:
        return divergence(weighting.weight @ bins / weighting.weight.sum(axis=1, keepdims=True))

    return Prepared(values)


DDC = register_metric(
    Metric(
        name="DDC",
        aspect="calibration",
        better="lower",
        meaning="Distance between the spread of the predicted survival at the patients' own times and an even one.",
        convention="ten bins [k/10, (k+1)/10); censored patients spread; natural logarithm; S(z)",
        paper="ten bins [k/10, (k+1)/10); censored patients spread; natural logarithm; first node after z",
        prepare=_prepare,
        null=True,
    )
)
