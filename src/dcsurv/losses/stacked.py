"""Losses of many networks at once, with their gradients worked out by hand: no graph is recorded."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional

from dcsurv.losses.calibrated import LIKELIHOOD_SHARE
from dcsurv.losses.discrete import LOG_NOTHING


class StackedOutcomes(NamedTuple):
    """What the loss of some patients needs to know, for each of M networks.

    Attributes
    ----------
    bucket : Tensor
        0-based index of the first node at or after the observed time; L beyond the grid. Shape (M, n), int64.
    event : Tensor
        Event indicators, shape (M, n), bool.
    left : Tensor
        The logarithm of the share of the last interval that lies after the observed time. Shape (M, n).
    weight : Tensor
        Non-negative weights of the patients, shape (M, n); 0 for those who are there to fill a batch.

    Examples
    --------
    >>> import torch
    >>> from dcsurv.losses import StackedOutcomes
    >>> seen = torch.tensor([[2, 0]]), torch.tensor([[True, False]]), torch.tensor([[1.0, 0.5]]), torch.ones(1, 2)
    >>> StackedOutcomes.of(*seen).left
    tensor([[-60.0000,  -0.6931]])
    """

    bucket: Tensor
    event: Tensor
    left: Tensor
    weight: Tensor

    @classmethod
    def of(cls, bucket: Tensor, event: Tensor, passed: Tensor, weight: Tensor) -> Self:
        """Take what :func:`dcsurv.losses.discrete_likelihood` takes.

        Parameters
        ----------
        bucket : Tensor
            Bucket of each patient.
        event : Tensor
            Event indicators.
        passed : Tensor
            The share of the last interval that lies before the observed time.
        weight : Tensor
            Weights.
        """
        return cls(bucket, event, torch.log1p(-passed).clamp_min(LOG_NOTHING), weight)


def stacked_likelihood_ranking(
    logits: Tensor,
    patients: StackedOutcomes,
    with_gradient: bool = True,
    *,
    lam: float,
    sigma: float,
    event_censored_pairs: bool = True,
) -> tuple[Tensor, Tensor | None]:
    r"""Return the loss of :func:`likelihood_ranking` of M networks, and its gradient.

    The kernel is a product, :math:`\exp(-(S_l(x_j) - S_l(x_i)) / \sigma) = e^{S_l(x_i) / \sigma}
    e^{-S_l(x_j) / \sigma}`, so that its sum over all pairs is, node by node, a sum over events times a sum over
    those who come later. The work grows with the patients, not with their pairs.

    Parameters
    ----------
    logits : Tensor
        a, shape (M, n, L).
    patients : StackedOutcomes
        Outcomes and weights, (M, n) each.
    with_gradient : bool, default True
        Whether the gradient is asked for.
    lam : float
        Weight λ of the kernel.
    sigma : float
        Width of the kernel, in units of survival probability.
    event_censored_pairs : bool, default True
        Whether the later patient of a pair may be censored.

    Returns
    -------
    loss : Tensor
        One value per network, (M,).
    gradient : Tensor or None
        Of the sum of the losses with respect to the logits, (M, n, L).
    """
    bucket, event, left, weight = patients
    n_nodes = logits.shape[2]
    inside = bucket < n_nodes
    at = bucket.clamp(max=n_nodes - 1).unsqueeze(2)  # of the node that the time lies before
    first = (event & inside).to(logits.dtype) * weight  # of a pair, and how much it counts
    later = weight.unsqueeze(2) if event_censored_pairs else (weight * event).unsqueeze(2)

    # 1 at the nodes before the bucket, 0 from it on; in floating point, which is many times faster than comparing.
    alive = (bucket.to(logits.dtype).unsqueeze(2) - torch.arange(n_nodes, dtype=logits.dtype)).clamp_(0, 1)
    log_hazard_left = functional.softplus(logits)  # -log(1 - h)
    upper = torch.ones(n_nodes, n_nodes, dtype=logits.dtype).triu_()  # a sum up to each node is a product with this
    survival = (log_hazard_left @ upper).neg_().exp_()

    own = logits.gather(2, at).squeeze(2)
    within = torch.where(event, functional.logsigmoid(own), functional.softplus(own + left) - functional.softplus(own))
    score = (log_hazard_left * alive).sum(2) - within * inside

    # Counted from one half, neither factor can overflow.
    behind = ((0.5 - survival) / sigma).exp_().mul_(alive).mul_(later)  # (M, n, L)
    ahead = ((survival.gather(2, at).squeeze(2) - 0.5) / sigma).exp_().mul_(first)  # (M, n)
    node = at.squeeze(2)
    all_behind = behind.sum(1)  # (M, L)
    all_ahead = torch.zeros_like(all_behind).scatter_add_(1, node, ahead)
    n_pairs = ((alive * later).sum(1) * torch.zeros_like(all_behind).scatter_add_(1, node, first)).sum(1)
    per_pair = lam / torch.where(n_pairs > 0, n_pairs, 1.0)
    per_patient = LIKELIHOOD_SHARE / weight.sum(1).clamp_min(1e-12)
    loss = per_patient * (score * weight).sum(1) + per_pair * (all_behind * all_ahead).sum(1)
    if not with_gradient:
        return loss, None

    # Of the kernel in S, then through S in the hazards of all nodes up to it.
    per_pair = per_pair.unsqueeze(1) / sigma
    in_survival = behind.mul_((-per_pair * all_ahead).unsqueeze(1))
    in_survival.scatter_add_(2, at, (ahead * (per_pair * all_behind).gather(1, node)).unsqueeze(2))
    hazard = torch.sigmoid(logits)
    counted = (per_patient.unsqueeze(1) * weight).unsqueeze(2)
    gradient = (alive.mul_(counted) - in_survival.mul_(survival) @ upper.t()).mul_(hazard)
    chance = hazard.gather(2, at).squeeze(2)
    of_own = torch.where(event, chance - 1, chance - torch.sigmoid(own + left)) * inside
    gradient.scatter_add_(2, at, of_own.unsqueeze(2) * counted)
    return loss, gradient
