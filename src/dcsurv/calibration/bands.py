"""What the bands of an ensemble are made from: its folds, its families and the size of the cohort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.arithmetic.readable import average
from dcsurv.calibration.families import Family
from dcsurv.calibration.map_base import MappedCurves
from dcsurv.calibration.maps import MapSequence
from dcsurv.curves import SurvivalCurves
from dcsurv.models.bands import Backing, BandArithmetic, BandSources
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


class ArithmeticSums(NamedTuple):
    """:class:`Sums` as arithmetic, (n, T) each."""

    whole: Value
    families: list[tuple[float, Value]]
    folds: list[Value]


def arithmetic_sums(families: Sequence[Family], prepared: Value, nodes: FloatArray) -> ArithmeticSums:
    """Return :func:`sums_of` as arithmetic."""
    means: list[tuple[float, Value]] = []
    by_fold: list[list[Value]] = [[] for _ in range(families[0].n_folds)]
    for family in families:
        folds = family.arithmetic_by_fold(prepared, nodes)
        means.append((family.weight, family.map.held_arithmetic(average(folds), nodes)))
        for own, rows in zip(by_fold, folds, strict=True):
            own.append(family.map.held_arithmetic(rows, nodes) * family.weight)
    whole, *sums = (_sum(own).at_most(1.0) for own in ([mean * weight for weight, mean in means], *by_fold))
    return ArithmeticSums(whole, means, sums)


def _sum(values: Sequence[Value]) -> Value:
    return average(values) * float(len(values))


def arithmetic_of_band(
    sums: ArithmeticSums,
    refits: Sequence[ReadableCurves],
    backing: Backing,
    on_nodes: Callable[[Value], ReadableCurves],
    last: MapSequence,
) -> BandArithmetic:
    """Return :func:`sources_of` as arithmetic."""
    k = len(sums.folds)
    return BandArithmetic(
        refits or [last.transform_arithmetic(on_nodes(rows)) for rows in sums.folds],
        1.0 if refits else (k - 1) ** 2 / k,
        [(share, last.transform_arithmetic(on_nodes(rows))) for share, rows in sums.families],
        [(NUMBERS_PER_TIME, backing)],
    )


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
