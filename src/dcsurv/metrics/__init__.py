"""Metrics over (outcome, predicted curves): discrimination, calibration, overall error, and all of them at once."""

from dcsurv.metrics.auc import AucResult, cumulative_dynamic_auc
from dcsurv.metrics.brier import brier_score, integrated_brier_score
from dcsurv.metrics.calibration import HorizonCalibration, calibration_at_horizon
from dcsurv.metrics.catalogue import Metric, find_metric, from_function, list_metrics, register_metric
from dcsurv.metrics.concordance import concordance_index_harrell, concordance_index_td, concordance_index_uno
from dcsurv.metrics.distribution import DCalibration, d_calibration, ddc, ddc_floor
from dcsurv.metrics.evaluation import compare, evaluate
from dcsurv.metrics.inputs import default_horizons
from dcsurv.metrics.net_benefit import helpful_thresholds, net_benefit
from dcsurv.metrics.over_time import evaluate_over_time
from dcsurv.metrics.pairs import PairCounts, pair_counts
from dcsurv.metrics.setting import Prepared, Setting, Weighting

__all__ = [
    "AucResult",
    "DCalibration",
    "HorizonCalibration",
    "Metric",
    "PairCounts",
    "Prepared",
    "Setting",
    "Weighting",
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
    "find_metric",
    "from_function",
    "helpful_thresholds",
    "integrated_brier_score",
    "list_metrics",
    "net_benefit",
    "pair_counts",
    "register_metric",
]
