from __future__ import annotations

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from cohorts import CASES, random_cohort
from dcsurv import make_outcome
from dcsurv.datasets import load
from dcsurv.nonparametric import breslow, censoring_curve, kaplan_meier


def cohorts():
    for name, settings in CASES.items():
        yield pytest.param(random_cohort(3, **settings)[0], id=name)
    for name in ("support", "metabric", "flchain"):
        yield pytest.param(load(name)[1], id=name)


@pytest.mark.parametrize("y", list(cohorts()))
def test_kaplan_meier_equals_lifelines(y):
    at = np.unique(np.concatenate([y["time"], np.linspace(0, y["time"].max() * 1.1, 50)]))
    expected = KaplanMeierFitter().fit(y["time"], y["event"]).predict(at)
    np.testing.assert_allclose(kaplan_meier(y)(at), expected, atol=1e-12)
    expected = KaplanMeierFitter().fit(y["time"], ~y["event"]).predict(at)
    np.testing.assert_allclose(censoring_curve(y, events_first=False)(at), expected, atol=1e-12)


@pytest.mark.parametrize("y", list(cohorts()))
def test_censoring_curve_equals_scikit_survival(y):
    from sksurv.nonparametric import kaplan_meier_estimator

    times, expected = kaplan_meier_estimator(y["event"], y["time"], reverse=True)
    np.testing.assert_allclose(censoring_curve(y)(times), expected, atol=1e-12)


def test_weights_count_as_copies():
    y, _ = random_cohort(5, n=60, tied_times=True)
    counts = np.random.default_rng(0).integers(0, 4, len(y))
    copies = np.repeat(y, counts)
    at = np.linspace(0, 40, 80)
    np.testing.assert_allclose(kaplan_meier(y, sample_weight=counts)(at), kaplan_meier(copies)(at), atol=1e-12)
    np.testing.assert_allclose(censoring_curve(y, sample_weight=counts)(at), censoring_curve(copies)(at), atol=1e-12)


def test_left_limits():
    curve = kaplan_meier(make_outcome([1, 2], [1, 1]))
    assert curve([0.5, 1, 2]).tolist() == [1, 0.5, 0]
    assert curve.before([0.5, 1, 2]).tolist() == [1, 1, 0.5]


def test_breslow_without_features_is_nelson_aalen():
    from lifelines import NelsonAalenFitter

    y, _ = random_cohort(2, tied_times=True)
    times, hazard = breslow(y["time"], y["event"], np.ones(len(y)))
    fitter = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(y["time"], y["event"])
    np.testing.assert_allclose(hazard, fitter.predict(times), atol=1e-12)
