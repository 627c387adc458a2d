"""Cox's partial likelihood with Efron's rule for ties: value, slope and curvature, for Newton's steps.

Patients are sorted once, the last time first, so that a risk set is everybody up to a row and its sums are running
sums. Ties are summed in closed form: nothing here runs over patients or times in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dcsurv.target import FloatArray, IntArray

# Running sums and products are made for this many numbers at a time, which stay in the processor's cache.
_BLOCK_NUMBERS = 131_072
# exp of more would overflow in sums and squares.
_LARGEST = 150.0


@dataclass(frozen=True)
class Point:
    """The partial likelihood at one place.

    Attributes
    ----------
    value
        Its logarithm.
    risk
        Weight times relative risk of each patient, (n,).
    expected
        The events that the model expects of each patient, (n,).
    tied_risk
        Sum of ``risk`` over the events at each time, (m,).
    curvature
        Σ d / S0², the same times the share of ties that have left, and times its square, at each time, (3, m).
    """

    value: float
    risk: FloatArray
    expected: FloatArray
    tied_risk: FloatArray
    curvature: FloatArray


class PartialLikelihood:
    """The log partial likelihood of a table of terms.

    Parameters
    ----------
    terms : array of float
        One row per patient; centred columns keep the curvature exact.
    time : array of float
        Observed times.
    event : array of bool
        Whether the event was observed.
    weight : array of float
        One positive weight per patient.
    """

    def __init__(self, terms: FloatArray, time: FloatArray, event: npt.NDArray[np.bool_], weight: FloatArray) -> None:
        order = np.argsort(-time, kind="stable")
        time, event = time[order], event[order]
        self.terms = np.ascontiguousarray(terms[order])
        self.weight = weight[order]
        self.observed = self.weight * event
        self.at = np.flatnonzero(event)
        # Events at one time are neighbours; `start` is the first of each, `tied` says whose time each event shares.
        when = time[self.at]
        new = np.r_[True, when[1:] != when[:-1]]
        self.start = np.flatnonzero(new)
        self.tied: IntArray = np.cumsum(new) - 1
        ties = np.diff(np.r_[self.start, len(when)])
        self.share = (np.arange(len(when)) - self.start[self.tied]) / ties[self.tied]
        self.mass = (np.add.reduceat(self.weight[self.at], self.start) / ties)[self.tied]
        self.several = np.flatnonzero(ties > 1)
        # How many patients are at risk at each time, and how many of the times lie after each patient's own.
        self.at_risk: IntArray = np.searchsorted(-time, -when[self.start], side="right")
        self.later: IntArray = np.searchsorted(-when[self.start], -time, side="left")

    def evaluate(self, coef: FloatArray, linear: FloatArray) -> Point:
        """Return the likelihood where the sorted patients have these log risks."""
        log_risk = np.clip(linear - linear.mean(), -_LARGEST, _LARGEST)
        risk = self.weight * np.exp(log_risk)
        of_ties = np.add.reduceat(risk[self.at], self.start)
        total = np.cumsum(risk)[self.at_risk - 1][self.tied] - self.share * of_ties[self.tied]
        value = float(self.observed @ log_risk - self.mass @ np.log(total))
        hazard = self.mass / total
        # The hazard summed from the first time up to each; one more entry for those who leave before any event.
        summed = np.append(np.cumsum(np.add.reduceat(hazard, self.start)[::-1])[::-1], 0.0)
        exposure = summed[self.later]
        # Those with the event are there with a share of themselves only.
        exposure[self.at] -= np.add.reduceat(self.share * hazard, self.start)[self.tied]
        steep = hazard / total
        bend = np.stack([steep, self.share * steep, self.share**2 * steep])
        return Point(value, risk, risk * exposure, of_ties, np.add.reduceat(bend, self.start, axis=1))

    def slope(self, point: Point) -> FloatArray:
        """Return the derivative with respect to the coefficients, (p,)."""
        out: FloatArray = (self.observed - point.expected) @ self.terms
        return out

    def information(self, point: Point) -> FloatArray:
        """Return minus the second derivative with respect to the coefficients, (p, p)."""
        n, p = self.terms.shape
        out = np.zeros((p, p))
        before = np.zeros(p)  # sum of the rows of the blocks before this one
        step = max(_BLOCK_NUMBERS // p, 64)
        for first in range(0, n, step):
            rows = slice(first, min(first + step, n))
            block = self.terms[rows]
            out += (point.expected[rows, None] * block).T @ block
            weighted = point.risk[rows, None] * block
            weighted[0] += before
            running = np.cumsum(weighted, axis=0)
            before = running[-1]
            here = slice(*np.searchsorted(self.at_risk, [first, rows.stop], side="right"))
            sums = running[self.at_risk[here] - 1 - first]
            out -= (point.curvature[0, here, None] * sums).T @ sums
            several = self.several[slice(*np.searchsorted(self.several, [here.start, here.stop]))]
            if len(several):
                of_ties = self._of_ties(point, several)
                across = (point.curvature[1, several, None] * sums[several - here.start]).T @ of_ties
                out += across + across.T - (point.curvature[2, several, None] * of_ties).T @ of_ties
        return out

    def _of_ties(self, point: Point, times: IntArray) -> FloatArray:
        """Return the sums of risk times terms over the events at some times with several, (times, p)."""
        events = np.flatnonzero(np.isin(self.tied, times))
        rows = self.at[events]
        start = np.flatnonzero(np.r_[True, np.diff(self.tied[events]) > 0])
        out: FloatArray = np.add.reduceat(point.risk[rows, None] * self.terms[rows], start, axis=0)
        return out
