"""Losses: pure functions of tensors, each returning a scalar to minimise (or its parts)."""

from dcsurv.losses.calibrated import (
    calibrated_ranking,
    censoring_node_weight,
    likelihood_ranking,
    ranked_probability_score,
    ranking_kernel,
    survival_from_logits,
)
from dcsurv.losses.cox import case_control, cox_partial_likelihood
from dcsurv.losses.discrete import discrete_likelihood, drsa
from dcsurv.losses.stacked import StackedOutcomes, stacked_likelihood_ranking

__all__ = [
    "StackedOutcomes",
    "calibrated_ranking",
    "case_control",
    "censoring_node_weight",
    "cox_partial_likelihood",
    "discrete_likelihood",
    "drsa",
    "likelihood_ranking",
    "ranked_probability_score",
    "ranking_kernel",
    "stacked_likelihood_ranking",
    "survival_from_logits",
]
