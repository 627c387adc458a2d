"""Shapley values of many predictions at many times: by enumeration, or sampled with paired permutations.

A coalition of a patient's features is completed by the features of a background patient, and its worth is the mean of
the predictions over the background. All functions see patients as rows of one table, the background after them, and
ask for mixtures of rows (:mod:`dcsurv.explanation.mixing`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dcsurv.explanation.control import without_luck
from dcsurv.explanation.mixing import Mixed
from dcsurv.target import BoolArray, FloatArray, IntArray

# Mixtures that are in memory at the same time.
_ROWS_AT_ONCE = 200_000
# Pairs of permutations whose changes are in memory, and looked at together, at the same time.
_PAIRS_AT_ONCE = 16_000
MOST_ENUMERATED = 16


class ShapleyValues(NamedTuple):
    """Shapley values (n, players, T) and their standard errors; None where they are exact."""

    values: FloatArray
    error: FloatArray | None


def exact(mixed: Mixed, whole: FloatArray, base: FloatArray, n_background: int, n_players: int) -> ShapleyValues:
    """Return Shapley values by enumeration of all coalitions.

    Parameters
    ----------
    mixed
        Predictions of mixtures.
    whole
        Predictions of the n patients, (n, T).
    base
        Mean prediction over the background, (T,).
    n_background, n_players
        Sizes.
    """
    n = len(whole)
    coalitions = (np.arange(2**n_players)[:, None] >> np.arange(n_players)) & 1 == 1
    weights = _weights(coalitions)
    background = np.arange(n, n + n_background)
    out = np.empty((n, n_players, whole.shape[1]))
    at_once = max(1, _ROWS_AT_ONCE // (len(coalitions) * n_background))
    for start in range(0, n, at_once):
        patients = np.arange(start, min(start + at_once, n))
        rows = np.where(coalitions[None, :, None], patients[:, None, None, None], background[:, None])
        worth = mixed(rows.reshape(-1, n_players)).reshape(len(patients), len(coalitions), n_background, -1).mean(2)
        # Of these two it is known what the model says, whatever else is predicted beside them.
        worth[:, 0], worth[:, -1] = base, whole[patients]
        out[patients] = np.einsum("jc,nct->njt", weights, worth)
    return ShapleyValues(out, None)


def _weights(coalitions: BoolArray) -> FloatArray:
    """Return how much the worth of each coalition counts in the value of each player, (players, coalitions)."""
    size, players = coalitions.sum(axis=1), coalitions.shape[1]
    joins = np.array([1 / (players * math.comb(players - 1, k)) for k in range(players)])
    inside = joins[np.maximum(size - 1, 0)][:, None]  # of coalitions that the player has joined
    outside = joins[np.minimum(size, players - 1)][:, None]
    out: FloatArray = np.where(coalitions, inside, -outside).T
    return out


def sampled(
    mixed: Mixed,
    whole: FloatArray,
    alone: FloatArray,
    traits: tuple[FloatArray, FloatArray],
    n_players: int,
    n_pairs: int,
    rng: np.random.Generator,
) -> ShapleyValues:
    """Return Shapley values from paired permutations, each with another patient of the background.

    Players join one after the other, and then in the reverse order, which cancels interactions of two players. What
    depends on whom of the background a patient was compared with is taken out by regression over all patients.

    Parameters
    ----------
    mixed
        Predictions of mixtures.
    whole
        Predictions of the n patients, (n, T).
    alone
        Predictions of the background, (B, T).
    traits
        Numbers that describe patients and background, (n, q) and (B, q), for that regression.
    n_players
        How many players.
    n_pairs
        Pairs of permutations of each patient.
    rng
        Where orders and partners come from.
    """
    n, n_background = len(whole), len(alone)
    values = np.empty((n, n_players, whole.shape[1]))
    error = np.empty_like(values)
    at_once = max(1, _PAIRS_AT_ONCE // n_pairs)
    # Blocks of about the same size: a short last one would have too few pairs for its regression.
    for patients in np.array_split(np.arange(n), -(-n // at_once)):
        partners, orders = drawn_orders(len(patients), n_background, n_players, n_pairs, rng)
        changes = _changes(mixed, whole, alone, patients, partners, orders)
        values[patients], error[patients] = without_luck(changes, partners, alone, traits[0][patients], traits[1])
    return ShapleyValues(values, error)


def drawn_orders(
    n_patients: int, n_background: int, n_players: int, n_pairs: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw with whom each patient is mixed, (n, pairs), and in which order players join, (n, pairs, players).

    Everybody of the background is met once before anybody is met again.
    """
    cycles = -(-n_pairs // n_background)
    partners = np.stack(
        [np.concatenate([rng.permutation(n_background) for _ in range(cycles)])[:n_pairs] for _ in range(n_patients)]
    )
    orders = rng.permuted(np.broadcast_to(np.arange(n_players), (n_patients, n_pairs, n_players)), axis=2)
    return partners, orders


def _changes(
    mixed: Mixed, whole: FloatArray, alone: FloatArray, patients: IntArray, partners: IntArray, orders: IntArray
) -> FloatArray:
    """Return how predictions change when each player joins, mean of both directions, (n, pairs, players, T)."""
    n, n_pairs, n_players = orders.shape
    place = np.argsort(orders, axis=2)
    steps = np.arange(1, n_players)[:, None]
    # Between nobody and everybody: who has joined after each step, there and back.
    joined = np.stack([place[:, :, None] < steps, place[:, :, None] >= n_players - steps], axis=2)
    rows = np.where(joined, patients[:, None, None, None, None], len(whole) + partners[:, :, None, None, None])
    inner = mixed(rows.reshape(-1, n_players)).reshape(n, n_pairs, 2, n_players - 1, -1)
    ends = (n, n_pairs, 2, 1, inner.shape[-1])
    nobody = np.broadcast_to(alone[partners][:, :, None, None], ends)
    everybody = np.broadcast_to(whole[patients][:, None, None, None], ends)
    change = np.diff(np.concatenate([nobody, inner, everybody], axis=3), axis=3)
    there = np.take_along_axis(change[:, :, 0], place[..., None], axis=2)
    back = np.take_along_axis(change[:, :, 1], (n_players - 1 - place)[..., None], axis=2)
    out: FloatArray = (there + back) / 2
    return out
