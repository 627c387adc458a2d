"""Concordance: is the patient whose event comes first also predicted to be worse off?"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves
from dcsurv.grid import Convention
from dcsurv.messages import plural
from dcsurv.metrics.catalogue import Metric, register_metric
from dcsurv.metrics.censoring import Censoring, CensoringModel, CensoringWeights, resolve_follow_up
from dcsurv.metrics.inputs import SortedCohort, check_tolerance, counted, node_before, paper_nodes, warn
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import FloatArray, IntArray, check_outcome, check_sample_weight

Ties: TypeAlias = Literal["adjusted", "antolini"]

# Survival values of a block of events stay in the processor's cache: about this many numbers at a time.
_BLOCK = 1 << 17


class ConcordanceTd:
    """Antolini's concordance, prepared for any number of weightings of the same patients and curves."""

    def __init__(
        self,
        cohort: SortedCohort,
        curves: SurvivalCurves,
        *,
        ties: Ties = "adjusted",
        nodes: FloatArray | None = None,
        copies: bool = False,
    ) -> None:
        if ties not in get_args(Ties):
            raise ValueError(f"ties is {ties!r}, but 'adjusted' or 'antolini' is expected.")
        self.cohort = cohort
        self.curves = curves[cohort.order]
        self.adjusted = ties == "adjusted"
        self.nodes = nodes
        self.copies = copies
        self.rows: IntArray = np.flatnonzero(cohort.event)
        self.tie_start = cohort.start[cohort.group[self.rows]]
        self.tie_end = cohort.start[cohort.group[self.rows] + 1]

    def once(self, weight: FloatArray) -> float:
        """Return the index under one weighting, (n,), without forming pairs."""
        from dcsurv.metrics._kernels import concordant_weight

        cohort = self.cohort
        concordant = np.empty(len(self.rows))
        for some, first, survival in self._blocks():
            concordant_weight(
                survival, first, self.rows[some], self.tie_start[some], self.tie_end[some],
                cohort.event, weight, self.adjusted, concordant[some],
            )  # fmt: skip
        own = weight[self.rows]
        pairs = float(own @ self._comparable(weight[None, :])[0])
        # Differences of running sums of weights may leave a rounding error where there is no pair; counts do not.
        exist = self._comparable(np.ones((1, len(weight)))).any()
        return _share(float(own @ concordant), pairs if exist else 0.0)

    def resampled(self, counts: FloatArray) -> FloatArray:
        """Return the index for each resample, given how often each patient was drawn, (B, n) -> (B,).

        A patient drawn twice makes no pair with its copy, which would count as ranked rightly, unless ``copies`` asks
        for what a loop over resampled rows gives, as in the paper.
        """
        from dcsurv.metrics._kernels import concordance_rows

        cohort = self.cohort
        # float32 holds these sums exactly: they are multiples of 1/2 and far below 2**23.
        drawn = np.ascontiguousarray(counts.T, dtype=np.float32)
        concordant = np.zeros(len(counts))
        for some, first, survival in self._blocks():
            indicator = np.empty(survival.shape, dtype=np.float32)
            concordance_rows(
                survival, first, self.rows[some], self.tie_start[some], self.tie_end[some],
                cohort.event, self.adjusted, indicator,
            )  # fmt: skip
            against = (indicator @ drawn[first:]).astype(np.float64)
            concordant += np.einsum("kb,bk->b", against, counts[:, self.rows[some]])
        own = counts[:, self.rows]
        comparable = np.einsum("bk,bk->b", own, self._comparable(counts))
        if self.adjusted and self.copies:
            copies = (own * (own - 1)).sum(axis=1)
            concordant += copies
            comparable += copies
        return np.divide(concordant, comparable, out=np.full(len(counts), np.nan), where=comparable > 0)

    def _blocks(self) -> Any:
        """Yield runs of events with S(z_i | x_j) for the patients that can be compared with them."""
        cohort = self.cohort
        when = cohort.time if self.nodes is None else node_before(self.nodes, cohort.time)
        at = 0
        while at < len(self.rows):
            first = int(self.tie_start[at])
            stop = at + max(1, min(_BLOCK // (len(cohort) - first), 64))
            some = slice(at, min(stop, len(self.rows)))
            yield some, first, self.curves.evaluate_rows(when[self.rows[some]], first)
            at = stop

    def _comparable(self, weight: FloatArray) -> FloatArray:
        """Return the weight of the patients that each event can be compared with, (B, events)."""
        cohort = self.cohort
        running = np.concatenate([np.zeros((len(weight), 1)), np.cumsum(weight, axis=1)], axis=1)
        events = np.concatenate([np.zeros((len(weight), 1)), np.cumsum(weight * cohort.event, axis=1)], axis=1)
        later = running[:, -1:] - running[:, self.tie_end]
        tied = running[:, self.tie_end] - running[:, self.tie_start]
        tied_events = events[:, self.tie_end] - events[:, self.tie_start]
        if self.adjusted:
            return later + 2 * (tied - tied_events) + tied_events - weight[:, self.rows]
        return later + (tied - tied_events)


def _prepare(setting: Setting) -> Prepared:
    prepared = ConcordanceTd(setting.cohort, setting.curves, nodes=setting.nodes, copies=setting.paper)

    def values(weighting: Weighting) -> FloatArray:
        if weighting.resampled:
            return prepared.resampled(weighting.weight)
        return np.array([prepared.once(row) for row in weighting.weight])

    return Prepared(values)


C_TD = register_metric(
    Metric(
        name="C-td",
        aspect="discrimination",
        better="higher",
        meaning="Share of pairs of patients in which the one with the earlier event was predicted to be worse off; "
        "0.5 is guessing.",
        convention="Antolini; ties adjusted (pycox adj_antolini); S(z)",
        paper="Antolini; ties adjusted (pycox adj_antolini); projected on training times, last node at or before z",
        prepare=_prepare,
        decides=True,
    )
)


def concordance_index_td(
    y: Any,
    curves: Any,
    *,
    ties: Ties = "adjusted",
    sample_weight: npt.ArrayLike | None = None,
    convention: Convention = "default",
    y_train: Any | None = None,
) -> float:
    """Return the time-dependent concordance index C-td of Antolini et al. (2005).

    C-td = P( S(z_i | x_i) < S(z_i | x_j)  |  z_i < z_j, d_i = 1 )

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    ties : {"adjusted", "antolini"}, default "adjusted"
        ``"adjusted"`` (pycox ``adj_antolini``): tied predictions count 1/2; at equal times two events count 1 if
        their predictions tie and 1/2 if not, an event and a censored patient are compared as if the event came
        first. ``"antolini"``: tied predictions count nothing, two events at the same time are not compared.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; a pair has the product of its patients' weights. None: all count the same.
    convention : {"default", "paper"}, default "default"
        ``"default"`` reads S(z) between nodes. ``"paper"`` projects the curves on the times in ``y_train`` and
        reads the last of these at or before z (as pycox does).
    y_train : outcome or None, default None
        Outcome of the training part, which the paper's convention needs.

    Returns
    -------
    float
        A number between 0 and 1; 1/2 is guessing.

    Notes
    -----
    Takes O(n x events) comparisons, vectorised, and O(n x nodes) memory.

    References
    ----------
    L. Antolini, P. Boracchi, E. Biganzoli: A time-dependent discrimination index for survival data.
    Statistics in Medicine 24 (2005).

    Examples
    --------
    >>> from dcsurv import SurvivalCurves, make_outcome
    >>> from dcsurv.metrics import concordance_index_td
    >>> y = make_outcome(time=[1, 2, 3], event=[1, 1, 0])
    >>> curves = SurvivalCurves([1, 2, 3], [[0.5, 0.2, 0.1], [0.9, 0.8, 0.7], [0.8, 0.6, 0.5]])
    >>> round(concordance_index_td(y, curves), 3)  # of three pairs, the last two patients are in the wrong order
    0.667
    """
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = SortedCohort(y)
    prepared = ConcordanceTd(cohort, predicted, ties=ties, nodes=paper_nodes(convention, y_train))
    return prepared.once(cohort.weights(counts)[0])


def concordance_index_harrell(
    y: Any, risk: npt.ArrayLike, *, tied_tol: float = 1e-8, sample_weight: npt.ArrayLike | None = None
) -> float:
    """Return Harrell's C for one risk score per patient (higher = earlier event), in O(n log n).

    Pairs: z_i < z_j with d_i = 1, and an event against a patient censored at the same time. Scores that differ by
    at most ``tied_tol`` count 1/2. The same as scikit-survival's ``concordance_index_censored``.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    risk : array-like of float
        Their scores, (n,), such as minus ``curves.rmst()``.
    tied_tol : float, default 1e-08
        Scores that differ by at most this are tied.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    float
        A number between 0 and 1; 1/2 is guessing.

    Examples
    --------
    >>> from dcsurv import make_outcome
    >>> from dcsurv.metrics import concordance_index_harrell
    >>> concordance_index_harrell(make_outcome([1, 2, 3], [1, 1, 0]), risk=[0.9, 0.5, 0.1])
    1.0
    """
    cohort, score, weight = _scored(y, risk, sample_weight)
    return _ranked(cohort, score, tied_tol, weight, weight * cohort.event)


def concordance_index_uno(
    y: Any,
    risk: npt.ArrayLike,
    *,
    y_train: Any | None = None,
    X: Any | None = None,
    censoring: Censoring = "auto",
    tau: float | None = None,
    tied_tol: float = 1e-8,
    censoring_weights: CensoringWeights = "before",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Return Uno's C: Harrell's with each event weighted by 1/G(z)^2, so that censoring does not bias it.

    Where G depends on the patient, a pair (i, j) is weighted by 1/(G(z_i | x_i) G(z_i | x_j)), and counts if at least
    5 % of either's group could be followed beyond z_i.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    risk : array-like of float
        Their scores, (n,), such as minus ``curves.rmst()``.
    y_train : outcome or None, default None
        Outcome from which one censoring curve G for all is estimated; None: ``y`` itself.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`brier_score`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`brier_score`.
    tau : float or None, default None
        Only events before tau are counted; None: all.
    tied_tol : float, default 1e-08
        Scores that differ by at most this are tied.
    censoring_weights : {"before", "at"}, default "before"
        ``"before"`` takes G(z-); ``"at"`` takes G(z) and equals scikit-survival's ``concordance_index_ipcw``.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    float
        A number between 0 and 1; 1/2 is guessing.

    Notes
    -----
    Events after the time at which G has run out are left out, with a warning that names it.
    """
    cohort, score, weight = _scored(y, risk, sample_weight)
    follow_up = resolve_follow_up(censoring, X, y, [np.asarray(risk, dtype=np.float64)], sample_weight)
    model = CensoringModel(cohort, y_train, censoring_weights, follow_up)
    estimate = model.estimate(weight[None, :])
    probability = estimate.at_events()[0]
    use = cohort.event if tau is None else cohort.event & (cohort.time < tau)
    lost = use & (probability <= 0)
    if lost.any():
        warn(
            f"Uno's C leaves out {plural(int(lost.sum()), 'event')} after {model.runs_out():g}, where the censoring "
            "weights run out."
        )
    use = use & ~lost
    if follow_up is None:
        event_weight = np.divide(weight, probability**2, out=np.zeros(len(cohort)), where=use)
        return _ranked(cohort, score, tied_tol, weight, event_weight)
    counts = model.counts(cohort.time)
    own = np.zeros(len(cohort), dtype=bool)
    for k, rows in enumerate(model.groups):
        own[rows] = counts[k, rows]
    # The partners of one group after the other, for which G at the event's time is the same.
    parts = []
    for k, rows in enumerate(model.groups):
        later = estimate.seen(k, cohort.time)[0]
        product = probability * later
        event_weight = np.divide(weight, product, out=np.zeros(len(cohort)), where=use & own & counts[k] & (later > 0))
        partner = np.zeros(len(cohort))
        partner[rows] = weight[rows]
        parts.append(_weights_of_pairs(cohort, score, tied_tol, partner, event_weight))
    concordant, tied, pairs = np.sum(parts, axis=0)
    return _share(concordant + 0.5 * tied, pairs)


def _scored(
    y: Any, risk: npt.ArrayLike, sample_weight: npt.ArrayLike | None
) -> tuple[SortedCohort, FloatArray, FloatArray]:
    """Check outcome, scores and weights; return those that count, sorted by time."""
    outcome = check_outcome(y)
    score = np.asarray(risk, dtype=np.float64)
    if score.shape != (len(outcome),):
        raise ValueError(
            f"risk has shape {score.shape}, but one score per patient, ({len(outcome)},), is expected. For curves, "
            "use concordance_index_td or pass minus curves.rmst()."
        )
    if not np.isfinite(score).all():
        raise ValueError("risk holds NaN or infinite scores; every patient needs a finite one.")
    weight = check_sample_weight(sample_weight, len(outcome))
    keep = weight > 0
    cohort = SortedCohort(outcome[keep])
    return cohort, score[keep][cohort.order], weight[keep][cohort.order]


def _ranked(
    cohort: SortedCohort, score: FloatArray, tied_tol: float, weight: FloatArray, event_weight: FloatArray
) -> float:
    concordant, tied, pairs = _weights_of_pairs(cohort, score, tied_tol, weight, event_weight)
    return _share(concordant + 0.5 * tied, pairs)


def _weights_of_pairs(
    cohort: SortedCohort, score: FloatArray, tied_tol: float, weight: FloatArray, event_weight: FloatArray
) -> tuple[float, float, float]:
    """Return the weight of concordant, tied and all pairs: a partner's weight times the event's."""
    from dcsurv.metrics._kernels import ranked_weight

    check_tolerance(tied_tol)
    ascending = np.sort(score)
    slot = np.empty(len(score), dtype=np.int64)
    slot[np.argsort(score, kind="stable")] = np.arange(len(score))
    low = np.searchsorted(ascending, score - tied_tol, side="left")
    high = np.searchsorted(ascending, score + tied_tol, side="right")
    concordant, tied, pairs = ranked_weight(low, high, slot, cohort.time, cohort.event, weight, event_weight)
    return concordant, tied, pairs


def _share(concordant: float, pairs: float) -> float:
    if pairs <= 0:
        raise ValueError(
            "no two patients can be compared: that takes an event and a patient observed for longer. Use more "
            "patients, or check the event column."
        )
    return concordant / pairs
