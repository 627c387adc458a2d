"""Likelihoods of discrete hazards: the censored likelihood itself, and the loss of DRSA."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

# The logarithm of a share that is left of an interval, where nothing is.
LOG_NOTHING = -60.0


def discrete_likelihood(
    logits: Tensor, bucket: Tensor, event: Tensor, passed: Tensor, log_survival: Tensor | None = None
) -> Tensor:
    r"""Negative log-likelihood of each patient under curves that run linearly between the nodes.

    With the hazards :math:`h_l = \mathrm{sigmoid}(a_l)` and :math:`S_l = \prod_{j \le l} (1 - h_j)`,

    .. math:: -\log S_{l_i - 1} - d_i \log h_{l_i} - (1 - d_i) \log (1 - f_i h_{l_i})

    Patients count only in the intervals in which they were at risk, and those who were censored inside an interval for
    the share f of it that they were seen in. So the hazards are right whenever censoring is independent of the event
    *given the features*, however the features decide how long a patient could be followed.

    Parameters
    ----------
    logits : Tensor
        a, shape (n, L).
    bucket : Tensor
        0-based index of the first node at or after the observed time; L beyond the grid, which says only that the
        patient outlived the grid, event or not. Shape (n,).
    event : Tensor
        Event indicators, shape (n,).
    passed : Tensor
        f, the share of the last interval that lies before the observed time, 1 at the node. Shape (n,).
    log_survival : Tensor or None, default None
        The logarithm of S, shape (n, L), if it is there already.

    Returns
    -------
    Tensor
        One value per patient, shape (n,).
    """
    n_nodes = logits.shape[1]
    if log_survival is None:
        log_survival = functional.logsigmoid(-logits).cumsum(1)
    inside = bucket < n_nodes
    before = log_survival.gather(1, (bucket - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    before = torch.where(bucket > 0, before, 0.0)
    own = logits.gather(1, bucket.clamp(max=n_nodes - 1).unsqueeze(1)).squeeze(1)
    # log(1 - f h) = log(1 + (1 - f) e^a) - log(1 + e^a); at f = 1 the first term is to vanish, not to be log 0.
    left = torch.log1p(-passed).clamp_min(LOG_NOTHING)
    within = torch.where(
        event.bool(), functional.logsigmoid(own), functional.softplus(own + left) - functional.softplus(own)
    )
    return -before - torch.where(inside, within, 0.0)


def drsa(logits: Tensor, bucket: Tensor, event: Tensor, *, alpha: float, sample_weight: Tensor | None = None) -> Tensor:
    r"""Loss of deep recurrent survival analysis, summed over the batch.

    With the hazards :math:`h_l = \mathrm{sigmoid}(a_l)` and :math:`S_l = \prod_{j \le l} (1 - h_j)`,

    .. math:: \alpha L_z + (1 - \alpha) L_c

    - :math:`L_z = -\sum_{d_i = 1} (\log h_{l_i} + \log S_{l_i - 1})`: an event happened in its bucket,
    - :math:`L_c = -\sum_{d_i = 0} \log S_{l_i} - \sum_{d_i = 1} \log (1 - S_{l_i})`: a censored patient
      outlived its bucket, an event happened by the end of its bucket.

    Everything is computed from the logits, so that no hazard of 0 or 1 leads to an infinite loss. A time
    beyond the grid says only that the patient outlived the grid, event or not.

    Parameters
    ----------
    logits : Tensor
        a, shape (n, L).
    bucket : Tensor
        0-based index of the first node at or after the observed time; L beyond the grid. Shape (n,).
    event : Tensor
        Event indicators, shape (n,).
    alpha : float
        Share of the first term, between 0 and 1.
    sample_weight : Tensor or None, default None
        Non-negative weights of the rows, shape (n,).

    Returns
    -------
    Tensor
        A scalar.

    References
    ----------
    Ren et al., Deep recurrent survival analysis, AAAI 2019.
    """
    n_nodes = logits.shape[1]
    event = event.bool() & (bucket < n_nodes)
    at = bucket.clamp(max=n_nodes - 1).unsqueeze(1)
    log_survival = functional.logsigmoid(-logits).cumsum(1)
    log_s = log_survival.gather(1, at).squeeze(1)
    logit_at = logits.gather(1, at).squeeze(1)
    # log h + log S before the bucket = log S through the bucket + log(h / (1 - h)), which is the logit.
    event_loss = -alpha * (log_s + logit_at) - (1 - alpha) * _log1mexp(log_s)
    loss = torch.where(event, event_loss, -(1 - alpha) * log_s)
    return loss.sum() if sample_weight is None else (loss * sample_weight).sum()


def _log1mexp(log_p: Tensor) -> Tensor:
    """Return log(1 - exp(log_p)) for log_p < 0 without cancellation at either end."""
    # A survival that rounds to 1 would give log 0; the bound keeps the loss and its gradient finite.
    log_p = log_p.clamp(max=-torch.finfo(log_p.dtype).tiny)
    small = log_p > -math.log(2)
    # Each branch gets a harmless argument where the other is taken: NaN gradients pass through torch.where.
    near_one = torch.log(-torch.expm1(torch.where(small, log_p, -1.0)))
    near_zero = torch.log1p(-torch.exp(torch.where(small, -1.0, log_p)))
    return torch.where(small, near_one, near_zero)
