"""How many pairs of patients can be compared, with and without censored partners."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dcsurv.target import FloatArray, unpack


class PairCounts(NamedTuple):
    """Ordered pairs (i, j) with z_i < z_j of which the earlier patient had the event.

    Attributes
    ----------
    event_event : int
        ``|A|``: patient j had the event too, d_i = d_j = 1.
    event_any : int
        ``|B|``: patient j had the event or was censored, d_i = 1.

    Examples
    --------
    >>> from dcsurv import make_outcome
    >>> from dcsurv.metrics import pair_counts
    >>> counts = pair_counts(make_outcome(time=[1, 2, 3, 4], event=[1, 0, 1, 0]))
    >>> counts
    PairCounts(event_event=1, event_any=4)
    >>> counts.factor
    4.0
    """

    event_event: int
    event_any: int

    @property
    def factor(self) -> float:
        """``F = |B| / |A|``, how many times more pairs there are when censored partners count."""
        if self.event_event == 0:
            raise ValueError("no two events at different times, so |A| is 0 and |B| / |A| does not exist.")
        return self.event_any / self.event_event


def pair_counts(y: Any) -> PairCounts:
    """Count the comparable pairs ``|A|`` and ``|B|`` in O(n log n).

    ::

        |A| = #{(i, j): z_i < z_j, d_i = d_j = 1}        |B| = #{(i, j): z_i < z_j, d_i = 1}

    Times are compared as they are: patients with equal times make no pair.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.

    Returns
    -------
    PairCounts
        The two numbers.

    References
    ----------
    Fuhlert et al., Deep Learning-Based Discrete Calibrated Survival Prediction, 2022: Table I, where A belongs to the
    kernel loss of Kamran and Wiens and B to that of DCS.
    """
    time, event = unpack(y)
    deaths = time[event]
    return PairCounts(_later(deaths, deaths), _later(deaths, time))


def _later(first: FloatArray, second: FloatArray) -> int:
    """Count the pairs with an element of ``first`` below one of ``second``."""
    return int((len(second) - np.searchsorted(np.sort(second), first, side="right")).sum())
