from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from cohorts import random_cohort
from dcsurv import SurvivalCurves
from dcsurv.curves import as_curves

KINDS = ["linear", "constant_hazard", "step"]
TIMES = np.array([1.0, 2.0, 4.0])
VALUES = np.array([[0.9, 0.5, 0.2], [0.8, 0.7, 0.6]])


def square(survival, times):
    return survival**2


def test_linear_interpolation_by_hand():
    curves = SurvivalCurves(TIMES, VALUES)
    np.testing.assert_allclose(curves([0, 0.5, 1, 3, 4])[0], [1, 0.95, 0.9, 0.35, 0.2])
    assert curves(3.0).shape == (2,)
    assert curves[0](3.0) == pytest.approx(0.35)
    np.testing.assert_allclose(curves[-1]([1, 2]), [0.8, 0.7])


def test_constant_hazard_and_step_interpolation_by_hand():
    np.testing.assert_allclose(SurvivalCurves(TIMES, VALUES, interpolation="constant_hazard")(3.0)[0], np.sqrt(0.1))
    np.testing.assert_allclose(SurvivalCurves(TIMES, VALUES, interpolation="step")([0.9, 1, 3.9])[0], [1, 0.9, 0.5])


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_the_last_node_curves_are_held_and_say_so(kind):
    curves = SurvivalCurves(TIMES, VALUES, interpolation=kind)
    with pytest.warns(UserWarning, match="beyond the last node 4"):
        np.testing.assert_allclose(curves(99.0), VALUES[:, -1])
    assert curves[0].domain == (0.0, 4.0)


def test_the_map_acts_after_interpolation():
    """Mapping nodes first would swap these two patients between the nodes."""
    values = np.array([[0.9, 0.1], [0.52, 0.5]])
    mapped = SurvivalCurves([1, 2], values, transform=lambda s, t: np.where(s < 0.55, s / 10, s))
    np.testing.assert_allclose(mapped(1.5), np.where(np.array([0.5, 0.51]) < 0.55, [0.05, 0.051], 0))
    np.testing.assert_allclose(mapped.values, [[0.9, 0.01], [0.052, 0.05]])
    plain = SurvivalCurves([1, 2], values)
    assert np.sign(np.diff(mapped(1.5))) == np.sign(np.diff(plain(1.5)))


@given(seed=st.integers(0, 500), kind=st.sampled_from(KINDS), mapped=st.booleans(), p=st.floats(0.05, 0.95))
def test_quantiles_are_where_the_curve_first_reaches_the_level(seed, kind, mapped, p):
    _, curves = random_cohort(seed, n=15, n_times=6)
    curves = SurvivalCurves(curves.times, curves.values, interpolation=kind, transform=square if mapped else None)
    at = curves.quantile(p)
    reached = ~np.isnan(at)
    assert (curves.evaluate(curves.times[-1:])[~reached, 0] > 1 - p).all(), "NaN only where the level is not reached"
    if reached.any():
        some = curves[reached]
        assert (some.at_own(at[reached]) <= 1 - p + 1e-12).all()
        assert (some.at_own(np.maximum(at[reached] * (1 - 1e-9) - 1e-12, 0)) >= 1 - p - 1e-6).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transform", [None, square])
@pytest.mark.parametrize("t", [0.7, 2.0, 3.3, 6.0])
def test_restricted_mean_is_the_area_under_the_curve(kind, transform, t):
    curves = SurvivalCurves(TIMES, VALUES, interpolation=kind, transform=transform)
    expected = [
        quad(lambda u, i=i: curves.evaluate(np.array([u]))[i, 0], 0, t, points=[1, 2, 4], limit=200)[0]
        for i in range(2)
    ]
    np.testing.assert_allclose(curves.rmst(t), expected, rtol=1e-6 if transform is None else 5e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_conditional_survival_is_the_ratio(kind):
    curves = SurvivalCurves(TIMES, VALUES, interpolation=kind)
    later = curves.conditional(after=1.5)
    u = np.array([0, 0.2, 0.5, 1.7, 2.5])
    np.testing.assert_allclose(later(u), curves(1.5 + u) / curves(1.5)[:, None], rtol=1e-12)
    mapped = curves.with_transform(square).conditional(after=1.0)
    np.testing.assert_allclose(mapped(3.0), curves(4.0) ** 2 / curves(1.0) ** 2)
    with pytest.raises(ValueError, match="curves end at 4"):
        curves.conditional(after=4)
    with pytest.raises(ValueError, match="1 of 1 curves are 0"):
        SurvivalCurves([1, 2], [[0, 0]]).conditional(after=1)


def test_risk_and_cumulative_hazard():
    curves = SurvivalCurves([1, 2], [[0.5, 0.0]])
    assert curves.risk(1.0)[0] == pytest.approx(0.5)
    np.testing.assert_allclose(curves.cumulative_hazard([1.0, 2.0])[0], [np.log(2), -np.log(1e-12)])


def test_frames_arrays_rows_and_iteration():
    curves = SurvivalCurves(TIMES, VALUES)
    frame = curves.to_frame(index=["a", "b"])
    assert frame.loc["a", 2.0] == 0.5
    again = SurvivalCurves.from_frame(frame)
    np.testing.assert_array_equal(np.asarray(again), VALUES)
    assert len(curves[[1]]) == 1
    assert len(curves[np.array([True, False])]) == 1
    assert [round(float(one(2.0)), 2) for one in curves] == [0.5, 0.7]
    assert curves.project([1.0, 3.0]).values[0].tolist() == pytest.approx([0.9, 0.35])
    assert "2 patients" in repr(curves)
    with pytest.raises(IndexError, match="there are 2"):
        curves[2]
    with pytest.raises(ValueError, match="transpose"):
        SurvivalCurves.from_frame(pd.DataFrame({"anna": [1, 0.5]}))


def test_node_at_time_zero_may_lie_below_one():
    """A Kaplan-Meier or Breslow curve drops at time 0 where events happen there."""
    curves = SurvivalCurves([0.0, 1.0], [[0.9, 0.5]])
    np.testing.assert_allclose(curves([0, 0.5])[0], [0.9, 0.7])


def test_float32_is_kept_and_read_in_double_precision():
    curves = SurvivalCurves(TIMES, VALUES.astype(np.float32))
    assert curves._table.dtype == np.float32
    assert curves(3.0).dtype == np.float64
    assert curves(3.0)[0] == pytest.approx((np.float64(np.float32(0.5)) + np.float64(np.float32(0.2))) / 2, abs=1e-15)


def test_rounding_is_flattened_silently():
    curves = SurvivalCurves([1, 2, 3], [[0.5, 0.5 + 1e-8, 0.4]])
    assert curves.values[0].tolist() == [0.5, 0.5, 0.4]


@pytest.mark.parametrize(
    ("times", "values", "words"),
    [
        ([2, 1], [[0.5, 0.4]], "strictly ascending, but 2 is followed by 1"),
        ([1, 1], [[0.5, 0.4]], "strictly ascending"),
        ([-1, 1], [[0.5, 0.4]], "not negative"),
        ([1, np.inf], [[0.5, 0.4]], "finite"),
        ([1, 2], [[0.5, 0.4, 0.3]], r"\(patients, 2\) is expected"),
        ([1, 2], [[0.4, 0.5]], "must never rise, but curve 0 rises by 0.1"),
        ([1, 2], [[1.4, 0.5]], r"must lie in \[0, 1\]"),
        ([1, 2], [[np.nan, 0.5]], "NaN in 1 of 1"),
        ([1, 2], np.empty((0, 2)), "no rows"),
        ([1, 2], [["a", "b"]], "must be numbers"),
        ([], [[]], "one-dimensional"),
    ],
)
def test_bad_curves_are_refused_in_words(times, values, words):
    with pytest.raises(ValueError, match=words):
        SurvivalCurves(times, values)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c(-1.0), "not negative"),
        (lambda c: c([[1.0]]), "one-dimensional"),
        (lambda c: c([np.nan]), "finite"),
        (lambda c: c.at_own([1.0]), "one time per curve"),
        (lambda c: c.rmst([1.0, 2.0]), "one time is expected here; got 2"),
        (lambda c: c.conditional([1.0, 2.0]), "one time is expected here"),
        (lambda c: c.quantile(1.5), "p is 1.5"),
        (lambda c: SurvivalCurves(TIMES, VALUES, interpolation="cubic"), "interpolation is 'cubic'"),
        (lambda c: as_curves([1, 2]), "got list"),
        (lambda c: as_curves(c, 5), "2 curves for 5 patients"),
        (lambda c: c.plot(rows=[0], labels=["a", "b"]), "2 labels arrived for 1"),
    ],
)
def test_bad_questions_are_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call(SurvivalCurves(TIMES, VALUES))


def test_plot_draws_every_curve():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ax = SurvivalCurves(TIMES, VALUES).plot(time_unit="years")
    assert len(ax.lines) == 2
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0, 1], [1, 0.9], [2, 0.5], [4, 0.2]])
    assert ax.get_xlabel() == "time (years)"
    plt.close(ax.figure)


def test_patients_keep_their_names():
    curves = SurvivalCurves(TIMES, VALUES, index=["a", "b"], followed_to=[3.0, 4.0])
    assert curves.to_frame().index.tolist() == ["a", "b"]
    assert curves.to_frame(index=[7, 8]).index.tolist() == [7, 8]
    for kept in (curves.with_transform(square), curves.project([1.0, 3.0]), curves.conditional(1.0)):
        assert kept.index.tolist() == ["a", "b"]
    assert curves[[1]].to_frame().index.tolist() == ["b"]
    assert curves[np.array([False, True])].index.tolist() == ["b"]
    frame = curves.to_frame()
    assert SurvivalCurves.from_frame(frame).to_frame().equals(frame)
    assert SurvivalCurves(TIMES, VALUES).to_frame().index.tolist() == [0, 1]
    with pytest.raises(ValueError, match="index has 3 entries, but one per curve, 2"):
        SurvivalCurves(TIMES, VALUES, index=[1, 2, 3])
