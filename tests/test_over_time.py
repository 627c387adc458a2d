from __future__ import annotations

import numpy as np
import pytest

from cohorts import random_cohort
from dcsurv.metrics import brier_score, cumulative_dynamic_auc, evaluate_over_time
from dcsurv.metrics.resampling import resample_counts


@pytest.mark.parametrize("own_weights", [True, False])
def test_values_and_intervals_are_those_of_the_single_functions(own_weights):
    y, curves = random_cohort(0, n=120)
    y_train = None if own_weights else random_cohort(1, n=200)[0]
    times = np.quantile(y["time"], [0.2, 0.5, 0.7])
    table = evaluate_over_time(y, curves, y_train, 25, times=times, random_state=3)
    draws = {"AUC": [], "Brier": []}
    for chunk in resample_counts(len(y), 25, 3):
        for counts in chunk:
            options = {"y_train": y_train, "sample_weight": counts}
            draws["AUC"].append(cumulative_dynamic_auc(y, curves, times=times, **options).auc)
            draws["Brier"].append(brier_score(y, curves, times, **options)[1])
    for name, value in (
        ("AUC", cumulative_dynamic_auc(y, curves, times=times, y_train=y_train).auc),
        ("Brier", brier_score(y, curves, times, y_train=y_train)[1]),
    ):
        part = table[table["metric"] == name]
        np.testing.assert_array_equal(part["time"], times)
        np.testing.assert_allclose(part["value"], value)
        ends = np.quantile(draws[name], [0.025, 0.975], axis=0)
        np.testing.assert_allclose(part[["lower", "upper"]].to_numpy().T, ends)


def test_default_times_are_each_metrics_own():
    y, curves = random_cohort(0, n=120)
    table = evaluate_over_time(y, curves)
    assert list(table.columns) == ["metric", "time", "value", "counted"]
    auc = cumulative_dynamic_auc(y, curves)
    np.testing.assert_array_equal(table[table["metric"] == "AUC"]["time"], auc.times)
    low, high = np.quantile(y["time"], [0.05, 0.95])
    brier = table[table["metric"] == "Brier"]["time"]
    assert (brier.min(), brier.max()) == pytest.approx((low, high))


def test_wrong_choices_are_refused():
    y, curves = random_cohort(0, n=50)
    for metrics in ("AUC", [], ["C-td"]):
        with pytest.raises(ValueError, match="a list out of"):
            evaluate_over_time(y, curves, metrics=metrics)
    with pytest.raises(ValueError, match="a share between 0 and 1"):
        evaluate_over_time(y, curves, confidence=95)
