"""How much each family of an ensemble counts: the weights that make the Brier score of the mean smallest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dcsurv.calibration.horizon_fit import known_free, known_weights
from dcsurv.target import FloatArray, IntArray, Outcome

# Times at which the mean of the families is compared with what happened.
_HORIZONS = 20
# How much squared differences between weights and their prior count beside the squared errors of the patients: weights
# found on few events are noise.
_STRENGTH = 0.5
# A family that counts less than this costs more than it brings.
_LEAST = 0.02
# How much a sum of weights other than one costs, in units of the score's own curvature.
_SUM_TO_ONE = 1e6


def stacking_weights(
    y: Outcome,
    nodes: FloatArray,
    curves: Sequence[npt.NDArray[np.floating]],
    prior: Sequence[float],
    weight: FloatArray | None = None,
    groups: IntArray | None = None,
) -> FloatArray:
    r"""Return non-negative weights that sum to one, one per family.

    Minimises, over patients whose state at a horizon is known, weighted by the inverse probability of being known,

    .. math:: \sum_i \frac{1}{m} \sum_{t} w_i(t) \left(1[T_i > t] - \sum_f a_f S_f(t | x_i)\right)^2
        + \tfrac{1}{2} \sum_f (a_f - p_f)^2

    over m quantiles t of the event times: a quadratic programme. The prior p counts as much as the squared errors of a
    few patients, so that it decides where events are few and fades where they are many.

    Parameters
    ----------
    y : structured array
        Outcomes of n patients.
    nodes : array of shape (T,)
        Times of the curves.
    curves : sequence of array of shape (n, T)
        Out-of-fold survival of each family.
    prior : sequence of float
        What the weights are drawn to, up to a factor.
    weight : array or None, default None
        One weight per patient.
    groups : array of int or None, default None
        Which patients were followed alike; None: all.

    Returns
    -------
    array of shape (families,)
        The weights; a family that would hardly count has 0.
    """
    own = np.ones(len(y)) if weight is None else weight
    time, event = np.ascontiguousarray(y["time"]), np.ascontiguousarray(y["event"])
    expected = np.asarray(prior, dtype=np.float64) / np.sum(prior)
    events = time[event & (own > 0)]
    quantiles = np.quantile(events, (np.arange(_HORIZONS) + 0.5) / _HORIZONS)
    at = np.unique(np.minimum(np.searchsorted(nodes, quantiles), len(nodes) - 1))
    root = np.sqrt(known_weights(time, event, nodes[at], own, groups).T / len(at))
    alive = (known_free(time, event, nodes[at]).T * root).ravel()
    columns = np.stack([(one[:, at] * root).ravel() for one in curves], axis=1)
    gram, moments = columns.T @ columns, columns.T @ alive
    found = _simplex(gram + _STRENGTH * np.eye(len(curves)), moments + _STRENGTH * expected)
    found = np.where(found < _LEAST, 0.0, found)
    out: FloatArray = found / found.sum()
    return out


def _simplex(quadratic: FloatArray, linear: FloatArray) -> FloatArray:
    """Return the a >= 0 with sum 1 that minimises a'Qa - 2 b'a."""
    cost = _SUM_TO_ONE * np.trace(quadratic)
    root = np.linalg.cholesky(quadratic + cost)
    from scipy.optimize import nnls

    found, _ = nnls(root.T, np.linalg.solve(root, linear + cost))
    out: FloatArray = found / found.sum()
    return out
