"""The losses of DCS and Kamran: a score for calibration, a kernel over pairs for ranking."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from dcsurv.losses.discrete import discrete_likelihood

# A patient's log-likelihood is some times as large as the mean of the squared errors over the nodes. This share of it
# keeps the meaning of the kernel's weight λ about the same with either score.
LIKELIHOOD_SHARE = 0.2


def survival_from_logits(logits: Tensor) -> Tensor:
    r"""Return :math:`S_l = \prod_{j \le l} (1 - \mathrm{sigmoid}(a_j))` along the last dimension.

    As a sum of logarithms: the gradient of a product is slow and undefined where a hazard reaches 1.

    Parameters
    ----------
    logits : Tensor
        a, shape (..., L).

    Returns
    -------
    Tensor
        S at the nodes, of the same shape.
    """
    return functional.logsigmoid(-logits).cumsum(-1).exp()


def ranked_probability_score(
    survival: Tensor, bucket: Tensor, event: Tensor, node_weight: Tensor | None = None
) -> Tensor:
    r"""Squared distance of each survival curve from the observed one, summed over the nodes.

    .. math:: \sum_l v_{il} \left(S_l(x_i) - 1[g_l < z_i]\right)^2

    over all nodes for an event, and over the nodes :math:`g_l < z_i` for a censored patient, of whom nothing
    is known later. (The authors' code; the formula in the paper runs over one node more.)

    Parameters
    ----------
    survival : Tensor
        S at the nodes, shape (n, L).
    bucket : Tensor
        0-based index of the first node at or after the observed time; L beyond the grid. Shape (n,).
    event : Tensor
        Event indicators, shape (n,).
    node_weight : Tensor or None, default None
        v, shape (n, L) or (n, 1); None is 1 everywhere.

    Returns
    -------
    Tensor
        One score per patient, shape (n,).

    References
    ----------
    Kamran and Wiens, Estimating calibrated individualized survival curves with deep learning, AAAI 2021.
    """
    alive = torch.arange(survival.shape[1], device=survival.device) < bucket.unsqueeze(1)
    known = alive | event.bool().unsqueeze(1)
    squared = (survival - alive.to(survival.dtype)).square() * known
    return squared.sum(1) if node_weight is None else (squared * node_weight).sum(1)


def censoring_node_weight(bucket: Tensor, node_inverse: Tensor, own_inverse: Tensor) -> Tensor:
    r"""Return the weights that take the bias of censoring out of the ranked probability score.

    .. math:: v_{il} = \frac{1[l < l_i]}{G(g_l-)} + \frac{1[l \ge l_i]}{G(z_i-)}

    with :math:`l_i` the first node at which patient i is not known to be alive.

    A patient seen alive at a node stands for those censored before it, one with an event for those censored before
    the event. (What a censored patient has after the censoring counts for nothing in the score, whatever its weight.)
    Without weights the score prefers curves below the truth: of those censored early only their survival is seen.

    Parameters
    ----------
    bucket : Tensor
        As in :func:`ranked_probability_score`, shape (n,).
    node_inverse : Tensor
        1/G just before the nodes, shape (L,).
    own_inverse : Tensor
        1/G just before each patient's time, shape (n,).

    Returns
    -------
    Tensor
        The weights v, shape (n, L).
    """
    alive = torch.arange(len(node_inverse), device=bucket.device) < bucket.unsqueeze(1)
    return torch.where(alive, node_inverse, own_inverse.unsqueeze(1))


def ranking_kernel(
    survival: Tensor,
    bucket: Tensor,
    event: Tensor,
    *,
    sigma: float,
    event_censored_pairs: bool = True,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Penalise pairs in which the patient with the earlier event does not have the lower survival.

    .. math:: \sum_{i,j: d_i = 1,\ l_i < l_j} w_i w_j \exp\left(-(S_{l_i}(x_j) - S_{l_i}(x_i)) / \sigma\right)

    Patients of one bucket form no pair; times beyond the grid come last. Memory grows with the events times
    the patients of the batch, not with the number of nodes.

    Parameters
    ----------
    survival : Tensor
        S at the nodes, shape (n, L).
    bucket : Tensor
        0-based index of the first node at or after the observed time; L beyond the grid. Shape (n,).
    event : Tensor
        Event indicators, shape (n,).
    sigma : float
        Width of the kernel, in units of survival probability.
    event_censored_pairs : bool, default True
        Whether the later patient j may be censored (DCS) or must have had the event too (Kamran).
    sample_weight : Tensor or None, default None
        w, shape (n,); None is 1 for everybody.

    Returns
    -------
    kernel : Tensor
        The sum over the pairs.
    n_pairs : Tensor
        The (weighted) number of pairs.
    """
    event = event.bool()
    # Beyond the last node nobody can be later, so such events are the first of no pair.
    first = torch.nonzero(event & (bucket < survival.shape[1])).squeeze(1)
    node = bucket.index_select(0, first)
    # Rows of the time-major view are contiguous in a recurrent decoder's output: at_event is (n_first, n).
    at_event = survival.t().index_select(0, node)
    own = at_event.gather(1, first.unsqueeze(1))
    pair = (node.unsqueeze(1) < bucket).to(survival.dtype)
    if not event_censored_pairs:
        pair = pair * event
    if sample_weight is not None:
        pair = pair * sample_weight.index_select(0, first).unsqueeze(1) * sample_weight
    # What is no pair must not overflow: 0 times infinity would be NaN.
    exponent = ((own - at_event) / sigma).masked_fill(pair == 0, 0.0)
    return (pair * torch.exp(exponent)).sum(), pair.sum()


def calibrated_ranking(
    survival: Tensor,
    bucket: Tensor,
    event: Tensor,
    *,
    lam: float,
    sigma: float,
    event_censored_pairs: bool = True,
    normalize: bool = True,
    node_weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    r"""Loss of DCS: RPS + λ kernel.

    Parameters
    ----------
    survival : Tensor
        S at the nodes, shape (n, L).
    bucket : Tensor
        0-based index of the first node at or after the observed time; L beyond the grid. Shape (n,).
    event : Tensor
        Event indicators, shape (n,).
    lam : float
        Weight λ of the kernel.
    sigma : float
        Width of the kernel, in units of survival probability.
    event_censored_pairs : bool, default True
        Whether the later patient of a pair may be censored (DCS) or must have had the event too (Kamran).
    normalize : bool, default True
        True divides the score by the number of patients and nodes, and the kernel by the number of pairs, so that λ
        does not depend on the batch size; False adds plain sums (Kamran).
    node_weight : Tensor or None, default None
        Weights of the score, see :func:`ranked_probability_score`.
    sample_weight : Tensor or None, default None
        Non-negative weights of the patients, shape (n,).

    Returns
    -------
    Tensor
        A scalar.
    """
    score = ranked_probability_score(survival, bucket, event, node_weight)
    if sample_weight is not None:
        score = score * sample_weight
    kernel, n_pairs = ranking_kernel(
        survival,
        bucket,
        event,
        sigma=sigma,
        event_censored_pairs=event_censored_pairs,
        sample_weight=sample_weight,
    )
    if not normalize:
        return score.sum() + lam * kernel
    n = survival.shape[0] if sample_weight is None else sample_weight.sum().clamp_min(1e-12)
    return score.sum() / (n * survival.shape[1]) + lam * kernel / torch.where(n_pairs > 0, n_pairs, 1.0)


def likelihood_ranking(
    logits: Tensor,
    bucket: Tensor,
    event: Tensor,
    passed: Tensor,
    *,
    lam: float,
    sigma: float,
    event_censored_pairs: bool = True,
    sample_weight: Tensor | None = None,
) -> Tensor:
    r"""Loss of DCS with a score that is proper given the features: likelihood / 5 + λ kernel, means over the batch.

    The kernel compares patients at risk at the same time, so that it, too, asks of nobody what the follow-up could not
    show.

    Parameters
    ----------
    logits : Tensor
        a, shape (n, L).
    bucket : Tensor
        0-based index of the first node at or after the observed time; L beyond the grid. Shape (n,).
    event : Tensor
        Event indicators, shape (n,).
    passed : Tensor
        The share of the last interval that lies before the observed time, see :func:`discrete_likelihood`. Shape (n,).
    lam : float
        Weight λ of the kernel.
    sigma : float
        Width of the kernel, in units of survival probability.
    event_censored_pairs : bool, default True
        Whether the later patient of a pair may be censored.
    sample_weight : Tensor or None, default None
        Non-negative weights of the patients, shape (n,).

    Returns
    -------
    Tensor
        A scalar.
    """
    log_survival = functional.logsigmoid(-logits).cumsum(1)
    score = discrete_likelihood(logits, bucket, event, passed, log_survival)
    n: Tensor | int = len(score)
    if sample_weight is not None:
        score, n = score * sample_weight, sample_weight.sum().clamp_min(1e-12)
    kernel, n_pairs = ranking_kernel(
        log_survival.exp(),
        bucket,
        event,
        sigma=sigma,
        event_censored_pairs=event_censored_pairs,
        sample_weight=sample_weight,
    )
    return LIKELIHOOD_SHARE * score.sum() / n + lam * kernel / torch.where(n_pairs > 0, n_pairs, 1.0)
