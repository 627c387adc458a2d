"""Cumulative-dynamic AUC: at time t, are those who had the event by t predicted to be worse off than the rest?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves
from dcsurv.grid import Convention
from dcsurv.metrics.catalogue import Metric, register_metric
from dcsurv.metrics.censoring import (
    Censoring,
    CensoringEstimate,
    CensoringModel,
    CensoringWeights,
    keep_usable,
    resolve_follow_up,
)
from dcsurv.metrics.inputs import SortedCohort, check_times, check_tolerance, counted, node_after, paper_nodes
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import FloatArray, IntArray

DEFAULT_TOLERANCE = 1e-8
PAPER_TOLERANCE = 1e-3
_N_TIMES = 50
# CDAUC looks from when this share of the events has happened to when this share of the patients is still there.
_FIRST_EVENTS, _STILL_THERE = 0.05, 0.1


@dataclass(frozen=True)
class AucResult:
    """AUC(t) at each time and its summary over time.

    Attributes
    ----------
    times : array of float
        The times used, (m,).
    auc : array of float
        AUC at these times, (m,).
    mean : float
        Its average over time (CDAUC).

    Examples
    --------
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import cumulative_dynamic_auc
    >>> cohort = simulate("independent", 500)
    >>> found = cumulative_dynamic_auc(cohort.y, cohort.truth, times=[2, 4, 6])
    >>> found.times
    array([2., 4., 6.])
    >>> len(found.auc), 0.6 < found.mean < 0.9
    (3, True)
    """

    times: FloatArray
    auc: FloatArray
    mean: float


class CumulativeDynamicAuc:
    """AUC over time, prepared for any number of weightings of the same patients, curves and times."""

    def __init__(
        self,
        curves: SurvivalCurves,
        times: FloatArray,
        censoring: CensoringModel,
        *,
        tied_tol: float,
        nodes: FloatArray | None = None,
    ) -> None:
        from dcsurv.metrics._kernels import ascending, ranked_column

        cohort = censoring.cohort
        self.cohort, self.times, self.censoring = cohort, times, censoring
        read_at = times if nodes is None else node_after(nodes, times)
        survival = np.ascontiguousarray(cohort.rows(curves, read_at), dtype=np.float64)
        n = len(cohort)
        self.columns: list[tuple[IntArray, IntArray, npt.NDArray[np.int8]]] = []
        order, spare = np.empty(n, np.int64), np.empty(n, np.int64)
        for t, row in zip(times, survival, strict=True):
            # Patients are sorted by time: those up to here have had their event or were censored.
            until = int(np.searchsorted(cohort.time, t, side="right"))
            patient, chain, kind = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int8)
            ascending(row, row.view(np.int64), order, spare)
            count = ranked_column(row, order, tied_tol, until, cohort.event, patient, chain, kind)
            self.columns.append((patient[:count], chain[:count], kind[:count]))

    def over_time(self, weight: FloatArray, estimate: CensoringEstimate | None = None) -> FloatArray:
        """Return AUC(t) under each weighting, (B, m); NaN where one has no case or no control."""
        from dcsurv.metrics._kernels import roc_area

        estimate = estimate or self.censoring.estimate(weight)
        out = np.empty((len(self.times), len(weight)))
        for t, (order, chain, kind), row in zip(self.times, self.columns, out, strict=True):
            case_weight, control_weight = estimate.at(t)
            roc_area(order, chain, kind, control_weight, case_weight, row)
        return out.T

    def mean(self, weight: FloatArray, auc: FloatArray) -> FloatArray:
        """Return AUC(t) averaged with the drop of the Kaplan-Meier curve up to each time as weight, (B,)."""
        survival = self.cohort.read(self.cohort.survival(weight), self.times)
        drop = -np.diff(np.concatenate([np.ones((len(weight), 1)), survival], axis=1), axis=1)
        drop = np.where(np.isnan(auc), 0.0, drop)
        total = drop.sum(axis=1)
        return np.divide(
            (drop * np.nan_to_num(auc)).sum(axis=1), total, out=np.full(len(weight), np.nan), where=total > 0
        )


def default_times(cohort: SortedCohort, *, paper: bool = False) -> FloatArray:
    """Return fifty equal steps over a range that does not depend on how many patients there are, the end left out.

    From the time by which a twentieth of the events has happened to the time at which a tenth of the patients is still
    under observation; the paper's go from the first to the last event, which moves with the size of the cohort.
    """
    events = cohort.time[cohort.event]
    first, last = events[0], events[-1]
    if not paper:
        first, last = np.quantile(events, _FIRST_EVENTS), np.quantile(cohort.time, 1 - _STILL_THERE)
    return np.linspace(first, last, _N_TIMES + 1)[:-1] if first < last else np.array([first])


def _prepare(setting: Setting) -> Prepared:
    times = keep_usable(default_times(setting.cohort, paper=setting.paper), setting.censoring, what="AUC")
    tolerance = PAPER_TOLERANCE if setting.paper else DEFAULT_TOLERANCE
    prepared = CumulativeDynamicAuc(setting.curves, times, setting.censoring, tied_tol=tolerance, nodes=setting.nodes)

    def values(weighting: Weighting) -> FloatArray:
        return prepared.mean(weighting.weight, prepared.over_time(weighting.weight, weighting.censoring))

    return Prepared(values, times)


CDAUC = register_metric(
    Metric(
        name="CDAUC",
        aspect="discrimination",
        better="higher",
        meaning="How well patients with the event by a time are told from those without it, averaged over time; 0.5 is "
        "guessing.",
        convention="tie tolerance 1e-8; cases weighted by 1/G(z-); averaged over the Kaplan-Meier drop, "
        "from 5 % of the events to 10 % still at risk; S(t)",
        paper="tie tolerance 1e-3; cases weighted by 1/G(z), G from the test set; first node after t",
        prepare=_prepare,
        weighted=True,
        decides=True,
    )
)


def cumulative_dynamic_auc(
    y: Any,
    curves: Any,
    *,
    times: npt.ArrayLike | None = None,
    y_train: Any | None = None,
    X: Any | None = None,
    censoring: Censoring = "auto",
    tied_tol: float | None = None,
    censoring_weights: CensoringWeights | None = None,
    sample_weight: npt.ArrayLike | None = None,
    convention: Convention = "default",
) -> AucResult:
    """Return the cumulative-dynamic AUC(t) and its average over time (CDAUC).

    AUC(t) = P( S(t | x_i) < S(t | x_j)  |  z_i <= t, d_i = 1, z_j > t ), cases weighted by 1/G(z_i), and controls by
    1/G(t) where G depends on the patient.
    The summary averages AUC over the times with weights from the Kaplan-Meier curve S of ``y``: each time has the drop
    of S since the time before, the first one since 0, divided by 1 - S(last).

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    times : array-like of float or None, default None
        Where to compute it; None: fifty equal steps from the time by which 5 % of the events in ``y`` have happened to
        that at which 10 % of the patients are still under observation, a range that is the same in small and large
        cohorts; in the ``paper`` convention from the first to the last event.
    y_train : outcome or None, default None
        Outcome from which the censoring curve G is estimated; None: ``y`` itself. In the ``paper`` convention G
        always comes from ``y``, one for all, and ``y_train`` gives the times that curves are projected on.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`brier_score`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`brier_score`.
    tied_tol : float or None, default None
        Neighbouring survival values that differ by at most this are tied, and ties chain; None: 1e-8, paper 1e-3.
    censoring_weights : {"before", "at"} or None, default None
        ``"before"`` takes G(z-), ``"at"`` takes G(z) as scikit-survival does; None: ``"before"``, paper ``"at"``.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.
    convention : {"default", "paper"}, default "default"
        ``"default"`` reads S(t). ``"paper"`` reads the first projected node after t. The two must not be compared.

    Returns
    -------
    AucResult
        AUC(t) at the times used, and its average.

    Notes
    -----
    Times without cases, controls or censoring weight are left out with a warning that names the last one used.

    References
    ----------
    H. Uno et al.: Evaluating prediction rules for t-year survivors with censored regression models. JASA 102 (2007).
    """
    nodes = paper_nodes(convention, y_train)
    paper = nodes is not None
    follow_up = None if paper else resolve_follow_up(censoring, X, y, [curves], sample_weight)
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = SortedCohort(y)
    if tied_tol is not None:
        check_tolerance(tied_tol)
    else:
        tied_tol = PAPER_TOLERANCE if paper else DEFAULT_TOLERANCE
    weights: CensoringWeights = censoring_weights or ("at" if paper else "before")
    model = CensoringModel(cohort, None if paper else y_train, weights, follow_up)
    asked = default_times(cohort, paper=paper) if times is None else check_times(times)
    asked = keep_usable(asked, model, what="AUC")
    weight = cohort.weights(counts)
    prepared = CumulativeDynamicAuc(predicted, asked, model, tied_tol=tied_tol, nodes=nodes)
    auc = prepared.over_time(weight)
    return AucResult(asked, auc[0], float(prepared.mean(weight, auc)[0]))
