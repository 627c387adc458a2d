"""What the bands of an ensemble are made from: its folds, its families and the size of the cohort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dcsurv.calibration.families import Family
from dcsurv.calibration.map_base import MappedCurves
from dcsurv.calibration.maps import MapSequence
from dcsurv.curves import SurvivalCurves
from dcsurv.models.bands import Backing, BandSources
from dcsurv.models.base import Features
from dcsurv.target import FloatArray

# How many numbers an ensemble is taken to have learnt for each time. The one constant of the bands that was chosen by
# simulation, on some of the designs and seeds of benchmarks/bands.py; the others examine it.
NUMBERS_PER_TIME = 8.0


class Sums(NamedTuple):
    """What the members of an ensemble say about some patients, one row per node, (T, n) each, before the last maps.

    Attributes
    ----------
    whole : array of float
        The weighted mean of the families.
    families : list of tuple of (float, array)
        Share and mean over the folds of each family.
    folds : list of array
        The weighted mean of the families in each fold; empty if nobody asked.
    """

    whole: FloatArray
    families: list[tuple[float, FloatArray]]
    folds: list[FloatArray]


def sums_of(families: Sequence[Family], X: Features, nodes: FloatArray, *, by_fold: bool) -> Sums:
    """Ask all members once."""
    shape = len(nodes), len(X)
    whole, means = np.zeros(shape), []
    folds = [np.zeros(shape) for _ in range(families[0].n_folds)] if by_fold else []
    for family in families:
        total = np.zeros(shape)
        for k, rows in enumerate(family.by_fold(X, nodes)):
            total += rows
            if by_fold:
                folds[k] += family.weight * family.map.held(rows, nodes)
        total /= family.n_folds
        mean = family.map.held(total, nodes)
        means.append((family.weight, mean))
        whole += family.weight * mean
    for rows in (whole, *folds):
        np.minimum(rows, 1.0, out=rows)  # shares may sum to a hair more than one
    return Sums(whole, means, folds)


def sources_of(
    sums: Sums,
    refits: Sequence[SurvivalCurves],
    backing: Backing,
    on_nodes: Callable[[FloatArray], SurvivalCurves],
    last: MapSequence,
) -> BandSources:
    """Return what bands are made from: refits, if there are any, otherwise the folds, by the grouped jackknife."""
    k = len(sums.folds)
    return BandSources(
        refits or [MappedCurves(on_nodes(rows), last) for rows in sums.folds],
        1.0 if refits else (k - 1) ** 2 / k,
        [(share, MappedCurves(on_nodes(rows), last)) for share, rows in sums.families],
        [(NUMBERS_PER_TIME, backing)],
        last.transform(on_nodes(sums.whole)),
    )
