"""Functions of values that are made of the operations: lines through points, the normal distribution, quantiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic.graph import Doubles, Value

# Degrees of polynomials, of which more would change nothing in the tenth digit.
_TAIL_DEGREE, _QUANTILE_DEGREE = 24, 48
# Levels of bands are told apart up to 1 - exp(-14), which is 0.9999992.
_HIGHEST = 14.0


def through_points(x: Value, points: Doubles, values: Doubles) -> Value:
    """Return the lines through points with ascending places, held before the first and after the last.

    Parameters
    ----------
    x : Value
        Where.
    points, values : array of float
        The points.
    """
    if len(points) == 1:
        return x * 0.0 + float(values[0])
    inside = x.at_least(float(points[0])).at_most(float(points[-1]))
    piece = inside.count(points[1:-1])
    graph = x.graph
    start, height = graph.constant(points[:-1]).take(piece), graph.constant(values[:-1]).take(piece)
    slope = graph.constant(np.diff(values) / np.diff(points)).take(piece)
    return height + (inside - start) * slope


def softplus(x: Value) -> Value:
    """Return log(1 + exp(x)) for any x.

    Parameters
    ----------
    x : Value
        Where.
    """
    return x.relu() + (1.0 + (-abs(x)).exp()).log()


def normal_tail(z: Value) -> Value:
    """Return the share of the normal distribution above z.

    Parameters
    ----------
    z : Value
        Where.
    """
    from scipy.special import erfcx

    # exp(x²) erfc(x) of x >= 0, divided by t = 2 / (2 + x), is smooth in t.
    def smooth(t: npt.NDArray[np.float64]) -> Doubles:
        out: Doubles = erfcx(2.0 / t - 2.0) / t
        return out

    coefficients = _fitted(smooth, 0.0, 1.0, _TAIL_DEGREE)
    x = abs(z) * float(np.sqrt(0.5))
    t = 2.0 / (x + 2.0)
    upper = 0.5 * t * z.graph.apply("Chebyshev", t * 2.0 - 1.0, coefficients) * (-(x * x)).exp()
    return z.below(0.0, 1.0 - upper, upper)


def quantile_of_level(level: Value, quantile: Callable[[float], float]) -> Value:
    """Return how far from 0 a distribution has to reach on both sides to hold a share of it.

    Parameters
    ----------
    level : Value
        The share, between 0 and 1.
    quantile : callable
        The same of one number, known when the graph is made.
    """

    # On the scale u = -log(1 - level) the logarithm of quantile / u bends but little.
    def smooth(u: npt.NDArray[np.float64]) -> Doubles:
        return np.array([np.log(quantile(float(-np.expm1(-one))) / one) for one in u])

    u = (-(1.0 - level).log()).at_most(_HIGHEST)
    coefficients = _fitted(smooth, 0.0, _HIGHEST, _QUANTILE_DEGREE)
    return u * level.graph.apply("Chebyshev", u * (2.0 / _HIGHEST) - 1.0, coefficients).exp()


def _fitted(function: Callable[[Doubles], Doubles], low: float, high: float, degree: int) -> Doubles:
    """Return the coefficients of the Chebyshev polynomials, over an interval, that run through a function."""
    places = np.polynomial.chebyshev.chebpts1(degree + 1)
    heights = function(low + (high - low) * (places + 1.0) / 2.0)
    return np.asarray(np.polynomial.chebyshev.chebfit(places, heights, degree), dtype=np.float64)
