"""Bands of S(t | x) and bounds of the time: what they are made of, what they hold, and what a file keeps of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import dcsurv
from dcsurv import CalibratedEnsemble, CoxPH, Recalibrated
from dcsurv.calibration import refits
from dcsurv.curves import SurvivalCurves
from dcsurv.datasets import load_flchain, simulate
from dcsurv.models.bands import Backing, BandSources, band_around
from dcsurv.models.time_bounds import TimeBounds

FORMAT1 = Path(__file__).parent / "fixtures" / "format1"
TIMES = np.array([0.2, 1.0, 3.0, 6.0])


@pytest.fixture(scope="module")
def cohort() -> Any:
    return simulate("exponential", 300, censored=0.4, random_state=1)


@pytest.fixture(scope="module")
def fitted(cohort: Any) -> CalibratedEnsemble:
    return ensemble().fit(cohort.X[:200], cohort.y[:200])


def ensemble(**settings: Any) -> CalibratedEnsemble:
    """Two quick families, so that nothing here waits for networks."""
    chosen = {"estimator": CoxPH(), "companions": ["spline-aft"], "n_members": 5, "random_state": 0, **settings}
    return CalibratedEnsemble(**chosen)


# --- the band -------------------------------------------------------------------------------------------------


def test_a_band_holds_the_curve_and_is_one() -> None:
    times = np.array([0.0, 1.0, 2.0, 3.0])
    survival = np.array([[1.0, 1.0, 0.9, 0.0], [1.0, 0.7, 0.7, 0.2]])
    band = band_around(times, survival, np.array([[0.0, 0.3, 0.5, 0.5]] * 2), np.array([0.0, 0.05, 0.05, 0.05]))
    assert (band.lower <= survival).all()
    assert (survival <= band.upper).all()
    assert (band.lower >= 0).all()
    assert (band.upper <= 1).all()
    for end in (band.lower, band.upper):
        assert (np.diff(end, axis=1) <= 0).all()
    assert (band.lower[:, 0] == 1).all(), "nobody has died at the start"
    assert band.lower[0, 1] == pytest.approx(np.exp(-(0.05**2))), "certain survival is not certain to be right"
    alone = band_around(times[1:2], survival[1:, 1:2], np.array([[0.3]]), np.zeros(1))
    hazard = -np.log(0.7)
    np.testing.assert_allclose(alone.lower, np.exp(-hazard * np.exp(0.3)))
    np.testing.assert_allclose(alone.upper, np.exp(-hazard * np.exp(-0.3)))


def test_patients_behind_a_band_are_counted() -> None:
    everybody = simulate("administrative", 400, censored=0.01).y
    np.testing.assert_allclose(Backing.of(everybody)(TIMES), 400, rtol=0.02)
    lost = simulate("exponential", 400, censored=0.8).y
    behind = Backing.of(lost)(np.quantile(lost["time"][lost["event"]], [0.1, 0.5, 0.95]))
    assert (np.diff(behind) < 0).all()
    assert 150 < behind[-1] < 350
    again = Backing.from_state(Backing.of(lost).get_state())
    np.testing.assert_array_equal(again(TIMES), Backing.of(lost)(TIMES))
    twice = np.where(np.arange(400) % 2 == 0, 2.0, 0.0)
    assert Backing.of(everybody, twice)(TIMES).max() < 260, "patients without weight stand behind nothing"
    for wrong in ({"times": [2.0, 1.0], "patients": [5.0, 5.0]}, {"times": [1.0], "patients": [0.0]}):
        with pytest.raises(ValueError, match=r"ascending times|patients\[0\]: expected float > 0"):
            Backing.from_state(wrong)


def test_reaches_are_the_formula_of_the_reference() -> None:
    curves = [SurvivalCurves([1.0, 2.0], [[0.9, s]], interpolation="linear") for s in (0.5, 0.6, 0.55)]
    hundred = Backing(np.array([1.0]), np.array([100.0]))
    sources = BandSources(curves, 4 / 3, [(1.0, curves[0])], [(8.0, hundred)], curves[0])
    at = np.array([0.25, 1.0, 2.0])
    each = np.log(-np.log([0.5, 0.6, 0.55]))
    assert sources.relative_reach(at, 0.9)[0, 1] == pytest.approx(0, abs=1e-9)
    assert sources.relative_reach(at, 0.9)[0, 2] == pytest.approx(2.92 * np.sqrt(4 / 3) * each.std(ddof=1), rel=1e-3)
    whole = norm.ppf(0.95) * np.sqrt(8 / 400)
    np.testing.assert_allclose(sources.absolute_reach(at, 0.9), [whole / 2, whole, whole])
    two = sources._replace(families=[(0.5, curves[0]), (0.5, curves[1])])
    more = two.relative_reach(at, 0.9)[0, 2] ** 2 - sources.relative_reach(at, 0.9)[0, 2] ** 2
    assert more == pytest.approx(norm.ppf(0.95) ** 2 * (each[0] - each[1]) ** 2 / 4)


@pytest.mark.parametrize("hazards", ["proportional", "non-proportional"])
def test_bands_hold_the_truth(hazards: Any) -> None:
    """The full study is benchmarks/bands.py; the jackknife alone holds .3 to .7 early where hazards cross."""
    held = []
    for seed in range(4):
        drawn = simulate("exponential", 320, hazards=hazards, censored=0.5, random_state=seed)
        times = np.quantile(drawn.y["time"][drawn.y["event"]], [0.05, 0.5, 0.9])
        band = ensemble().fit(drawn.X[:220], drawn.y[:220]).predict_band(drawn.X[220:], times)
        true = drawn.truth(times)[220:]
        held.append(((band.lower <= true) & (true <= band.upper)).mean(axis=0))
    assert np.mean(held) > 0.85
    assert np.mean(held, axis=0).min() > 0.7


def test_a_small_local_cohort_widens_the_bands(fitted: CalibratedEnsemble, cohort: Any) -> None:
    few, many = (Recalibrated(fitted).fit(cohort.X[:n], cohort.y[:n]) for n in (40, 300))
    sources = few.band_sources(few.prepare(cohort.X[:3]))
    assert [numbers for numbers, _ in sources.fitted_on] == [8.0, 2.0]
    reach = [one.band_sources(one.prepare(cohort.X[:3])).absolute_reach(TIMES, 0.9) for one in (few, many)]
    assert (reach[0] > reach[1]).all()


def test_models_of_version_01_keep_their_bands() -> None:
    old = dcsurv.load(FORMAT1 / "CalibratedEnsemble.safetensors")
    rows = load_flchain()[0][:3]
    band = old.predict_band(rows, old.nodes[:5])
    assert (band.lower < band.upper).all()
    assert old.refits_ == []
    with pytest.raises(ValueError, match=r"calibrate_interval\(X, y\)"):
        old.predict_interval(rows)
    with pytest.raises(ValueError, match="a band needs the spread of several"):
        dcsurv.load(FORMAT1 / "CoxPH.safetensors").predict_band(rows)
    moved = dcsurv.load(FORMAT1 / "recalibrated-calibrated.safetensors")
    assert moved.has_band
    assert moved.backing_.patients.tolist() == [moved.fitted_on_.patients]


# --- refits ---------------------------------------------------------------------------------------------------


def test_refits_change_the_bands_and_nothing_else(fitted: CalibratedEnsemble, cohort: Any, tmp_path: Path) -> None:
    X, y, new = cohort.X[:200], cohort.y[:200], cohort.X[200:]
    resampled = ensemble(bands="bootstrap", n_refits=2).fit(X, y)
    parallel = ensemble(bands="bootstrap", n_refits=2, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(resampled.predict(new), fitted.predict(new))
    band = resampled.predict_band(new, TIMES)
    assert not np.array_equal(band.lower, fitted.predict_band(new, TIMES).lower)
    np.testing.assert_array_equal(parallel.predict_band(new, TIMES).lower, band.lower)
    resampled.save(tmp_path / "model")
    restored = dcsurv.load(tmp_path / "model")
    np.testing.assert_array_equal(restored.predict_band(new, TIMES).lower, band.lower)
    assert len(restored.refits_) == 2
    with pytest.raises(ValueError, match="bands is 'jackknife'"):
        ensemble(bands="jackknife").fit(X, y)


def test_copies_of_a_patient_never_part(cohort: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patient drawn twice is one row of weight 2, so that no fold is predicted by those who have seen it."""
    seen = []

    def fit_member(self: Any, X: Any, y: Any, weight: Any, follow_up: Any, groups: Any) -> Any:
        seen.append((len(np.unique(X, axis=0)), len(X), weight.sum()))
        return self

    monkeypatch.setattr(CalibratedEnsemble, "fit_member", fit_member)
    rows = np.arange(300.0, dtype=np.float32)[:, None]
    refits.refitted(ensemble(), [1, 2], rows, cohort.y, None, None)
    assert all(distinct == rows and total == 300 for distinct, rows, total in seen)
    assert seen[0] != seen[1]


# --- the time itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["exponential", "administrative", "staggered"])
def test_bounds_hold_whatever_the_curves(design: Any) -> None:
    """Curves that are far too optimistic: the plain quantile misses, the bound does not."""
    held, plain, both = [], [], []
    for seed in range(12):
        drawn = simulate(design, 600, censored=0.4, random_state=seed)
        wrong = SurvivalCurves(drawn.truth.times, drawn.truth.values**0.5)
        groups = (drawn.could_follow > np.median(drawn.could_follow)).astype(int)
        old, new = np.arange(300), np.arange(300, 600)
        bounds = TimeBounds.fit(drawn.y[old], wrong[old].at_own(drawn.y["time"][old]), groups[old], 2, None)
        found = bounds.interval(wrong[new], groups[new], 0.1, both=False)
        held.append(drawn.truth[new].at_own(found.lower).mean())
        assert np.isinf(found.upper).all()
        late = np.nan_to_num(wrong[new].quantile(0.1), nan=wrong.times[-1])
        plain.append(drawn.truth[new].at_own(np.minimum(late, wrong.times[-1])).mean())
        lower, upper = bounds.interval(wrong[new], groups[new], 0.2, both=True)
        above = np.where(np.isinf(upper), 0, drawn.truth[new].at_own(np.minimum(upper, wrong.times[-1])))
        both.append((drawn.truth[new].at_own(lower) - above).mean())
    # The standard error of the mean over 12 cohorts of 300 is about .005.
    assert 0.885 < np.mean(held) < 0.96
    assert np.mean(plain) < 0.86
    assert np.mean(both) > 0.785


def test_bounds_are_of_patients_not_seen(fitted: CalibratedEnsemble, cohort: Any, tmp_path: Path) -> None:
    new = cohort.X[200:]
    lower, upper = fitted.predict_interval(new, 0.9)
    assert (lower > 0).all()
    assert np.isinf(upper).all()
    assert (fitted.predict_interval(new, 0.95).lower <= lower).all()
    assert (fitted.predict_interval(new, 0.999).lower == 0).all(), "200 patients cannot say"
    both = fitted.predict_interval(new, 0.8, side="both")
    np.testing.assert_array_equal(both.lower, lower)
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(dcsurv.load(tmp_path / "model").predict_interval(new).lower, lower)
    for wrong, message in (({"confidence": 1.0}, "confidence is 1"), ({"side": "upper"}, "side is 'upper'")):
        with pytest.raises(ValueError, match=message):
            fitted.predict_interval(new, **wrong)
    bare = fitted.before_recalibration()
    assert bare is not None
    with pytest.raises(ValueError, match="not trained on"):
        bare.predict_interval(new)


def test_any_model_can_be_shown_patients(fitted: CalibratedEnsemble, cohort: Any, tmp_path: Path) -> None:
    cox = CoxPH().fit(cohort.X[:150], cohort.y[:150])
    with pytest.raises(ValueError, match="this CoxPH has not seen"):
        cox.predict_interval(cohort.X)
    before = cox.predict(cohort.X)
    lower = cox.calibrate_interval(cohort.X[150:], cohort.y[150:]).predict_interval(cohort.X).lower
    np.testing.assert_array_equal(cox.predict(cohort.X), before)
    cox.save(tmp_path / "cox")
    np.testing.assert_array_equal(dcsurv.load(tmp_path / "cox").predict_interval(cohort.X).lower, lower)
    local = Recalibrated(fitted).fit(cohort.X[200:], cohort.y[200:])
    local.save(tmp_path / "local")
    expected = local.predict_interval(cohort.X).lower
    assert not np.array_equal(expected, fitted.predict_interval(cohort.X).lower)
    np.testing.assert_array_equal(dcsurv.load(tmp_path / "local").predict_interval(cohort.X).lower, expected)
    state = cox.time_bounds_.get_state() if cox.time_bounds_ is not None else {}
    with pytest.raises(ValueError, match=r"early\[0\]: expected float <= 1"):
        TimeBounds.from_state({**state, "early": [2.0]}, n_groups=1)
