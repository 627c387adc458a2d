"""Members trained without a fold each, and what each predicts for the fold that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcsurv.calibration.families import seeded, train_member
from dcsurv.curves import SurvivalCurves
from dcsurv.models import SurvivalEstimator
from dcsurv.models.base import Features
from dcsurv.parallel import run_tasks
from dcsurv.target import FloatArray, IntArray, Outcome


@dataclass(frozen=True)
class CrossFitted:
    """Members of each family, fold by fold, and their curves out of fold.

    Parameters
    ----------
    members : list of list of SurvivalEstimator
        Of each family, those of one fold in a row.
    n_patients : int
        How many patients.
    seen : list of tuple
        Of each member: its family, the patients that it left out, and their curves.
    """

    members: list[list[SurvivalEstimator]]
    n_patients: int
    seen: list[tuple[int, IntArray, SurvivalCurves]]

    def out_of_fold(self, nodes: FloatArray) -> list[FloatArray]:
        """Return the out-of-fold survival of each family at common nodes, (n, T), the mean over its seeds."""
        total = [np.zeros((self.n_patients, len(nodes))) for _ in self.members]
        times = [np.zeros(self.n_patients) for _ in self.members]
        for family, left_out, curves in self.seen:
            total[family][left_out] += curves.evaluate(nodes)
            times[family][left_out] += 1
        return [survival / count[:, None] for survival, count in zip(total, times, strict=True)]


def cross_fit(
    templates: Sequence[SurvivalEstimator],
    n_seeds: Sequence[int],
    folds: Sequence[tuple[IntArray, IntArray]],
    seeds: Sequence[int],
    X: Features,
    y: Outcome,
    weight: FloatArray | None,
    n_jobs: int | None,
) -> CrossFitted:
    """Train members of each family, some seeds per fold, at the same time in several processes.

    Parameters
    ----------
    templates
        An unfitted model for each family.
    n_seeds
        Members per fold of each family.
    folds
        Patients to train on and to leave out.
    seeds
        One for every member.
    """
    import joblib

    dealt = [(f, fold) for f, n in enumerate(n_seeds) for fold in folds for _ in range(n)]
    tasks = [
        joblib.delayed(train_member)(seeded(templates[f], seed), X, y, weight, train, left_out)
        for (f, (train, left_out)), seed in zip(dealt, seeds, strict=True)
    ]
    fitted = run_tasks(tasks, n_jobs)
    members: list[list[SurvivalEstimator]] = [[] for _ in templates]
    for (f, _), (member, _) in zip(dealt, fitted, strict=True):
        members[f].append(member)
    seen = [(f, left_out, curves) for (f, (_, left_out)), (_, curves) in zip(dealt, fitted, strict=True)]
    return CrossFitted(members, len(y), seen)
