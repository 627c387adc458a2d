"""Fair timing on a noisy machine: the two sides take turns, and each is judged by its best turn."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def speedup(ours: Callable[[], object], peer: Callable[[], object], turns: int = 5) -> dict[str, float]:
    """Return how many times faster ours is, and the best seconds of both; the first turn warms up."""
    pairs = [(seconds(ours), seconds(peer)) for _ in range(turns + 1)][1:]
    mine, theirs = (min(side) for side in zip(*pairs, strict=True))
    return {"ratio": theirs / mine, "ours_seconds": mine, "peer_seconds": theirs}
