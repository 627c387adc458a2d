"""The baseline hazard of the Cox family, on a bounded number of times."""

from __future__ import annotations

import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.persistence import Arrays, read_array
from dcsurv.target import FloatArray, IntArray

# Curves have a node per event time, up to this many. A large cohort with continuous times has more, which would
# cost memory (patients x times) for steps too small to see; its curves keep evenly chosen ones.
MAX_NODES = 2048

# exp of a larger log risk says nothing more, and would overflow.
_LARGEST_LOG_RISK = 50.0


def thinned(n_times: int) -> IntArray:
    """Return which of n ascending event times become nodes: all, or MAX_NODES of them including the last."""
    if n_times <= MAX_NODES:
        return np.arange(n_times)
    return np.rint(np.linspace(0, n_times - 1, MAX_NODES)).astype(np.int64)


def relative_risk(log_risk: FloatArray) -> FloatArray:
    """Return exp(g) in float64, bounded."""
    return np.exp(np.clip(log_risk.astype(np.float64), -_LARGEST_LOG_RISK, _LARGEST_LOG_RISK))


def proportional_survival(cumulative_hazard: FloatArray, log_risk: FloatArray) -> FloatArray:
    """Return S = exp(-H0(t) exp(g)), (n, T)."""
    hazard = np.outer(-cumulative_hazard, relative_risk(log_risk))  # one row per time
    return np.exp(hazard, out=hazard).T


def risk_arithmetic(log_risk: Value) -> Value:
    """Return :func:`relative_risk` as arithmetic."""
    return log_risk.at_least(-_LARGEST_LOG_RISK).at_most(_LARGEST_LOG_RISK).exp()


def proportional_arithmetic(cumulative_hazard: FloatArray, log_risk: Value) -> Value:
    """Return :func:`proportional_survival` as arithmetic; the log risk is (n, 1)."""
    return (risk_arithmetic(log_risk) * -cumulative_hazard).exp()


def read_times(arrays: Arrays, name: str) -> FloatArray:
    """Return the nodes of a file.

    Raises
    ------
    ValueError
        If they are no ascending times.
    """
    times = read_array(arrays, name, (None,))
    if not len(times) or times[0] < 0 or (np.diff(times) <= 0).any():
        raise ValueError(f"its times {name} do not ascend from 0 or later")
    return times


def read_baseline(arrays: Arrays, times_name: str, hazard_name: str) -> tuple[FloatArray, FloatArray]:
    """Return times and cumulative baseline hazard of a file.

    Raises
    ------
    ValueError
        If they are none.
    """
    times = read_times(arrays, times_name)
    hazard = read_array(arrays, hazard_name, times.shape)
    if (np.diff(hazard, prepend=0.0) < 0).any():
        raise ValueError("its baseline hazard does not ascend from 0")
    return times, hazard
