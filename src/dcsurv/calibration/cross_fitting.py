"""Members trained without a fold each, and what each predicts for the fold that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcsurv.calibration.families import seeded
from dcsurv.curves import SurvivalCurves
from dcsurv.models import SurvivalEstimator
from dcsurv.models.base import Features
from dcsurv.models.together import can_be_trained_together, fit_together
from dcsurv.parallel import run_tasks
from dcsurv.target import FloatArray, IntArray, Outcome
from dcsurv.training import one_thread

# Patients who are predicted at a time.
_CHUNK = 2048


@dataclass(frozen=True)
class CrossFitted:
    """Members of each family, fold by fold, and their curves out of fold.

    Parameters
    ----------
    members : list of list of SurvivalEstimator
        Of each family, those of one fold in a row.
    n_seeds : list of int
        Members per fold of each family.
    patients : array of int
        Those who were predicted out of fold, ascending.
    seen : list of tuple
        Of each member: its family, the patients among them that it left out, and their curves.
    """

    members: list[list[SurvivalEstimator]]
    n_seeds: Sequence[int]
    patients: IntArray
    seen: list[tuple[int, IntArray, SurvivalCurves]]

    def out_of_fold(self, nodes: FloatArray) -> list[FloatArray]:
        """Return the out-of-fold survival of each family at common nodes, (patients, T), the mean over its seeds."""
        total = [np.zeros((len(self.patients), len(nodes))) for _ in self.members]
        for family, left_out, curves in self.seen:
            total[family][np.searchsorted(self.patients, left_out)] += curves.evaluate(nodes) / self.n_seeds[family]
        return total


@dataclass(frozen=True)
class _Part:
    """A member to be trained: its family, fold and number of its seed, and itself, unfitted."""

    family: int
    fold: int
    seed_number: int
    member: SurvivalEstimator


def cross_fit(
    templates: Sequence[SurvivalEstimator],
    n_seeds: Sequence[int],
    folds: Sequence[tuple[IntArray, IntArray]],
    seeds: Sequence[int],
    X: Features,
    y: Outcome,
    weight: FloatArray | None,
    patients: IntArray,
    nodes: FloatArray | None,
    n_jobs: int | None,
    groups: IntArray | None = None,
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
    patients
        Those whose curves out of fold are wanted, ascending.
    nodes
        At which times; None: at the members' own.
    groups
        Rows that belong together.
    """
    import joblib

    folds = [(train, np.intersect1d(left_out, patients, assume_unique=True)) for train, left_out in folds]
    dealt = [(f, fold, k) for f, n in enumerate(n_seeds) for fold in range(len(folds)) for k in range(n)]
    parts = [_Part(f, fold, k, seeded(templates[f], seed)) for (f, fold, k), seed in zip(dealt, seeds, strict=True)]
    tasks = _tasks(parts, templates)
    train = joblib.delayed(train_members)
    fitted = run_tasks(
        [
            train([part.member for part in task], [folds[part.fold] for part in task], X, y, weight, nodes, groups)
            for task in tasks
        ],
        n_jobs,
    )
    done = {
        (part.family, part.fold, part.seed_number): result
        for task, results in zip(tasks, fitted, strict=True)
        for part, result in zip(task, results, strict=True)
    }
    members: list[list[SurvivalEstimator]] = [[] for _ in templates]
    for key in dealt:
        members[key[0]].append(done[key][0])
    return CrossFitted(members, n_seeds, patients, [(f, folds[fold][1], done[f, fold, k][1]) for f, fold, k in dealt])


def _tasks(parts: Sequence[_Part], templates: Sequence[SurvivalEstimator]) -> list[list[_Part]]:
    """Return what is trained in one go, the longest first: networks of all folds together, others one by one.

    Networks that differ in the number of their seed are apart, so that two processes have work, and so that the sums of
    a network come out the same with any number of processes.
    """
    together: dict[tuple[int, ...], list[_Part]] = {}
    for part in parts:
        alone = () if can_be_trained_together(templates[part.family]) else (part.fold,)
        together.setdefault((part.family, part.seed_number, *alone), []).append(part)
    return list(together.values())


def train_members(
    members: Sequence[SurvivalEstimator],
    folds: Sequence[tuple[IntArray, IntArray]],
    X: Features,
    y: Outcome,
    weight: FloatArray | None,
    nodes: FloatArray | None,
    groups: IntArray | None = None,
) -> list[tuple[SurvivalEstimator, SurvivalCurves]]:
    """Fit members to all folds but one each, and predict patients of that one."""
    with one_thread():
        if can_be_trained_together(members[0]):
            fit_together(members, X, y, weight, [train for train, _ in folds], groups)
        else:
            for member, (train, _) in zip(members, folds, strict=True):
                own = None if groups is None else groups[train]
                member.fit_member(X[train], y[train], None if weight is None else weight[train], groups=own)
                if member.training_summary_.get("stopped_by") == "interrupt":
                    raise KeyboardInterrupt  # a member cut short must not pass for a trained one
        return [
            (member, _curves(member, X[left_out], nodes)) for member, (_, left_out) in zip(members, folds, strict=True)
        ]


def _curves(member: SurvivalEstimator, X: Features, nodes: FloatArray | None) -> SurvivalCurves:
    """Return a member's curves at some times, or at all of its nodes, which can be many times as long."""
    if nodes is None:
        return member.curves_for(X)
    values = np.empty((len(X), len(nodes)))
    for begin in range(0, len(X), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        values[chunk] = member.survival_at(X[chunk], nodes)
    return SurvivalCurves(nodes, values, interpolation="linear")
