"""Metrics over (outcome, predicted curves): discrimination, calibration, overall error, and all of them at once."""

from dcsurv.metrics.auc import AucResult, cumulative_dynamic_auc
from dcsurv.metrics.brier import brier_score, integrated_brier_score
from dcsurv.metrics.calibration import (
    DCalibration,
    HorizonCalibration,
    calibration_at_horizon,
    d_calibration,
    ddc,
    ddc_floor,
)
from dcsurv.metrics.concordance import concordance_index_harrell, concordance_index_td, concordance_index_uno
from dcsurv.metrics.evaluation import compare, default_horizons, evaluate
from dcsurv.metrics.net_benefit import net_benefit
from dcsurv.metrics.over_time import evaluate_over_time
from dcsurv.metrics.pairs import PairCounts, pair_counts

__all__ = [
    "AucResult",
    "DCalibration",
    "HorizonCalibration",
    "PairCounts",
    "brier_score",
    "calibration_at_horizon",
    "compare",
    "concordance_index_harrell",
    "concordance_index_td",
    "concordance_index_uno",
    "cumulative_dynamic_auc",
    "d_calibration",
    "ddc",
    "ddc_floor",
    "default_horizons",
    "evaluate",
    "evaluate_over_time",
    "integrated_brier_score",
    "net_benefit",
    "pair_counts",
]
