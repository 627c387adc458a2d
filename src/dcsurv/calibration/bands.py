"""What the bands of an ensemble are made from: its folds, its families and the size of the cohort."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dcsurv.calibration.families import Family, mapped
from dcsurv.curves import SurvivalCurves
from dcsurv.models.bands import Backing, BandSources
from dcsurv.models.base import Features
from dcsurv.target import FloatArray

# How many numbers an ensemble is taken to have learnt for each time. The one constant of the bands that was chosen by
# simulation, on some of the designs and seeds of benchmarks/bands.py; the others examine it.
NUMBERS_PER_TIME = 8.0


def by_fold_and_family(
    families: Sequence[Family], X: Features, nodes: FloatArray
) -> tuple[list[FloatArray], list[tuple[float, FloatArray]]]:
    """Return the mean of the families in each fold, (n, T) each, and share and mean over the folds of each family."""
    folds = [np.zeros((len(X), len(nodes))) for _ in range(families[0].n_folds)]
    means = []
    for family in families:
        each = family.by_fold(X, nodes)
        for fold, values in zip(folds, each, strict=True):
            fold += family.weight * mapped(family.map, values, nodes)
        means.append((family.weight, mapped(family.map, np.mean(each, axis=0), nodes)))
    return folds, means


def sources_of(
    folds: Sequence[FloatArray],
    families: Sequence[tuple[float, FloatArray]],
    refits: Sequence[SurvivalCurves],
    backing: Backing,
    recalibrated: Callable[[FloatArray], SurvivalCurves],
) -> BandSources:
    """Return what bands are made from: refits, if there are any, otherwise the folds, by the grouped jackknife."""
    k = len(folds)
    return BandSources(
        refits or [recalibrated(values) for values in folds],
        1.0 if refits else (k - 1) ** 2 / k,
        [(share, recalibrated(values)) for share, values in families],
        [(NUMBERS_PER_TIME, backing)],
    )
