"""How many patients a model needs, against published numbers, and what a table is told."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import dcsurv
from dcsurv.cohort import Cohort, Finding, check_cohort, parse_horizons
from dcsurv.datasets import load_metabric
from dcsurv.messages import InputError

# Inputs and results of the survival tests that pmsampsize 1.1 for R ships (tests/testthat/test_surv.R on CRAN): R²,
# parameters, rate, time, mean follow-up; patients by the first and the second criterion, events per parameter.
PMSAMPSIZE = [
    (0.051, 25, 0.065, 2, 2.07, 4286, 866, 23.07),
    (0.065, 25, 0.065, 2, 2.07, 3335, 859, 17.95),
    (0.051, 50, 0.065, 2, 2.07, 8572, 1731, 23.07),
    (0.051, 25, 0.1, 2, 2.07, 4286, 731, 35.49),
    (0.051, 25, 0.065, 4, 2.07, 4286, 866, 23.07),
    (0.051, 25, 0.065, 2, 4, 4286, 679, 44.57),
    (0.06, 40, 0.08, 3, 5, 5798, 969, 57.98),
    (0.03, 10, 0.09, 3, 3, 2950, 272, 79.65),
    (0.3, 80, 0.03, 1, 5, 1974, 2272, 4.26),
]


@pytest.mark.parametrize(("r2", "p", "rate", "time", "follow_up", "first", "second", "per_parameter"), PMSAMPSIZE)
def test_published_numbers_come_out(
    r2: float, p: int, rate: float, time: float, follow_up: float, first: int, second: int, per_parameter: float
) -> None:
    needed = dcsurv.sample_size(p, rate=rate, mean_follow_up=follow_up, time=time, r2=r2)
    assert needed.for_shrinkage == first
    # pmsampsize rounds the events among 10,000 patients up before it takes the largest R² from them.
    assert abs(needed.for_optimism - second) <= 1
    assert needed.patients == max(needed.for_shrinkage, needed.for_optimism)
    assert round(needed.patients * rate * follow_up / p, 2) == pytest.approx(per_parameter, abs=0.005)


def test_the_example_of_the_paper_comes_out() -> None:
    """Riley et al. 2019, part II: recurrent venous thromboembolism, 30 parameters, 23 events per parameter."""
    needed = dcsurv.sample_size(30, rate=0.065, mean_follow_up=2.07, time=2, r2=0.051)
    assert (needed.patients, needed.events) == (5143, 692)
    assert needed.events / 30 == pytest.approx(23.07, abs=0.01)
    assert needed.r2_max == pytest.approx(0.55, abs=0.005)
    assert needed.risk_interval(5143) == pytest.approx((0.113, 0.130), abs=0.0005)


def test_a_time_so_late_that_nobody_is_left_is_no_reason_to_fail() -> None:
    needed = dcsurv.sample_size(10, rate=0.01, mean_follow_up=50, time=1e12, r2=0.1)
    assert needed.risk == 1.0
    assert needed.patients >= needed.for_shrinkage > 0


def test_the_overall_risk_is_known_to_the_margin_and_no_better() -> None:
    # What pmsampsize printed for a study of colon cancer, with the interval (0.527, 0.561) around 0.544.
    needed = dcsurv.sample_size(23, rate=0.01090496, mean_follow_up=68, time=72, r2=0.08543513)
    assert needed.patients == 2306
    assert needed.risk == pytest.approx(0.544, abs=0.0005)
    assert needed.risk_interval(2306) == pytest.approx((0.527, 0.561), abs=0.0005)

    def widest(patients: int) -> float:
        return max(abs(end - needed.risk) for end in needed.risk_interval(patients))

    assert widest(needed.for_risk) <= 0.05 < widest(needed.for_risk - 1)


def test_fewer_patients_allow_fewer_parameters_and_shrink_more() -> None:
    needed = dcsurv.sample_size(12, rate=0.1, mean_follow_up=4, time=5)
    assert needed.r2 == pytest.approx(0.15 * needed.r2_max)
    assert needed.expected_shrinkage(needed.for_shrinkage) == pytest.approx(0.9, abs=1e-3)
    shrinkage = [needed.expected_shrinkage(n) for n in (50, 200, 800, 3200)]
    assert shrinkage == sorted(shrinkage)
    assert needed.most_parameters(needed.patients) == 12
    for n in (300, 900):
        most = needed.most_parameters(n)
        fits = [dcsurv.sample_size(p, rate=0.1, mean_follow_up=4, time=5) for p in (most, most + 1)]
        assert max(fits[0].for_shrinkage, fits[0].for_optimism) <= n
        assert max(fits[1].for_shrinkage, fits[1].for_optimism) > n
    assert needed.to_dict()["patients"] == needed.patients


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": 1.0}, "rate"),  # four events per patient
        ({"time": math.nan}, "time"),
        ({"shrinkage": 1.0}, "shrinkage"),
        ({"r2": 0.9}, "r2"),
        ({"r2_nagelkerke": 0.0}, "r2_nagelkerke"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, float], parameter: str) -> None:
    with pytest.raises(InputError) as refused:
        dcsurv.sample_size(12, **{"rate": 0.1, "mean_follow_up": 4.0, "time": 5.0, **wrong})  # type: ignore[arg-type]
    assert refused.value.parameter == parameter


def finding(frame: pd.DataFrame, horizons: str = "") -> Finding:
    asked = parse_horizons(horizons, "days") if horizons else []
    found = check_cohort(Cohort.from_frame(frame, time="days", event="died", unit="days"), asked)
    return next(one for one in found if one.code == "sample-size")


def metabric(n: int) -> pd.DataFrame:
    X, y = load_metabric()
    return X.assign(days=y["time"], died=y["event"].astype(int)).sample(n, random_state=0)


def test_a_table_that_is_large_enough_is_told_so_with_the_numbers() -> None:
    frame = metabric(1904)
    found = finding(frame)
    assert found.severity == "note"
    needed = dcsurv.sample_size(
        9,
        rate=frame["died"].sum() / frame["days"].sum(),
        mean_follow_up=frame["days"].mean(),
        time=found.numbers["horizon"],
        r2=found.numbers["r2"],
    )
    assert found.numbers["patients_needed"] == needed.patients < 1904
    # A Cox model of these columns by lifelines, and its likelihood ratio with the nine that chance gives taken off.
    from lifelines import CoxPHFitter

    ratio = (
        CoxPHFitter()
        .fit(pd.get_dummies(frame, drop_first=True), "days", "died")
        .log_likelihood_ratio_test()
        .test_statistic
    )
    assert found.numbers["r2"] == pytest.approx((1 - 9 / ratio) * (1 - np.exp(-ratio / 1904)), rel=1e-3)


def test_a_table_that_is_too_small_is_told_what_to_do() -> None:
    small = finding(metabric(150))
    assert small.severity == "warning"
    assert small.numbers["expected_shrinkage"] < 0.9
    assert "Keep at most" in small.remedy
    assert small.numbers["most_parameters"] < 9


def test_with_hardly_an_event_per_column_the_usual_share_is_assumed() -> None:
    found = finding(metabric(20))
    assert found.numbers["r2"] == pytest.approx(0.15 * found.numbers["r2_max"])
    assert "usual assumption" in found.message
    noise = np.random.default_rng(0)
    frame = pd.DataFrame({"x": noise.normal(size=300), "days": noise.exponential(size=300), "died": 1})
    assert "usual assumption" in finding(frame).message  # chance explains as much


def test_a_column_that_is_the_outcome_does_not_break_the_check() -> None:
    frame = metabric(300)
    assert finding(frame.assign(copy=frame["days"])).numbers["r2"] < 1


def test_without_censoring_there_are_as_many_events_as_patients() -> None:
    frame = metabric(500).assign(died=1)
    told = finding(frame)
    assert told.numbers["events_needed"] == told.numbers["patients_needed"]
    for n in range(1, 60):  # 1 / n times n is not always 1
        needed = dcsurv.sample_size(12, rate=1 / n, mean_follow_up=n, time=5)
        assert needed.events == needed.patients


def test_a_horizon_beyond_the_follow_up_does_not_make_patients_enough() -> None:
    frame = metabric(250)
    few = finding(frame, "5y")
    assert few.severity == "warning"
    assert finding(frame, "5y,90y") == few
    late = finding(frame, "90y")  # of those of the cohort, then
    assert late == finding(frame)
    assert "90 years" not in late.message
