"""What a fitted CoxPH says: hazard ratios, their errors, the proportional-hazards test; R and lifelines as oracles."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from lifelines.datasets import load_lung, load_regression_dataset, load_rossi
from lifelines.statistics import proportional_hazard_test
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler
from sksurv.datasets import load_veterans_lung_cancer

import dcsurv
from dcsurv import CoxPH, make_outcome
from dcsurv.models.cox_inference import RiskSets
from dcsurv.models.cox_summary import describe_test
from dcsurv.persistence import read

FORMAT1 = Path(__file__).parent / "fixtures" / "format1"


@pytest.fixture(scope="module")
def lung() -> pd.DataFrame:
    return load_lung()[["time", "status", "age", "sex", "ph.ecog"]].dropna()


@pytest.fixture(scope="module")
def lung_fit(lung: pd.DataFrame) -> CoxPH:
    return CoxPH(penalizer=0.0).fit(lung[["age", "sex", "ph.ecog"]], make_outcome(lung["time"], lung["status"]))


@pytest.fixture(scope="module")
def veterans() -> tuple[pd.DataFrame, np.ndarray]:
    X, y = load_veterans_lung_cancer()
    names = {"Treatment": "trt", "Celltype": "celltype", "Karnofsky_score": "karno", "Prior_therapy": "prior"}
    names |= {"Age_in_years": "age", "Months_from_Diagnosis": "diagtime"}
    return X.rename(columns=names), make_outcome(y["Survival_in_days"], y["Status"])


# --- R's printed values -----------------------------------------------------------------------------------


def test_summary_is_what_r_prints_for_lung(lung_fit):
    # summary(coxph(Surv(time, status) ~ age + sex + ph.ecog, lung)), printed at
    # https://cloud.tencent.com/developer/article/1374595
    printed = pd.DataFrame(
        {
            "coef": [0.011067, -0.552612, 0.463728],
            "hazard_ratio": [1.011128, 0.575445, 1.589991],
            "se": [0.009267, 0.167739, 0.113577],
            "z": [1.194, -3.294, 4.083],
            "p": [0.232416, 0.000986, 4.45e-05],
            "lower": [0.9929, 0.4142, 1.2727],
            "upper": [1.0297, 0.7994, 1.9864],
        },
        index=["age", "sex", "ph.ecog"],
    )
    summary = lung_fit.summary_
    assert summary["feature"].tolist() == ["age", "sex", "ph.ecog"]
    np.testing.assert_allclose(summary[printed.columns], printed, rtol=1e-3)
    np.testing.assert_allclose(summary["coef"], printed["coef"], atol=2e-6)


def test_proportional_hazards_test_is_what_r_prints_for_lung(lung_fit):
    # cox.zph of the same fit (survival 3), with seven digits, printed at
    # https://stat.ethz.ch/CRAN/web/packages/modeldiag/vignettes/introduction.html
    table = lung_fit.proportional_hazards_
    assert table.index.tolist() == ["age", "sex", "ph.ecog", "GLOBAL"]
    np.testing.assert_allclose(table["chi2"], [0.1879877, 2.3054372, 2.0542488, 4.4636576], rtol=1e-5)
    np.testing.assert_allclose(table["p"], [0.6645968, 0.1289220, 0.1517821, 0.2155549], rtol=1e-5)
    assert table["df"].tolist() == [1, 1, 1, 3]
    assert "No feature's effect changes notably" in describe_test(table)


def test_influences_are_what_r_prints_for_lung(lung, lung_fit):
    # residuals(fit, type = "dfbetas") of the first patients, printed at the same address: they make the robust errors.
    printed = [
        [0.0019898612, -0.0113782893, 0.006631006],
        [0.0083884583, -0.0044437262, -0.006509521],
        [0.1035755702, 0.1037120879, 0.2103167],
        [-0.0330380008, -0.0286728004, 0.009415764],
        [-0.0205151822, 0.0770639215, 0.1786017],
        [-0.4334763687, 0.2231627194, 0.04290399],
    ]
    time, event = lung["time"].to_numpy(float), lung["status"].to_numpy(bool)
    X = lung[["age", "sex", "ph.ecog"]].to_numpy(float)
    sets = RiskSets.of(X, time, event, lung_fit.summary_["coef"].to_numpy())
    variance = np.linalg.inv(sets.information(np.ones(event.sum())))
    np.testing.assert_allclose(np.sqrt(np.diag(variance)), lung_fit.summary_["se"], rtol=1e-6)
    influence = np.empty_like(X)
    influence[np.argsort(time, kind="stable")] = sets.score_residuals() @ variance / np.sqrt(np.diag(variance))
    np.testing.assert_allclose(influence[:6], printed, atol=1e-6)


def test_proportional_hazards_test_is_what_r_prints_for_the_veterans(veterans):
    X, y = veterans
    # cox.zph(coxph(Surv(time, status) ~ trt + prior + karno, veteran)), printed at
    # https://www.cnblogs.com/ayueme/articles/16844701.html
    table = CoxPH(penalizer=0.0).fit(X[["trt", "prior", "karno"]], y).proportional_hazards_
    np.testing.assert_allclose(table["chi2"], [0.288, 2.168, 12.138, 18.073], atol=5e-4)
    np.testing.assert_allclose(table["p"], [0.59125, 0.14087, 0.00049, 0.00042], atol=5e-6)
    assert "Effects change over time (p < 0.05): karno." in describe_test(table)


def test_levels_are_tested_together_as_r_does(veterans):
    X, y = veterans
    # summary(coxph(Surv(time, status) ~ age + celltype + prior + karno + diagtime + trt, veteran)), printed at
    # https://blog.csdn.net/leolotus/article/details/50978223; cox.zph of the same six features in "Survival Analysis"
    # by Konno Takahiro (2024), a page on GitHub: celltype 15.2274 on 3 degrees of freedom, p 0.00163, and so on.
    cells = pd.Categorical(X["celltype"], ["squamous", "smallcell", "adeno", "large"])
    model = CoxPH(penalizer=0.0).fit(X.assign(celltype=cells), y)
    summary = model.summary_
    printed = pd.DataFrame(
        {"coef": [-8.706e-03, 8.616e-01, 1.196e00], "se": [9.300e-03, 2.753e-01, 3.009e-01]},
        index=["age", "celltype_smallcell", "celltype_adeno"],
    )
    np.testing.assert_allclose(summary.loc[printed.index, ["coef", "se"]], printed, rtol=5e-4)
    assert summary.loc["celltype_adeno", ["feature", "level", "reference"]].tolist() == [
        "celltype",
        "adeno",
        "squamous",
    ]
    zph = model.proportional_hazards_
    order = ["trt", "celltype", "karno", "diagtime", "age", "prior", "GLOBAL"]
    chi2 = [0.2644, 15.2274, 12.9352, 0.0129, 1.8288, 2.1656, 34.5525]
    np.testing.assert_allclose(zph.loc[order, "chi2"], chi2, atol=5e-4)
    assert zph.loc[order, "df"].tolist() == [1, 3, 1, 1, 1, 1, 8]
    np.testing.assert_allclose(zph.loc[["celltype", "karno"], "p"], [0.00163, 0.00032], atol=5e-6)


# --- lifelines --------------------------------------------------------------------------------------------


def test_summary_equals_lifelines_on_rossi():
    rossi = load_rossi()
    X, y = rossi.drop(columns=["week", "arrest"]), make_outcome(rossi["week"], rossi["arrest"])
    theirs = CoxPHFitter().fit(rossi, "week", "arrest")
    ours = CoxPH(penalizer=0.0).fit(X, y)
    names = {"coef": "coef", "se": "se(coef)", "z": "z", "p": "p", "hazard_ratio": "exp(coef)"}
    names |= {"lower": "exp(coef) lower 95%", "upper": "exp(coef) upper 95%"}
    for mine, other in names.items():
        np.testing.assert_allclose(ours.summary_[mine], theirs.summary[other], rtol=1e-4, err_msg=mine)
    time, event = rossi["week"].to_numpy(float), rossi["arrest"].to_numpy(bool)
    sets = RiskSets.of(X.to_numpy(float), time, event, theirs.params_.to_numpy())
    residuals = theirs.compute_residuals(rossi, "schoenfeld")
    patients = np.argsort(time, kind="stable")[sets.at]
    np.testing.assert_allclose(sets.schoenfeld(), residuals.loc[rossi.index[patients]], atol=1e-8)
    # Their test is the approximation that R had until survival 3; it can be made of the same residuals.
    variance, g = theirs.variance_matrix_.to_numpy(), sets.time[sets.at] - sets.time[sets.at].mean()
    score = len(g) * (g @ sets.schoenfeld()) @ variance
    approximate = pd.Series(score**2 / (len(g) * np.diag(variance) * (g @ g)), X.columns)
    known = proportional_hazard_test(theirs, rossi, time_transform="identity").summary["test_statistic"]
    np.testing.assert_allclose(approximate[known.index], known, rtol=1e-6)


def test_errors_of_a_weighted_fit_are_robust():
    frame = load_regression_dataset()
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(frame))
    theirs = CoxPHFitter().fit(frame.assign(w=weight), "T", "E", weights_col="w", robust=True)
    X, y = frame[["var1", "var2", "var3"]], make_outcome(frame["T"], frame["E"])
    ours = CoxPH(penalizer=0.0).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(ours.summary_["coef"], theirs.params_, rtol=5e-4)
    np.testing.assert_allclose(ours.summary_["se"], theirs.standard_errors_, rtol=5e-4)
    again = CoxPH(penalizer=0.0).fit(X, y, sample_weight=1000 * weight).summary_
    pd.testing.assert_frame_equal(again, ours.summary_, rtol=1e-6)
    assert ours.proportional_hazards_["p"].isna().all(), "no test is shown that does not hold"
    assert ours.effects_over_time_.empty
    assert "robust" in " ".join(ours.remarks_)
    assert describe_test(ours.proportional_hazards_) == "Whether hazards are proportional was not tested."
    without = CoxPH(penalizer=0.0).fit(X[20:], y[20:], sample_weight=weight[20:]).summary_
    weight[:20] = 0
    zero = CoxPH(penalizer=0.0, preprocess=None).fit(X, y, sample_weight=weight).summary_
    np.testing.assert_allclose(zero["se"], without["se"], rtol=1e-4)


# --- the definition, patient by patient -------------------------------------------------------------------


def test_proportional_hazards_test_is_the_score_test_of_its_definition():
    rng = np.random.default_rng(3)
    n = 120
    X = np.column_stack([rng.normal(size=n), rng.integers(0, 2, n), rng.normal(size=n)])
    time = np.ceil(rng.exponential(8, n) * np.exp(-0.5 * X[:, 0]))  # many ties
    event = rng.random(n) < 0.7
    model = CoxPH(penalizer=0.0, preprocess=None).fit(X, make_outcome(time, event))
    X = X.astype(np.float32).astype(float)
    survival = 1.0
    score, information = np.zeros(6), np.zeros((6, 6))
    steps = []
    for t in np.unique(time):
        dying = (time == t) & event
        for k in range(dying.sum()):
            weight = np.where(time >= t, np.exp(X @ model.coef_), 0.0)
            weight[dying] *= 1 - k / dying.sum()
            steps.append((1 - survival, X[dying].mean(axis=0), weight / weight.sum()))
        survival *= 1 - dying.sum() / (time >= t).sum()
    middle = np.mean([g for g, *_ in steps])
    for g, had, share in steps:
        both = np.column_stack([X, (g - middle) * X])
        score += np.append(had, (g - middle) * had) - share @ both
        information += (both.T * share) @ both - np.outer(share @ both, share @ both)
    np.testing.assert_allclose(score[:3], 0, atol=1e-3)
    score[:3] = 0
    table = model.proportional_hazards_
    for j in range(3):
        kept = [0, 1, 2, 3 + j]
        one = score[kept] @ np.linalg.solve(information[np.ix_(kept, kept)], score[kept])
        assert table["chi2"].iloc[j] == pytest.approx(one, rel=1e-4)
    assert table.loc["GLOBAL", "chi2"] == pytest.approx(score @ np.linalg.solve(information, score), rel=1e-4)


def test_an_effect_that_fades_is_seen_to_fade():
    rng = np.random.default_rng(0)
    n = 3000
    x, other = rng.integers(0, 2, n).astype(float), rng.normal(size=n)
    # Hazard ratio 4 until time 1, then 1; the other column's is e^0.5 for good.
    hazard = np.exp(0.5 * other)
    early = rng.exponential(1 / (0.4 * np.where(x == 1, 4.0, 1.0) * hazard))
    time = np.where(early < 1, early, 1 + rng.exponential(1 / (0.4 * hazard)))
    end = rng.uniform(0.5, 4.0, n)
    y = make_outcome(np.minimum(time, end), time <= end)
    model = CoxPH().fit(pd.DataFrame({"x": x, "other": other}), y)
    table = model.proportional_hazards_
    assert table.loc["x", "p"] < 1e-10
    assert table.loc["other", "p"] > 0.05
    curve = model.effects_over_time_.set_index("column")
    assert 20 <= len(curve.loc["x"]) <= 50
    fading = curve.loc["x"].set_index("time")
    assert fading["lower"].loc[:0.3].gt(0.9).all()
    assert fading["effect"].loc[1.9:2.5].abs().lt(0.4).all()
    constant = curve.loc["other"]
    assert ((constant["lower"] < 0.5) & (constant["upper"] > 0.5)).all()
    assert np.diff(fading.index).min() > 0


# --- units, labels, edges ---------------------------------------------------------------------------------


def test_hazard_ratios_are_per_original_unit(lung):
    y = make_outcome(lung["time"], lung["status"])
    years = CoxPH().fit(lung[["age", "sex"]], y).summary_
    months = CoxPH().fit(lung[["age", "sex"]].assign(age=12 * lung["age"]), y).summary_
    for name in ("coef", "se"):
        assert months.loc["age", name] * 12 == pytest.approx(years.loc["age", name], rel=1e-5)
    assert months.loc["age", "p"] == pytest.approx(years.loc["age", "p"])
    assert years["step"].tolist() == [10.0, 1.0]
    assert months["step"].tolist() == [100.0, 1.0]


def test_every_column_has_a_row_that_says_what_it_is():
    rng = np.random.default_rng(5)
    n = 400
    X = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(60, 10, n)),
            "stage": rng.choice(["I", "II", "III"], n),
            "male": rng.random(n) < 0.5,
            "constant": 7.0,
            "one level": "same",
        }
    )
    y = make_outcome(rng.exponential(5, n), rng.random(n) < 0.7)
    model = CoxPH().fit(X, y)
    table = model.summary_
    assert table.index.tolist() == model.preprocessor_.get_feature_names_out().tolist()
    assert table["feature"].tolist() == ["age", "stage", "stage", "male", "constant", "one level"]
    assert table["level"].tolist() == [None, "II", "III", "True", None, None]
    assert table["reference"].tolist() == [None, "I", "I", "False", None, None]
    nothing = table.loc[["constant", "one level"]]
    assert (nothing["hazard_ratio"] == 1).all()
    assert nothing[["se", "p", "lower"]].isna().all(axis=None)
    tests = model.proportional_hazards_
    assert tests["df"].tolist() == [1, 2, 1, 0, 0, 4]
    assert tests.loc["constant"].isna().tolist() == [True, False, True]
    assert set(model.effects_over_time_["column"]) == {"age", "stage_II", "stage_III", "male_True"}


def test_without_names_or_with_another_transformer_the_units_are_said(lung):
    y = make_outcome(lung["time"], lung["status"])
    features = lung[["age", "sex"]]
    assert CoxPH(preprocess=None).fit(features.to_numpy(), y).summary_.index.tolist() == ["x0", "x1"]
    scaled = CoxPH(preprocess=StandardScaler()).fit(features, y)
    assert scaled.summary_.index.tolist() == ["age", "sex"]
    assert "per unit after preprocessing with StandardScaler" in " ".join(scaled.remarks_)
    own = CoxPH().fit(features, y).summary_
    assert scaled.summary_.loc["age", "coef"] == pytest.approx(own.loc["age", "coef"] * features["age"].std(ddof=0))


def test_penalised_fits_say_so(lung, lung_fit):
    y = make_outcome(lung["time"], lung["status"])
    assert lung_fit.remarks_ == []
    penalised = CoxPH(penalizer=0.5).fit(lung[["age", "sex", "ph.ecog"]], y)
    assert "penalised (penalizer 0.5)" in penalised.remarks_[0]
    assert (penalised.summary_["coef"].abs() < lung_fit.summary_["coef"].abs()).all()
    theirs = CoxPHFitter(penalizer=0.5).fit(lung, "time", "status")
    np.testing.assert_allclose(penalised.summary_["se"], theirs.standard_errors_, rtol=1e-3)


def test_who_has_no_level_of_his_own_is_said_to_be_in_another_also_after_a_file(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({
        "site": ["A"] * 100 + ["B"] * 100 + [f"R{k // 4:02}" for k in range(96)] + [None] * 4,
        "age": np.where(np.arange(300) < 12, np.nan, rng.normal(60, 9, 300)),
        "sex": rng.choice(["f", "m"], 300),
    })  # fmt: skip
    model = CoxPH().fit(X, make_outcome(rng.exponential(100, 300) + 1, rng.random(300) < 0.7))
    model.save(tmp_path / "cox")
    for one in (model, dcsurv.load(tmp_path / "cox")):
        (remark,) = [text for text in one.remarks_ if "Unknown values" in text]
        assert "of 300 patients, 100 in 'site', 12 in 'age'. Hazard ratios of that level, and against it" in remark
    known = CoxPH().fit(X[["sex"]], make_outcome(np.arange(1, 301), np.ones(300)))
    assert not [text for text in known.remarks_ if "Unknown values" in text]


def test_an_effect_that_the_patients_do_not_tell_is_called_so():
    rng = np.random.default_rng(0)
    drug = rng.integers(0, 2, 200)
    X = pd.DataFrame({"drug": drug, "age": rng.normal(60, 9, 200)})
    y = make_outcome(rng.exponential(100, 200) + 1, (drug == 0) & (rng.random(200) < 0.8))
    remarks = CoxPH(penalizer=0.0).fit(X, y).remarks_
    assert [text for text in remarks if text.startswith("These patients do not tell the effect of 'drug': nearly all")]
    twice = X.assign(more=2 * X["age"])
    remarks = CoxPH().fit(twice, make_outcome(y["time"], y["time"] > 20)).remarks_
    assert [text for text in remarks if "effect of 'age', 'more'" in text]


@pytest.mark.parametrize("penalizer", [0.0, 1e-6])
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_that_are_nearly_the_same_are_fitted_to_the_maximum(penalizer, weighted):
    """lifelines stops far below it, with a warning; along sum and difference of the columns it gets there."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    age = np.round(60 + 10 * x, 1)
    time, end = rng.exponential(np.exp(-0.4 * x)), rng.uniform(0, 3, 300)
    y = make_outcome(np.ceil(100 * np.minimum(time, end)), time <= end)  # with ties
    weight = rng.uniform(0.5, 2, 300) * (np.arange(300) > 9) if weighted else None
    X = pd.DataFrame({"x": x, "age": age})
    model = CoxPH(penalizer=penalizer).fit(X, y, sample_weight=weight)
    turned = X.assign(age=age - 60 - 10 * x)
    best = CoxPH(penalizer=0.0).fit(turned, y, sample_weight=weight)
    allowed = 1e-4 if penalizer == 0 else 1.0  # what the penalty costs
    assert best.log_likelihood_ - allowed < model.log_likelihood_ < best.log_likelihood_ + 1e-4
    if penalizer == 0:
        np.testing.assert_allclose(model.predict(X), best.predict(turned), rtol=1e-2)
        theirs = best.summary_["coef"]
        np.testing.assert_allclose(model.summary_["coef"], [theirs["x"] - 10 * theirs["age"], theirs["age"]], rtol=0.02)
        np.testing.assert_allclose(model.summary_.loc["age", "se"], best.summary_.loc["age", "se"], rtol=0.02)


def test_a_column_beside_its_rounding_and_its_cube_is_fitted_with_the_default_penalty():
    rng = np.random.default_rng(4)
    x = rng.normal(size=100)
    time, end = rng.exponential(np.exp(-0.5 * x)), rng.exponential(1.5, 100)
    y = make_outcome(np.minimum(time, end) + 1e-3, time <= end)
    model = CoxPH().fit(pd.DataFrame({"x": x, "rounded": x.round(1), "cube": x**3}), y)
    alone = CoxPH().fit(pd.DataFrame({"x": x}), y).log_likelihood_
    assert alone < model.log_likelihood_ < alone + 8, "two columns more cannot make it worse, and they say nothing new"


def test_columns_that_say_the_same_do_not_break_the_test(lung):
    y = make_outcome(lung["time"], lung["status"])
    once = CoxPH(penalizer=0.01).fit(lung[["age", "sex"]], y).proportional_hazards_
    twice = CoxPH(penalizer=0.01).fit(lung[["age", "sex"]].assign(again=lung["age"]), y).proportional_hazards_
    assert np.isfinite(twice["p"]).all()
    assert twice.loc["GLOBAL", "df"] == 2, "of three columns, two say something"
    assert twice.loc["GLOBAL", "chi2"] == pytest.approx(once.loc["GLOBAL", "chi2"], rel=0.05)


def test_few_events_give_no_curves_and_one_event_no_test():
    rng = np.random.default_rng(2)
    X = pd.DataFrame({"a": rng.normal(size=60)})
    time = rng.exponential(5, 60)
    few = CoxPH().fit(X, make_outcome(time, np.arange(60) < 12))
    assert few.effects_over_time_.empty
    assert np.isfinite(few.proportional_hazards_["p"]).all()
    one = CoxPH().fit(X, make_outcome(time, np.arange(60) < 1))
    assert one.proportional_hazards_["p"].isna().all()
    with pytest.raises(NotFittedError):
        _ = CoxPH().summary_


def test_tests_and_errors_travel_with_the_file(lung_fit, veterans, tmp_path):
    X, y = veterans
    for model in (lung_fit, CoxPH().fit(X, y), CoxPH().fit(X, y, sample_weight=np.linspace(1, 2, len(y)))):
        model.save(tmp_path / "m.safetensors")
        back = dcsurv.load(tmp_path / "m.safetensors")
        for table in ("summary_", "proportional_hazards_", "effects_over_time_"):
            pd.testing.assert_frame_equal(getattr(back, table), getattr(model, table), rtol=0, atol=0)
        assert back.remarks_ == model.remarks_


def test_what_is_kept_does_not_grow_with_the_patients(tmp_path):
    rng = np.random.default_rng(4)

    def kept(n: int) -> dict[str, tuple[int, ...]]:
        X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["x", "y", "z"], n)})
        CoxPH().fit(X, make_outcome(rng.exponential(5, n), rng.random(n) < 0.6)).save(tmp_path / "m.safetensors")
        return {k: v.shape for k, v in read(tmp_path / "m.safetensors")[1].items() if k.startswith("summary.")}

    few = kept(100)
    assert few == kept(700)
    assert sum(np.prod(shape) for shape in few.values()) < 250


def test_a_file_of_version_0_1_has_hazard_ratios_and_says_what_it_lacks():
    path = next(FORMAT1.glob("CoxPH*"))
    model = dcsurv.load(path)
    with pytest.warns(UserWarning, match="are not in this model's file, which dcsurv 0.1 wrote"):
        table = model.summary_
    assert np.isfinite(table["hazard_ratio"]).all()
    assert table[["se", "z", "p", "lower", "upper"]].isna().all(axis=None)
    assert model.proportional_hazards_["p"].isna().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.effects_over_time_.empty
