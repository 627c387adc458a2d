"""The whole ensemble fitted again to resampled patients, for bands that also hold the luck of weights and maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dcsurv.follow_up import FollowUp
from dcsurv.models.base import Features
from dcsurv.parallel import run_tasks
from dcsurv.persistence import Arrays, Header
from dcsurv.target import FloatArray, IntArray, Outcome
from dcsurv.training import one_thread

if TYPE_CHECKING:
    from dcsurv.calibration.ensemble import CalibratedEnsemble


def refitted(
    template: CalibratedEnsemble,
    seeds: Sequence[int],
    X: Features,
    y: Outcome,
    weight: FloatArray | None,
    follow_up: FollowUp | None,
    groups: IntArray | None = None,
) -> list[CalibratedEnsemble]:
    """Fit copies of an ensemble to bootstrap samples of the patients, each with a seed of its own.

    Parameters
    ----------
    template
        Unfitted; how many folds is settled, and so is that its bands come from the folds.
    follow_up
        How long the patients could be followed.
    groups
        Rows that belong together, and are drawn together.
    """
    import joblib

    task = joblib.delayed(_one)
    return run_tasks([task(template, seed, X, y, weight, follow_up, groups) for seed in seeds], template.n_jobs)


def _one(
    template: CalibratedEnsemble,
    seed: int,
    X: Features,
    y: Outcome,
    weight: FloatArray | None,
    follow_up: FollowUp | None,
    groups: IntArray | None,
) -> CalibratedEnsemble:
    """Fit to the patients that were drawn, how often as their weight, so that copies never part between folds."""
    rng = np.random.default_rng(seed)
    place = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]
    n = int(place.max()) + 1
    while True:
        times = rng.multinomial(n, np.full(n, 1 / n))[place]
        rows = np.flatnonzero(times)
        if y["event"][rows].sum() >= template.n_members:  # every fold needs an event
            break
    drawn: FloatArray = times[rows].astype(np.float64) * (1.0 if weight is None else weight[rows])
    out = type(template)(**template.get_params(deep=False))
    out.set_params(random_state=seed, n_jobs=1)
    with one_thread():
        followed = None if follow_up is None else follow_up.take(rows)
        out.fit_member(X[rows], y[rows], drawn, followed, None if groups is None else groups[rows])
    return out


def refits_state(refits: Sequence[CalibratedEnsemble]) -> tuple[list[Header], Arrays]:
    """Return refits as plain data and arrays."""
    headers: list[Header] = []
    arrays: Arrays = {}
    for k, one in enumerate(refits):
        header, own = one.get_state()
        headers.append({**header, "training": one.training_summary_})
        arrays |= {f"refit{k}.{name}": array for name, array in own.items()}
    return headers, arrays


def refits_from(model: CalibratedEnsemble, headers: Sequence[Any], arrays: Arrays) -> list[CalibratedEnsemble]:
    """Rebuild the refits of a file."""
    out = []
    for k, header in enumerate(headers):
        one = type(model)(**{**model.get_params(deep=False), "bands": "folds"})
        prefix = f"refit{k}."
        one.preprocessor_, one.follow_up_, one.training_summary_ = None, None, header["training"]
        one.set_state(header, {name[len(prefix) :]: part for name, part in arrays.items() if name.startswith(prefix)})
        out.append(one)
    return out
