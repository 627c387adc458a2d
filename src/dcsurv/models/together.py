"""Networks of one kind that are trained together, as an ensemble needs them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from dcsurv.models.base import Features
from dcsurv.models.dcs import DCS
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.network import as_random_state
from dcsurv.models.tensors import losses, networks, torch, training
from dcsurv.target import FloatArray, IntArray, Outcome

# What a plateau costs follows from these, not from the size of the cohort: rows between two looks at the validation
# loss, and rows that this loss is computed on.
_EPOCH_ROWS = 8192
_ENOUGH_TO_STOP = 4096
# No network needs more rows: it stops after some thirty epochs.
_MOST_ROWS = 200_000
# Where rows are many, a batch may be larger: the root of how many epochs they make, up to this.
_LARGEST_BATCH = 4


def can_be_trained_together(model: SurvivalEstimator) -> TypeGuard[DCS]:
    """Return whether models like this one can be trained in one pass: a DCS without decoder, by the likelihood.

    Parameters
    ----------
    model : SurvivalEstimator
        Unfitted.

    Returns
    -------
    bool
        Whether :func:`fit_together` takes it.
    """
    return (
        type(model) is DCS
        and model.training_criterion == "likelihood"
        and model.decoder_layers == 0
        and model.aggregation_layers == 1
        and torch.device(model.device).type == "cpu"
        and not model.verbose
    )


def fit_together(
    members: Sequence[DCS],
    X: Features,
    y: Outcome,
    weight: FloatArray | None,
    rows: Sequence[IntArray],
    groups: IntArray | None = None,
) -> None:
    """Fit models that differ in their seeds only, each to rows of its own, in one pass.

    Each becomes, up to how sums are rounded, what it would have become with other companions, or alone.

    Parameters
    ----------
    members : sequence of DCS
        Unfitted; :func:`can_be_trained_together` holds.
    X : array of shape (n, columns)
        Prepared features of all patients.
    y : structured array
        Their outcomes.
    weight : array or None
        Their weights.
    rows : sequence of array of int
        The patients that each model is fitted to.
    groups : array of int or None, default None
        Rows that belong together.
    """
    model = members[0]
    rows = [_some(own, member.random_state) for member, own in zip(members, rows, strict=True)]
    trainees = [_trainee(*each, X, y, weight, groups) for each in zip(members, rows, strict=True)]
    histories = training.train_together(
        trainees,
        _tensor(X),
        partial(
            losses.stacked_likelihood_ranking,
            lam=model.lam,
            sigma=model.sigma,
            event_censored_pairs=model.event_censored_pairs,
        ),
        epoch_rows=_EPOCH_ROWS,
        batch_size=model.batch_size * _larger(max(map(len, rows))),
        max_epochs=model.max_epochs,
        patience=model.patience,
        learning_rate=model.learning_rate,
        weight_decay=model.weight_decay,
        clip_norm=model.clip_norm,
    )
    for member, own, trainee, history in zip(members, rows, trainees, histories, strict=True):
        member.history_ = history
        summary = {"validation_patients": len(trainee.validation), "seed": trainee.seed, **history.summary()}
        member.end_training(y[own], summary, weighted=weight is not None)


def _tensor(X: Features) -> torch.Tensor:
    """Return the features without a copy; processes share them, read-only, which is all that training needs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(np.ascontiguousarray(X))


def _larger(n: int) -> int:
    """Return how many times larger a batch is where there are n rows to train on; fewer, larger steps cost less."""
    return min(max(math.isqrt(n // _EPOCH_ROWS), 1), _LARGEST_BATCH)


def _some(rows: IntArray, random_state: Any) -> IntArray:
    """Return rows, or a draw of as many as a network can see before it stops to learn."""
    if len(rows) <= _MOST_ROWS:
        return rows
    return np.sort(as_random_state(random_state).choice(rows, _MOST_ROWS, replace=False))


def _trainee(
    member: DCS, rows: IntArray, X: Features, y: Outcome, weight: FloatArray | None, groups: IntArray | None
) -> training.Trainee:
    """Lay a member's grid, build its network and say what it is to learn from."""
    own_y = y[rows]
    own_weight = None if weight is None else weight[rows] / weight[rows].mean()
    member.begin_member(X.shape[1])
    member.lay_grid(own_y)
    seed = int(as_random_state(member.random_state).randint(2**31 - 1))
    fraction = min(member.validation_fraction, _ENOUGH_TO_STOP / len(rows))
    parts = training.validation_split(own_y, fraction, seed, None if groups is None else groups[rows])
    with training.isolated_torch(seed):
        member.start_network(X[rows], own_y, own_weight, parts)
    assert isinstance(member.network_, networks.EncoderDecoder)
    patients = losses.StackedOutcomes.of(
        bucket=torch.from_numpy(member.bucket(own_y)),
        event=torch.from_numpy(np.ascontiguousarray(own_y["event"])),
        passed=torch.from_numpy(member.grid_.passed(own_y["time"])).float(),
        weight=torch.ones(len(rows)) if own_weight is None else torch.from_numpy(own_weight).float(),
    )
    return training.Trainee(member.network_, rows, patients, *parts, seed=seed)
