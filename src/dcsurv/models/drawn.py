"""Of very many patients, some that stand for all."""

from __future__ import annotations

import numpy as np

from dcsurv.target import FloatArray, IntArray, Outcome


def representatives(y: Outcome, weight: FloatArray | None, most: int) -> tuple[IntArray, FloatArray | None]:
    """Return at most so many patients, and weights with which they stand for all: everybody, where there are no more.

    Those with an event say most: they get half of the places, or their share if that is more, as far as there are so
    many of them. Each kind is taken evenly along its times, so that the draw has the same quantiles, and no chance is
    in it. Weights of events stay as they are, which makes the draw count as many events as it has.

    Parameters
    ----------
    y
        Checked outcomes.
    weight
        One weight per patient; those with 0 are not drawn.
    most
        How many.
    """
    if len(y) <= most:
        return np.arange(len(y)), weight
    counts = np.ones(len(y), dtype=bool) if weight is None else weight > 0
    had, others = (np.flatnonzero(counts & (y["event"] == event)) for event in (True, False))
    n_had = min(len(had), max(most // 2, most * len(had) // int(counts.sum())))
    n_others = min(len(others), most - n_had)
    rows = np.concatenate([_evenly(had, y, n_had), _evenly(others, y, n_others)])
    stands_for = (len(others) / max(n_others, 1)) / (max(len(had), 1) / max(n_had, 1))
    standing = np.where(y["event"][rows], 1.0, stands_for) * (1.0 if weight is None else weight[rows])
    order = np.argsort(rows)
    return rows[order], standing[order]


def _evenly(patients: IntArray, y: Outcome, count: int) -> IntArray:
    """Return so many of the patients, evenly chosen along their times, the first and the last among them."""
    by_time = patients[np.argsort(y["time"][patients], kind="stable")]
    return by_time[np.rint(np.linspace(0, len(patients) - 1, count)).astype(np.int64)]
