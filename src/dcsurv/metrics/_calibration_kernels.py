"""Compiled inner loops of calibration: regressions under many weightings, risks within strata, inverted curves."""

from __future__ import annotations

import numpy as np

from dcsurv._compile import compiled
from dcsurv.target import BoolArray, FloatArray, IntArray

_STEPS = 100


@compiled()
def first_at_or_below(table: FloatArray, level: FloatArray, out: IntArray) -> None:
    """Write for each column of a falling table, (K, n), the first row at or below a level; K where none is."""
    for i in range(len(level)):
        low = 0
        high = len(table)
        while low < high:
            middle = (low + high) // 2
            if table[middle, i] <= level[i]:
                high = middle
            else:
                low = middle + 1
        out[i] = low


@compiled()
def weighted_logistic(
    basis: FloatArray, outcome: FloatArray, weight: FloatArray, ridge: float, out: FloatArray
) -> None:
    """Fit logistic regressions by Newton's method and write the fitted probabilities.

    Parameters
    ----------
    basis
        Columns of the design, the first one constant, (n, k).
    outcome
        0 or 1, (n,).
    weight
        One weighting in each row, (B, n); a row without any weight is left as it is.
    ridge
        Penalty on the squared coefficients, divided by the number of patients with weight.
    out
        Receives the probabilities of all n patients, (B, n).
    """
    n, k = basis.shape
    beta, gradient, step = np.zeros(k), np.zeros(k), np.zeros(k)
    curvature = np.zeros((k, k))
    for b in range(len(weight)):
        row = weight[b]
        total = 0.0
        events = 0.0
        used = 0
        for i in range(n):
            if row[i] > 0.0:
                total += row[i]
                events += row[i] * outcome[i]
                used += 1
        if used == 0:
            continue
        penalty = ridge / used
        share = min(max(events / total, 1e-6), 1 - 1e-6)
        beta[:] = 0.0
        beta[0] = np.log(share / (1 - share))
        for _ in range(25):
            for r in range(k):
                gradient[r] = -penalty * beta[r]
                for c in range(k):
                    curvature[r, c] = penalty if r == c else 0.0
            for i in range(n):
                if row[i] > 0.0:
                    eta = 0.0
                    for c in range(k):
                        eta += basis[i, c] * beta[c]
                    fitted = 1.0 / (1.0 + np.exp(-eta))
                    mass = row[i] / total
                    miss = mass * (outcome[i] - fitted)
                    bend = mass * max(fitted * (1.0 - fitted), 1e-10)
                    for r in range(k):
                        gradient[r] += miss * basis[i, r]
                        for c in range(r + 1):
                            curvature[r, c] += bend * basis[i, r] * basis[i, c]
            _solve_symmetric(curvature, gradient, step)
            largest = 0.0
            for r in range(k):
                largest = max(largest, abs(step[r]))
            # A short leash: near separation Newton's step overshoots.
            short = min(1.0, 5.0 / max(largest, 1e-300))
            for r in range(k):
                beta[r] += short * step[r]
            if short * largest < 1e-9:
                break
        for i in range(n):
            eta = 0.0
            for c in range(k):
                eta += basis[i, c] * beta[c]
            out[b, i] = 1.0 / (1.0 + np.exp(-eta))


@compiled()
def _solve_symmetric(matrix: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Solve by Cholesky's factors, which overwrite the lower half of a positive definite matrix."""
    k = len(right)
    for r in range(k):
        for c in range(r + 1):
            value = matrix[r, c]
            for j in range(c):
                value -= matrix[r, j] * matrix[c, j]
            matrix[r, c] = np.sqrt(max(value, 1e-300)) if r == c else value / matrix[c, c]
    for r in range(k):
        value = right[r]
        for j in range(r):
            value -= matrix[r, j] * out[j]
        out[r] = value / matrix[r, r]
    for r in range(k - 1, -1, -1):
        value = out[r]
        for j in range(r + 1, k):
            value -= matrix[j, r] * out[j]
        out[r] = value / matrix[r, r]


@compiled()
def cloglog_regressions(x: FloatArray, outcome: FloatArray, weight: FloatArray, slopes: bool, out: FloatArray) -> None:
    """Regress an outcome on one column with the complementary log-log link, by Fisher scoring.

    Parameters
    ----------
    x
        The column, (n,).
    outcome
        0 or 1, (n,).
    weight
        One weighting in each row, (B, n).
    slopes
        Whether to write the slope beside a free intercept, or the intercept beside a slope of 1.
    out
        Receives one number per weighting, (B,); NaN where all have the same outcome or the fit runs away.
    """
    n = len(x)
    for b in range(len(weight)):
        row = weight[b]
        total = 0.0
        events = 0.0
        for i in range(n):
            total += row[i]
            events += row[i] * outcome[i]
        out[b] = np.nan
        if not (0.0 < events < total):
            continue
        centre = 0.0  # a centred column keeps intercept and slope apart
        for i in range(n):
            centre += row[i] / total * x[i] if slopes else 0.0
        intercept = centre
        slope = 1.0
        first = second = 0.0
        before = -np.inf
        for _ in range(_STEPS):
            g0 = g1 = h00 = h01 = h11 = likelihood = 0.0
            for i in range(n):
                if row[i] > 0.0:
                    away = x[i] - centre
                    eta = min(max(intercept + slope * away, -25.0), 3.0)
                    hazard = np.exp(eta)
                    stay = np.exp(-hazard)
                    rise = hazard * stay
                    spread = max((1.0 - stay) * stay, 1e-12)
                    mass = row[i] / total
                    likelihood += mass * (np.log(-np.expm1(-hazard)) if outcome[i] > 0.5 else -hazard)
                    pull = mass * (outcome[i] - 1.0 + stay) * rise / spread
                    bend = mass * rise * rise / spread
                    g0 += pull
                    g1 += pull * away
                    h00 += bend
                    h01 += bend * away
                    h11 += bend * away * away
            if likelihood < before - 1e-12:  # the step was too long: go half of it back
                first *= 0.5
                second *= 0.5
                intercept -= first
                slope -= second
                continue
            before = likelihood
            if slopes:
                determinant = h00 * h11 - h01 * h01
                if determinant <= 1e-14 * h00 * h00:  # all predictions are alike: there is no slope
                    break
                first = (h11 * g0 - h01 * g1) / determinant
                second = (h00 * g1 - h01 * g0) / determinant
            else:
                first, second = g0 / max(h00, 1e-300), 0.0
            if max(abs(first), abs(second)) < 1e-9:
                out[b] = slope if slopes else intercept
                break
            intercept += first
            slope += second


@compiled()
def stratified_risk(
    weight: FloatArray, by_risk: IntArray, run: IntArray, time: FloatArray, event: BoolArray, t: float, n_strata: int,
    out: FloatArray,
) -> None:  # fmt: skip
    """Average the Kaplan-Meier risk by a time over strata of predicted risk, under several weightings.

    Strata hold equal weight. If in one of them nobody is left under observation at t, although not all had the event,
    there are fewer strata.

    Parameters
    ----------
    weight
        (B, n), the patients sorted by time, events first.
    by_risk
        The order that sorts the patients by predicted risk, (n,).
    run
        Along that order, the number of the run of equal risks, which stay together, (n,).
    time, event
        Of the sorted patients, (n,).
    out
        (B,).
    """
    n = len(time)
    stratum = np.empty(n, np.int64)
    mass, at_risk, stay = np.empty(n_strata), np.empty(n_strata), np.empty(n_strata)
    for b in range(len(weight)):
        row = weight[b]
        total = 0.0
        for i in range(n):
            total += row[i]
        for count in range(n_strata, 0, -1):
            for k in range(n_strata):
                mass[k] = 0.0
                stay[k] = 1.0
            before = 0.0
            start = 0
            while start < n:
                end = start
                own = 0.0
                while end < n and run[end] == run[start]:
                    own += row[by_risk[end]]
                    end += 1
                place = min(int((before + own / 2) / total * count), count - 1)
                mass[place] += own
                for k in range(start, end):
                    stratum[by_risk[k]] = place
                before += own
                start = end
            for k in range(n_strata):  # by slices, it would compile for two seconds longer
                at_risk[k] = mass[k]
            for i in range(n):
                if time[i] > t:
                    break
                k = stratum[i]
                if row[i] > 0.0:
                    if event[i]:
                        stay[k] *= max(1.0 - row[i] / at_risk[k], 0.0) if at_risk[k] > row[i] else 0.0
                    if event[i] or time[i] < t:
                        at_risk[k] -= row[i]
            resolved = True
            for k in range(count):
                if mass[k] > 0.0 and stay[k] > 0.0 and at_risk[k] <= 1e-9 * mass[k]:
                    resolved = False
            if resolved or count == 1:
                risk = 0.0
                for k in range(count):
                    risk += mass[k] * (1.0 - stay[k])
                out[b] = risk / total
                break
