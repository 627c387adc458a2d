"""Take out of sampled Shapley values what depends on whom each patient happened to be compared with.

The change that a feature makes depends on the background patient: mostly through that patient's own features, the same
for everybody, and through their products with the features of the patient who is explained. Both have a known mean over
the whole background, 0 after centring, so that a regression on them takes out the luck of the draw and moves no
expectation. It is linear and the same for all players: their values still add up to the prediction.
"""

from __future__ import annotations

import numpy as np

from dcsurv.target import FloatArray, IntArray

# Pairs that a coefficient needs, so that the regression takes out more than it puts in.
_PAIRS_PER_COEFFICIENT = 20
_RIDGE = 1e-3


def without_luck(
    changes: FloatArray,
    partners: IntArray,
    alone: FloatArray,
    traits: FloatArray,
    background_traits: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return Shapley values and their standard errors from sampled changes.

    Parameters
    ----------
    changes
        Of each player for each pair of permutations, (n, K, players, T).
    partners
        The background patient of each pair, (n, K).
    alone
        Predictions of the background, (B, T).
    traits, background_traits
        Numbers that describe patients, (n, q), and background, (B, q).
    """
    n, n_pairs, n_players, n_times = changes.shape
    shape, rounds = (n, n_players, n_times), n_pairs // len(alone)
    if rounds > 1 and n_pairs == rounds * len(alone):
        # Everybody was met equally often, and more than once: only the orders are luck, and repeats show how much.
        same = np.argsort(partners, axis=1, kind="stable")[..., None, None]
        repeats = np.take_along_axis(changes, same, axis=1).reshape(n, len(alone), rounds, n_players, n_times)
        return changes.mean(axis=1), np.sqrt(repeats.var(axis=2, ddof=1).mean(axis=1) / n_pairs)
    # What all players together owe to the partner is known: each gets an equal share of it back.
    luck = (alone - alone.mean(axis=0)) / n_players
    changes = changes + luck[partners][:, :, None]
    flat = changes.reshape(n, n_pairs, n_players * n_times)
    mean = flat.mean(axis=1)
    within = flat - mean[:, None]
    design = _design(partners, traits, background_traits)
    used = 0
    if design is not None:
        centre = design.mean(axis=1)
        inside = (design - centre[:, None]).reshape(n * n_pairs, -1)
        gram = inside.T @ inside
        gram[np.diag_indices_from(gram)] *= 1 + _RIDGE
        gram[np.diag_indices_from(gram)] += np.finfo(np.float64).tiny  # a trait in which nobody there differs
        coefficient = np.linalg.solve(gram, inside.T @ within.reshape(n * n_pairs, -1))
        within = within - (inside @ coefficient).reshape(within.shape)
        mean = mean - centre @ coefficient
        used = design.shape[2]
    free = max(n * (n_pairs - 1) - used, 1) / n
    error = np.sqrt((within**2).sum(axis=1) / free / n_pairs)
    return mean.reshape(shape), error.reshape(shape)


def _design(partners: IntArray, traits: FloatArray, background_traits: FloatArray) -> FloatArray | None:
    """Return the regressors of every pair, each of mean 0 over the background, (n, K, m); None if pairs are too few."""
    n_background, pairs = len(background_traits), partners.size
    most = pairs // _PAIRS_PER_COEFFICIENT
    if most < n_background:
        return None
    who = np.eye(n_background) - 1 / n_background
    both = np.concatenate([traits, background_traits])
    scale = both.std(axis=0)
    scale[scale == 0] = 1
    own, theirs = (np.clip((one - both.mean(axis=0)) / scale, -3, 3) for one in (traits, background_traits))
    width = min(own.shape[1], int(np.sqrt(most - n_background)))
    own, theirs = own[:, :width], theirs[:, :width]
    # What nobody of the background differs in is 0, not the rounding error of its mean.
    theirs = np.where(np.ptp(theirs, axis=0) > 0, theirs - theirs.mean(axis=0), 0)
    products = own[:, None, :, None] * theirs[partners][:, :, None, :]
    out: FloatArray = np.concatenate([who[partners], products.reshape(*partners.shape, -1)], axis=2)
    return out
