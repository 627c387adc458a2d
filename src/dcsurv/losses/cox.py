"""Losses of the Cox family: the partial likelihood of a batch, and its case-control approximation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def cox_partial_likelihood(
    log_risk: Tensor, time: Tensor, event: Tensor, sample_weight: Tensor | None = None
) -> Tensor:
    r"""Negative log partial likelihood of a batch per observed event, with Breslow's rule for ties.

    .. math:: -\frac{\sum_i w_i d_i \left(g_i - \log \sum_{j: z_j \ge z_i} w_j e^{g_j}\right)}{\sum_i w_i d_i}

    Everybody whose time equals that of an event counts as at risk, whatever the order of the rows. A batch
    without events has the loss 0, with a gradient of 0.

    Parameters
    ----------
    log_risk : Tensor
        g, shape (n,).
    time : Tensor
        Observed times, shape (n,).
    event : Tensor
        Event indicators, shape (n,).
    sample_weight : Tensor or None, default None
        Non-negative weights of the rows, shape (n,).

    Returns
    -------
    Tensor
        A scalar.

    References
    ----------
    Katzman et al., DeepSurv, BMC Medical Research Methodology 18 (2018).
    """
    time, order = time.sort(descending=True)
    log_risk = log_risk[order]
    observed = event[order].to(log_risk.dtype)
    log_mass = log_risk
    if sample_weight is not None:
        weight = sample_weight[order].to(log_risk.dtype)
        observed = observed * weight
        # log 0 would turn the gradient of the rows before it into NaN.
        log_mass = log_risk + weight.clamp_min(torch.finfo(weight.dtype).tiny).log()
    # The risk set of a row ends with the last row of the same time.
    last_tied = torch.searchsorted(-time, -time, right=True) - 1
    log_at_risk = torch.logcumsumexp(log_mass, 0)[last_tied]
    return _mean(log_at_risk - log_risk, observed)


def case_control(case_log_risk: Tensor, control_log_risk: Tensor, sample_weight: Tensor | None = None) -> Tensor:
    r"""Case-control approximation of the partial likelihood with one control per case.

    .. math:: \frac{\sum_i w_i \log\left(1 + e^{g_{\text{control}(i)} - g_i}\right)}{\sum_i w_i}

    Case i had the event; its control was drawn from the patients at risk at that time, and both risks are
    taken at that time. Without cases the loss is 0.

    Parameters
    ----------
    case_log_risk : Tensor
        g of the cases, shape (n_cases,).
    control_log_risk : Tensor
        g of their controls, shape (n_cases,).
    sample_weight : Tensor or None, default None
        Non-negative weights of the cases, shape (n_cases,).

    Returns
    -------
    Tensor
        A scalar.

    References
    ----------
    Kvamme, Borgan and Scheel, Journal of Machine Learning Research 20 (2019).
    """
    loss = functional.softplus(control_log_risk - case_log_risk)
    return _mean(loss, torch.ones_like(loss) if sample_weight is None else sample_weight.to(loss.dtype))


def _mean(values: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean; 0, still attached to the graph, where all weights are 0."""
    total = weight.sum()
    return (weight * values).sum() / torch.where(total > 0, total, 1.0)
