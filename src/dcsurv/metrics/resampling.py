"""Bootstrap samples of patients as counts of how often each was drawn, and intervals of what was computed on them."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np

from dcsurv.metrics.inputs import warn
from dcsurv.target import FloatArray

# Resamples are handled in chunks of about this many patient counts, so that memory stays small.
_CHUNK = 2_000_000


def check_n_bootstrap(n_bootstrap: Any, *, may_be_zero: bool = True) -> int:
    """Return the number of resamples: a whole number from 2 on, or 0 for none."""
    whole = isinstance(n_bootstrap, numbers.Integral) and not isinstance(n_bootstrap, bool)
    if not whole or not (n_bootstrap >= 2 or (may_be_zero and n_bootstrap == 0)):
        raise ValueError(
            f"n_bootstrap is {n_bootstrap!r}, but {'0 or ' * may_be_zero}a whole number of at least 2 resamples is "
            "expected."
        )
    return int(n_bootstrap)


def check_confidence(confidence: float) -> None:
    """Refuse what is no share of the resamples."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, but a share between 0 and 1 is expected, such as 0.95.")


def resample_counts(n: int, n_bootstrap: int, random_state: int) -> Iterator[FloatArray]:
    """Yield chunks of resamples as counts of how often each of n patients was drawn, (B, n)."""
    rng = np.random.default_rng(random_state)
    chunk = max(1, _CHUNK // n)
    for start in range(0, n_bootstrap, chunk):
        size = min(chunk, n_bootstrap - start)
        drawn = rng.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def percentile_interval(draws: FloatArray, confidence: float, metric: str) -> tuple[float, float]:
    """Return the percentile interval of a metric over resamples, those where it is undefined left out."""
    known = draws[~np.isnan(draws)]
    if len(known) < len(draws):
        warn(
            f"{metric} was undefined in {len(draws) - len(known)} of {len(draws)} resamples (too few events drawn); "
            f"its interval {'rests on the others' if len(known) else 'is left out'}."
        )
    if len(known) == 0:
        return np.nan, np.nan
    lower, upper = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(lower), float(upper)
