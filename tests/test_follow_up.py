"""Follow-up that depends on the features: finding it, weighting by it, and what it did to models and metrics.

Simulated cohorts have a known truth; the curves of the default of version 0.1.0, which was wrong there, are a fixture.
"""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from sksurv.linear_model import CoxPHSurvivalAnalysis

import dcsurv
from dcsurv import CoxPH, FollowUp, SurvivalCurves, make_outcome, metrics, study_follow_up
from dcsurv.calibration import HorizonMap, MapSequence, RankPreservingMap
from dcsurv.datasets import load_flchain, simulate
from dcsurv.datasets.simulated import Design
from dcsurv.follow_up.score import cox_slopes
from dcsurv.metrics.censoring import CensoringModel
from dcsurv.metrics.inputs import SortedCohort

DESIGNS = get_args(Design)
DEPENDENT = ("staggered", "drift", "centre", "risk")
TIMES = np.array([2.0, 4.0, 6.0, 8.0])
BEFORE = Path(__file__).parent / "fixtures" / "before"


def before(name: str) -> SurvivalCurves:
    """Return what the default of version 0.1.0 predicted."""
    saved = np.load(BEFORE / f"{name}.npz")
    return SurvivalCurves(saved["times"], saved["thousandths"] / 1000)


# --- finding it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("n", [500, 4000])
def test_features_that_decide_follow_up_are_found_and_no_others(design: Design, n: int) -> None:
    cohort = simulate(design, n, random_state=3)
    found = study_follow_up(cohort.X, cohort.y)
    assert found.depends == (design in DEPENDENT)
    if design in ("staggered", "centre"):
        culprit = "enrolled" if design == "staggered" else "centre"
        assert found.features[0].feature == culprit
        assert found.features[0].concordance > 0.85
        assert [one.feature for one in found.features if one.concordance > 0.55] == [culprit]
        assert found.describe().startswith(f"{culprit} (concordance 0.9")
    if design not in DEPENDENT:
        assert found.describe() == ""
        assert (found.groups == 0).all()


def test_chance_is_rarely_taken_for_dependence() -> None:
    found = [
        study_follow_up(c.X, c.y).depends for c in (simulate("exponential", 300, random_state=k) for k in range(60))
    ]
    assert sum(found) <= 3


def test_groups_were_followed_alike() -> None:
    cohort = simulate("staggered", 4000, random_state=1)
    found = study_follow_up(cohort.X, cohort.y)
    assert len(found.followed_until) > 8
    spread = [np.ptp(cohort.could_follow[found.groups == k]) for k in range(len(found.followed_until))]
    assert np.median(spread) < 2.0  # of ten years
    until = found.followed_until[found.groups]
    assert np.corrcoef(until, cohort.could_follow)[0, 1] > 0.98


def test_new_patients_find_their_group() -> None:
    old, new = (simulate("centre", n, random_state=n) for n in (2000, 500))
    model = CoxPH().fit(old.X, old.y)
    until = model.predict_followed_to(new.X)
    for name, longest in {"Aachen": 3, "Bremen": 5, "Cologne": 7, "Dresden": 9, "Erfurt": 11}.items():
        mine = until[new.X["centre"] == name]
        assert np.median(mine) == pytest.approx(longest, rel=0.08)


def test_the_slopes_are_those_of_a_cox_model() -> None:
    cohort = simulate("risk", 600)
    X = cohort.X[["age", "marker", "grade"]].to_numpy()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    lost, time = ~cohort.y["event"], np.ascontiguousarray(cohort.y["time"]) + 1e-9 * np.arange(600)  # no ties
    peer = CoxPHSurvivalAnalysis(alpha=2.0, ties="breslow").fit(X, dcsurv.make_outcome(time, lost))
    np.testing.assert_allclose(cox_slopes(X, time, lost), peer.coef_, atol=1e-4)


def test_few_patients_or_no_censoring_make_one_group() -> None:
    cohort = simulate("staggered", 500)
    few = study_follow_up(cohort.X[:40], cohort.y[:40])
    assert not few.depends
    assert np.isnan(few.concordance)
    y = cohort.y.copy()
    y["event"] = True
    everybody = study_follow_up(cohort.X, y)
    assert not everybody.depends
    assert everybody.followed_until[0] == y["time"].max()


def test_what_is_no_number_is_left_out() -> None:
    cohort = simulate("staggered", 500)
    odd = cohort.X.assign(empty=np.nan, note=[f"patient {k} was seen" for k in range(500)], big=np.inf)
    plain, found = study_follow_up(cohort.X, cohort.y), study_follow_up(odd, cohort.y)
    np.testing.assert_array_equal(found.groups, plain.groups)
    nothing = study_follow_up(odd[["empty", "note"]], cohort.y)
    assert not nothing.depends
    assert study_follow_up(cohort.X["enrolled"].to_numpy()[:, None], cohort.y).features[0].feature == "column 0"


def test_weights_of_zero_are_patients_who_are_not_there() -> None:
    cohort = simulate("staggered", 800)
    weight = np.repeat([1.0, 0.0], 400)
    some = study_follow_up(cohort.X, cohort.y, sample_weight=weight)
    alone = study_follow_up(cohort.X[:400], cohort.y[:400])
    np.testing.assert_array_equal(some.groups[:400], alone.groups)
    np.testing.assert_array_equal(some.followed_until, alone.followed_until)


def test_its_state_is_plain_and_comes_back() -> None:
    import json

    cohort = simulate("drift", 1000)
    found = study_follow_up(cohort.X.drop(columns="centre").to_numpy(), cohort.y, names=list("abcdef"))
    X = cohort.X.drop(columns="centre").to_numpy()
    state = json.loads(json.dumps(found.get_state(), allow_nan=False))
    again = FollowUp.from_state(state, 6)
    np.testing.assert_array_equal(again.followed_to(X), found.followed_to(X))
    assert again.describe() == found.describe()


@pytest.mark.parametrize(
    "damage",
    [
        {"followed_until": [1.0]},
        {"followed_until": [float("nan")] * 3},
        {"score": None},
        {"columns": [99] * 6},
        {"slopes": [[1.0, 2.0]]},
        {"cuts": [3.0, 2.0, 1.0]},
    ],
    ids=["ends", "nan", "no-score", "columns", "slopes", "cuts"],
)
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    cohort = simulate("drift", 400)
    X = cohort.X.drop(columns="centre").to_numpy()
    state = study_follow_up(X, cohort.y, names=list("abcdef")).get_state()
    for name, value in damage.items():
        (state if name in state else state["score"])[name] = value
    with pytest.raises(ValueError, match="follow"):
        FollowUp.from_state(state, 6)


# --- weighting by it ----------------------------------------------------------------------------------------------


def population(truth: SurvivalCurves, t: float, use: np.ndarray) -> tuple[float, float]:
    """Return the Brier score and the AUC of the true curves, expected over the outcomes of these patients."""
    s = np.sort(truth.evaluate(np.array([t]))[use, 0])
    above = s.sum() - np.cumsum(s) + s / 2
    return float((s * (1 - s)).mean()), float(((1 - s) * above).sum() / ((1 - s).sum() * s.sum()))


@pytest.mark.parametrize("design", DESIGNS)
def test_metrics_of_the_true_model_meet_their_population_values(design: Design) -> None:
    errors: dict[str, list[float]] = {"Brier": [], "AUC": [], "O/E": [], "ICI": [], "IBS": []}
    for seed in range(20, 26):
        cohort = simulate(design, 10_000, random_state=seed)
        found = study_follow_up(cohort.X, cohort.y)
        censoring: Any = found if found.depends else "marginal"
        model = CensoringModel(SortedCohort(cohort.y), None, "before", found if found.depends else None)
        counts = model.counts(TIMES)[found.groups]
        brier = metrics.brier_score(cohort.y, cohort.truth, TIMES, censoring=censoring)[1]
        auc = metrics.cumulative_dynamic_auc(cohort.y, cohort.truth, times=TIMES, censoring=censoring).auc
        for k, t in enumerate(TIMES):
            true_brier, true_auc = population(cohort.truth, float(t), counts[:, k])
            errors["Brier"].append(brier[k] - true_brier)
            errors["AUC"].append(auc[k] - true_auc)
            at = metrics.calibration_at_horizon(cohort.y, cohort.truth, float(t), censoring=censoring)
            errors["O/E"].append(at.ratio - 1)
            errors["ICI"].append(at.ici)
    assert abs(np.mean(errors["Brier"])) < 0.005
    assert np.abs(np.reshape(errors["Brier"], (6, 4)).mean(axis=0)).max() < 0.01
    assert np.abs(np.reshape(errors["AUC"], (6, 4)).mean(axis=0)).max() < 0.01
    assert np.abs(np.reshape(errors["O/E"], (6, 4)).mean(axis=0)).max() < 0.03
    assert np.mean(errors["ICI"]) < 0.015


def test_one_curve_of_censoring_for_all_is_wrong_there() -> None:
    cohort = simulate("drift", 10_000, random_state=20)
    by, one = (
        metrics.evaluate(cohort.y, cohort.truth, X=cohort.X, censoring=c, horizons=[6.0], n_null=0).set_index("metric")[
            "value"
        ]
        for c in ("auto", "marginal")
    )
    assert abs(by["O/E"] - 1) < 0.03
    # Within tenths of predicted risk follow-up is alike enough for the observed risk, but not for curve and slope.
    assert abs(one["O/E"] - 1) < 0.05
    assert abs(by["Calibration intercept"]) < 0.1 < abs(one["Calibration intercept"])
    assert by["ICI"] < 0.015 < 0.045 < one["ICI"]


def test_unos_c_and_net_benefit_follow_the_features() -> None:
    uno: dict[str, list[float]] = {"marginal": [], "by-features": []}
    benefit: dict[str, list[float]] = {"marginal": [], "by-features": []}
    for seed in range(5, 9):
        # The same patients, lost because they are sick, and by chance.
        cohort, whole = (simulate(design, 6000, random_state=seed) for design in ("risk", "exponential"))
        np.testing.assert_array_equal(cohort.X["age"], whole.X["age"])
        risk = -cohort.truth.rmst()
        by_chance = metrics.concordance_index_uno(whole.y, risk, tau=8.0)
        true_risk = 1 - cohort.truth(6.0)
        true_benefit = float(np.where(true_risk >= 0.3, true_risk - (1 - true_risk) * 3 / 7, 0).mean())
        for c in ("marginal", "by-features"):
            options: dict[str, Any] = {"X": cohort.X, "censoring": c}
            uno[c].append(metrics.concordance_index_uno(cohort.y, risk, tau=8.0, **options) - by_chance)
            table = metrics.net_benefit(cohort.y, cohort.truth, 6.0, thresholds=[0.3], **options)
            benefit[c].append(table["net_benefit"][0] - true_benefit)
    assert abs(np.mean(uno["by-features"])) < 0.4 * abs(np.mean(uno["marginal"])), uno
    assert abs(np.mean(benefit["by-features"])) < 0.008 < abs(np.mean(benefit["marginal"])), benefit


@pytest.mark.filterwarnings("ignore:Brier score")  # nobody is followed beyond the end of the study
def test_one_group_gives_what_one_curve_gives() -> None:
    cohort = simulate("exponential", 600)
    table = [
        metrics.evaluate(cohort.y, cohort.truth, n_bootstrap=20, X=cohort.X, censoring=c) for c in ("auto", "marginal")
    ]
    pd.testing.assert_frame_equal(*table)
    assert (table[0]["counted"] == 1).all()


@pytest.mark.filterwarnings("ignore:Brier score")
def test_groups_alike_give_what_one_curve_gives() -> None:
    """Two halves with the very same outcomes: the weights of each are those of the whole."""
    cohort = simulate("exponential", 300)
    y = np.concatenate([cohort.y, cohort.y])
    curves = SurvivalCurves(cohort.truth.times, np.concatenate([cohort.truth.values] * 2))
    groups = FollowUp(True, 0.6, 0.0, (), np.repeat([0, 1], 300), np.array([11.0, 11.0]))
    by, one = (
        metrics.evaluate(y, curves, censoring=c, horizons=[3.0, 6.0], n_null=0).query("metric != 'O/E'")
        for c in (groups, "marginal")  # without groups the observed risk is averaged over tenths of predicted risk
    )
    np.testing.assert_allclose(by["value"], one["value"], atol=1e-9)
    risk = -curves.rmst()
    assert metrics.concordance_index_uno(y, risk, tau=8.0, censoring=groups) == pytest.approx(
        metrics.concordance_index_uno(y, risk, tau=8.0), abs=1e-9
    )
    columns = ["net_benefit", "treat_all", "treated"]
    by, one = (
        metrics.net_benefit(y, curves, 6.0, thresholds=[0.1, 0.4], censoring=c)[columns] for c in (groups, "marginal")
    )
    np.testing.assert_allclose(by["treat_all"], one["treat_all"], atol=1e-9)
    # Within the treated, one weighs by the censoring of all, the other by their own.
    np.testing.assert_allclose(by, one, atol=0.02)


def test_resampling_estimates_every_group_anew() -> None:
    cohort = simulate("staggered", 500, random_state=2)
    found = study_follow_up(cohort.X, cohort.y)
    table = metrics.evaluate(cohort.y, cohort.truth, n_bootstrap=40, n_null=0, censoring=found, horizons=[3.0])
    inside = table.dropna(subset="lower").query("metric != 'DDC' and metric != 'ICI'")
    assert ((inside["lower"] <= inside["value"]) & (inside["value"] <= inside["upper"])).all()
    counts = np.random.default_rng(0).multinomial(500, np.full(500, 1 / 500)).astype(float)
    rows = np.repeat(np.arange(500), counts.astype(int))
    weighted = metrics.brier_score(cohort.y, cohort.truth, [3.0], censoring=found, sample_weight=counts)[1]
    copied = metrics.brier_score(cohort.y[rows], cohort.truth[rows], [3.0], censoring=found.take(rows))[1]
    np.testing.assert_allclose(weighted, copied, atol=1e-12)


def test_a_table_says_what_its_weights_follow_and_who_counts() -> None:
    cohort = simulate("staggered", 1500)
    table = metrics.evaluate(cohort.y, cohort.truth, X=cohort.X, horizons=[2.0, 8.0]).set_index(["metric", "horizon"])
    assert "given the features (enrolled" in table.loc[("ICI", 8.0), "convention"]
    assert 0.2 < table.loc[("ICI", 8.0), "counted"] < 0.45 < 0.8 < table.loc[("O/E", 2.0), "counted"] < 1
    assert table.xs("C-td").iloc[0]["counted"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"censoring": "by-features"}, "pass X"),
        ({"censoring": "by-feature"}, "'auto', 'marginal', 'by-features'"),
        ({"censoring": study_follow_up(np.zeros((3, 1)), ([1, 2, 3], [1, 0, 1]))}, "made from 3 patients"),
        ({"X": np.zeros((3, 1))}, "X has 3 rows"),
    ],
    ids=["no-X", "typo", "others", "short"],
)
def test_wrong_choices_are_named(options: dict[str, Any], words: str) -> None:
    cohort = simulate("staggered", 200)
    with pytest.raises(ValueError, match=words):
        metrics.evaluate(cohort.y, cohort.truth, **options)


@pytest.mark.parametrize("design", DESIGNS)
def test_maps_leave_the_truth_alone(design: Design) -> None:
    cohort = simulate(design, 5000, random_state=11)
    times = np.linspace(0.5, 9, 18)
    truth = cohort.truth.evaluate(times)

    def moved(**options: Any) -> float:
        fitted = MapSequence([HorizonMap(), RankPreservingMap()]).fit(cohort.y, cohort.truth, **options)
        return float(np.abs(fitted.transform(cohort.truth).evaluate(times) - truth).mean())

    assert moved(X=cohort.X) < 0.0125
    if design in ("drift", "risk"):  # where censoring depends on what also decides survival
        assert moved(censoring="marginal") > 1.3 * moved(X=cohort.X)


# --- what it did --------------------------------------------------------------------------------------------------


def flchain_split() -> tuple[pd.DataFrame, Any, np.ndarray, np.ndarray]:
    X, y = load_flchain()
    return X, y, *dcsurv.train_test_indices(y, random_state=0)


def test_what_version_0_1_predicted_on_flchain_is_no_longer_praised() -> None:
    X, y, train, test = flchain_split()
    cox = CoxPH().fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[test])
    score = {
        (name, censoring): metrics.integrated_brier_score(y[test], curves, X=X.iloc[test], censoring=censoring)
        for name, curves in (("before", before("flchain")), ("CoxPH", cox))
        for censoring in ("auto", "marginal")
    }
    assert score["before", "marginal"] < score["CoxPH", "marginal"]  # the artefact
    assert score["before", "auto"] > score["CoxPH", "auto"]


def test_what_version_0_1_predicted_in_the_simulation_is_no_longer_praised() -> None:
    train, test = (simulate("staggered", n, random_state=seed) for n, seed in ((4000, 1), (1500, 2)))
    cox = CoxPH().fit(train.X, train.y).predict_survival_function(test.X)
    default, marginal = (
        [metrics.integrated_brier_score(test.y, c, X=test.X, censoring=how) for c in (before("staggered"), cox)]
        for how in ("auto", "marginal")
    )
    assert default[0] > default[1]
    late = (test.X["enrolled"] > 2007).to_numpy()
    assert before("staggered").evaluate(np.array([6.0]))[late].mean() < 0.2  # the truth is .6
    assert marginal[0] - marginal[1] < default[0] - default[1]


@pytest.mark.parametrize("design", ["staggered", "drift", "centre"])
def test_the_default_is_right_where_patients_could_not_be_followed(design: Design) -> None:
    train, test = (simulate(design, n, random_state=seed) for n, seed in ((2000, 1), (1500, 2)))
    model = dcsurv.CalibratedEnsemble(n_members=3, seeds_per_member=1, random_state=0).fit(train.X, train.y)
    times = np.array([2.0, 4.0, 6.0, 8.0, 10.0])
    curves, truth = model.predict_survival_function(test.X).evaluate(times), test.truth.evaluate(times)
    late = test.could_follow < 4
    assert np.abs(curves - truth).mean() < 0.05
    assert np.abs(curves[late].mean(axis=0) - truth[late].mean(axis=0)).max() < 0.08


def test_flchain_by_year_of_enrolment() -> None:
    X, y, train, test = flchain_split()
    model = dcsurv.CalibratedEnsemble(seeds_per_member=1, random_state=0).fit(X.iloc[train], y[train])
    cox = CoxPH().fit(X.iloc[train], y[train])
    ours, theirs = (m.predict_survival_function(X.iloc[test], [4600.0]).values[:, 0] for m in (model, cox))
    by_year = pd.DataFrame({"year": X["sample_yr"].iloc[test].astype(int), "gap": ours - theirs}).groupby("year")["gap"]
    gaps = by_year.mean()[by_year.size() >= 20]
    assert len(gaps) >= 5
    assert gaps.abs().max() < 0.05, gaps


# --- where users meet it ------------------------------------------------------------------------------------------


def test_curves_know_how_far_such_patients_were_followed(tmp_path: Path) -> None:
    cohort = simulate("staggered", 1000)
    model = CoxPH().fit(cohort.X, cohort.y)
    curves = model.predict_survival_function(cohort.X)
    np.testing.assert_array_equal(curves.followed_to, model.predict_followed_to(cohort.X))
    np.testing.assert_array_equal(curves[[3, 5]].followed_to, curves.followed_to[[3, 5]])
    assert curves[3:4].conditional(after=1.0).followed_to[0] == pytest.approx(curves.followed_to[3] - 1)
    late = int(np.argmax(cohort.X["enrolled"]))
    ax = curves.plot(rows=[late])
    solid, dashed = ax.get_lines()
    assert solid.get_xdata()[-1] == dashed.get_xdata()[0] == curves.followed_to[late]
    assert solid.get_color() == dashed.get_color()
    assert dashed.get_xdata()[-1] == curves.times[-1]
    model.save(tmp_path / "m.safetensors")
    again = dcsurv.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict_followed_to(cohort.X), curves.followed_to)
    assert again.follow_up_.describe() == model.follow_up_.describe()


def test_a_fitted_model_keeps_nothing_per_patient() -> None:
    cohort = simulate("staggered", 1000)
    for model in (CoxPH(), dcsurv.CalibratedEnsemble(estimator=CoxPH(), n_members=2)):
        fitted = model.fit(cohort.X, cohort.y)
        assert fitted.follow_up_.depends
        assert len(fitted.follow_up_.groups) == 0


def test_the_paper_keeps_its_score_and_old_files_say_which_they_had() -> None:
    assert dcsurv.DCS().training_criterion == "likelihood"
    assert dcsurv.DCS(convention="paper").training_criterion == "ranked"
    assert dcsurv.paper_settings("DCS-quant", "metabric").training_criterion == "ranked"
    fixtures = Path(__file__).parent / "fixtures" / "format1"
    model, ensemble = (dcsurv.load(fixtures / f"{name}.safetensors") for name in ("DCS", "CalibratedEnsemble"))
    assert model.criterion in ("ranked", "weighted")
    assert model.follow_up_ is None
    assert all(
        member.criterion in ("ranked", "weighted") for member in ensemble.members_ if hasattr(member, "criterion")
    )
    with pytest.raises(ValueError, match="criterion is 'brier'"):
        dcsurv.DCS(criterion="brier").fit(np.zeros((4, 1)), ([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables of patients enrolled over ten years, in days, and a model fitted to one of them."""
    out = tmp_path_factory.mktemp("staggered")
    for name, seed in (("patients", 1), ("others", 2)):
        cohort = simulate("staggered", 700, random_state=seed)
        days = (cohort.y["time"] * 365.25).round() + 1
        cohort.X.assign(days=days, died=cohort.y["event"].astype(int)).to_csv(out / f"{name}.csv", index=False)
    model = ["--model", "coxph", "--horizons", "1y,8y", "--bootstrap", "5"]
    said = run("fit", out / "patients.csv", *OUTCOME, "--unit", "days", *model, "-o", out / "m.safetensors")
    (out / "fit.txt").write_text(" ".join((said.stdout + said.stderr).split()))
    return out


OUTCOME = ("--time", "days", "--event", "died")


def run(*words: Any) -> Any:
    from typer.testing import CliRunner

    from dcsurv.cli.app import app

    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_check_fit_evaluate_and_info_name_the_feature(folder: Path) -> None:
    checked = " ".join(run("check", folder / "patients.csv", *OUTCOME, "--unit", "days").stdout.split())
    assert "Follow-up depends on the features: enrolled (concordance 0.9" in checked
    assert "Follow-up depends on the features: enrolled" in (folder / "fit.txt").read_text()
    done = run("evaluate", folder / "m.safetensors", folder / "others.csv", "--bootstrap", "5")
    said = " ".join((done.stdout + done.stderr).split())
    assert "enrolled (concordance 0.9" in said
    assert "follow the features, and patients count at times that others like them could reach" in said
    assert "enrolled (concordance 0.9" in run("info", folder / "m.safetensors").stdout


def test_predictions_say_how_far_they_reach(folder: Path) -> None:
    done = run("predict", folder / "m.safetensors", folder / "others.csv", "-o", folder / "p.csv")
    table, patients = pd.read_csv(folder / "p.csv"), pd.read_csv(folder / "others.csv")
    assert table.columns[-2] == "followed_to"
    assert np.corrcoef(table["followed_to"], patients["enrolled"])[0, 1] < -0.95
    beyond = int((table["followed_to"] < 8 * 365.25).sum())
    assert 300 < beyond < 600
    assert f"8y ({beyond} of 700)" in " ".join((done.stdout + done.stderr).split())


def test_the_report_names_the_feature_and_lists_what_lies_beyond(folder: Path) -> None:
    from dcsurv.report import write_report

    train, test = (simulate("staggered", 700, random_state=seed) for seed in (1, 2))
    model = CoxPH(time_unit="years").fit(train.X, train.y)
    made = write_report(folder / "r.html", model, test.X, test.y, horizons=[2.0, 8.0], n_bootstrap=0)
    text = (folder / "r.html").read_text()
    assert "enrolled (concordance 0.9" in text
    assert "beyond the follow-up of such patients" in text
    numbers = made.numbers["follow-up"]
    assert numbers["censoring"]["depends_on"] == "features"
    assert [row["horizon"] for row in numbers["reach"]] == [2.0, 8.0]
    assert numbers["reach"][0]["beyond"] < 0.2 < 0.5 < numbers["reach"][1]["beyond"]


def test_features_that_say_nothing_about_censoring_have_an_honest_p_value():
    found = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        X, (event, lost) = rng.normal(size=(120, 3)), rng.exponential(size=(2, 120))
        found.append(study_follow_up(X, make_outcome(np.minimum(event, lost), event <= lost)).p_value)
    # As the tail of a normal distribution, which a cross-fitted statistic does not have, it was 0.08.
    assert 0.03 <= np.mean(np.array(found) <= 0.05) <= 0.07
