"""How the horizon map is fitted: a penalised, weighted likelihood over all horizons at once."""

from __future__ import annotations

import numpy as np

from dcsurv.nonparametric import LOWEST_CENSORING, censoring_curve
from dcsurv.target import BoolArray, FloatArray, IntArray, make_outcome

# How much shift and slope are drawn to those of the neighbouring horizons.
_SMOOTH_SHIFT, _SMOOTH_SLOPE = 1.0, 10.0
_LOG_HAZARDS = (-30.0, 6.0)
_NEWTON_STEPS = 100
# A curve is cut in about this many pieces before a map that bends it is worked into its nodes.
_PIECES = 256


def known_weights(
    time: FloatArray, event: BoolArray, horizons: FloatArray, weight: FloatArray, groups: IntArray | None = None
) -> FloatArray:
    """Return inverse-probability weights of the patients whose state at each horizon is known, (m, n).

    1/G(z-) for an event by the horizon, 1/G(t-) for those known to be free of it then, 0 for those censored before. Who
    is censored at the very horizon is known to be free of it: where a study ends for all at once, these are all who are
    left, and without them everybody would seem to have had the event. With groups, G is that of a patient's own, and a
    group of which less than 5 % could be followed so far has no weight; without, no weight exceeds 20.
    """
    scaled = weight / weight[weight > 0].mean()
    out = np.zeros((len(horizons), len(time)))
    labels = np.zeros(len(time), dtype=np.int64) if groups is None else groups
    for label in np.unique(labels[weight > 0]):
        rows = labels == label
        z, d, own = time[rows], event[rows], scaled[rows]
        g = censoring_curve(make_outcome(z, d), sample_weight=weight[rows])
        case = np.where(d, own / np.maximum(g.before(z), LOWEST_CENSORING), 0.0)
        reached = g.before(horizons)[:, None]
        free = own / np.maximum(reached, LOWEST_CENSORING)
        counts = True if groups is None else reached >= LOWEST_CENSORING
        out[:, rows] = np.where(known_free(z, d, horizons), free, case) * counts
    return out


def known_free(time: FloatArray, event: BoolArray, horizons: FloatArray) -> BoolArray:
    """Return who is known to be free of the event at each horizon, (m, n); also who is censored at that very time."""
    at = horizons[:, None]
    out: BoolArray = (time > at) | ((time == at) & ~event)
    return out


def fit_shift_and_tilt(
    log_hazard: FloatArray, center: FloatArray, happened: BoolArray, weight: FloatArray, prior: float
) -> tuple[FloatArray, FloatArray]:
    """Return shift and tilt at m horizons: log H' = log H + shift + tilt (log H - center), all (m, n) or (m,).

    Maximises the weighted likelihood of "event by the horizon", less penalties on shift and tilt and on their
    differences between neighbouring horizons, by Fisher's scoring. The problem is concave.
    """
    m = len(center)
    away = log_hazard - center[:, None]
    rough = np.diff(np.eye(m), axis=0)
    rough = rough.T @ rough
    penalty = np.zeros((2 * m, 2 * m))
    penalty[:m, :m] = _SMOOTH_SHIFT * rough
    penalty[m:, m:] = _SMOOTH_SLOPE * rough
    penalty += prior / m * np.eye(2 * m)
    at = np.arange(m)

    def mapped(theta: FloatArray) -> FloatArray:
        return np.exp(np.clip(log_hazard + theta[:m, None] + theta[m:, None] * away, *_LOG_HAZARDS))

    def objective(theta: FloatArray, hazard: FloatArray) -> float:
        likelihood = np.where(happened, np.log(-np.expm1(-hazard)), -hazard)
        return float((weight * likelihood).sum() - 0.5 * theta @ penalty @ theta)

    theta = np.zeros(2 * m)
    hazard = mapped(theta)
    value = objective(theta, hazard)
    for _ in range(_NEWTON_STEPS):
        odds = hazard / np.expm1(hazard)  # derivative of log(1 - exp(-H)) in log H
        score = weight * np.where(happened, odds, -hazard)
        information = weight * hazard * odds
        curvature = penalty.copy()
        curvature[at, at] += information.sum(axis=1)
        curvature[at, m + at] += (information * away).sum(axis=1)
        curvature[m + at, at] = curvature[at, m + at]
        curvature[m + at, m + at] += (information * away**2).sum(axis=1)
        gradient = np.concatenate([score.sum(axis=1), (score * away).sum(axis=1)]) - penalty @ theta
        step = np.linalg.solve(curvature, gradient)
        for _ in range(30):  # halve until it helps
            tried = mapped(theta + step)
            better = objective(theta + step, tried)
            if better >= value:
                break
            step = step / 2
        else:
            break
        theta, hazard, value = theta + step, tried, better
        if np.abs(step).max() < 1e-8:
            break
    return theta[:m], theta[m:]


def refined(nodes: FloatArray, horizons: FloatArray) -> FloatArray:
    """Return the nodes with times between them, equally spaced, and the horizons that lie among them."""
    knots = nodes if nodes[0] == 0 else np.concatenate([[0.0], nodes])
    pieces = max(1, -(-_PIECES // len(knots)))
    share = np.arange(pieces) / pieces
    between = (knots[:-1, None] + np.diff(knots)[:, None] * share).ravel()
    times = np.union1d(np.concatenate([between, nodes]), horizons[(horizons > 0) & (horizons < nodes[-1])])
    out: FloatArray = times if nodes[0] == 0 else times[1:]
    return out
