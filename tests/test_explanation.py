"""Explanations: what Shapley values must hold, shap as oracle, what-if, importance, nomogram, figures and pages."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dcsurv
from dcsurv.datasets import load_metabric, simulate
from dcsurv.explanation import nomogram, permutation_importance, what_if
from dcsurv.explanation.control import without_luck
from dcsurv.explanation.shapley import exact, sampled
from dcsurv.preprocessing import Population
from figure_checks import check_texts

TIMES = np.array([1000.0, 2000.0, 3000.0])
COLUMNS = ["age", "MKI67", "chemotherapy", "er_positive"]


@pytest.fixture(scope="module")
def metabric():
    X, y = load_metabric(labels="measured")
    return X, y


@pytest.fixture(scope="module")
def cox(metabric):
    X, y = metabric
    return dcsurv.CoxPH(time_unit="days").fit(X[COLUMNS].iloc[:600], y[:600])


@pytest.fixture(scope="module")
def trees(metabric):
    """A model with interactions."""
    X, y = metabric
    return dcsurv.HazardForest(n_trees=20, random_state=0).fit(X[COLUMNS].iloc[:400], y[:400])


def mixing(f, table):
    """Predictions of mixtures by a plain function of the features, each a column."""
    return lambda rows: f(np.take_along_axis(table, rows, axis=0))


def game(f, n=3, n_background=6, players=4, seed=0):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n + n_background, players))
    return table, f(table[:n]), f(table[n:])


def values_of(f, players=4, seed=0, method="exact", n_pairs=30):
    table, whole, alone = game(f, players=players, seed=seed)
    if method == "exact":
        return exact(mixing(f, table), whole, alone.mean(axis=0), len(alone), players).values
    traits = table[: len(whole)], table[len(whole) :]
    return sampled(mixing(f, table), whole, alone, traits, players, n_pairs, np.random.default_rng(seed)).values


def bent(table):
    """Interactions of up to three features; the last feature plays no part, the first two play the same."""
    a, b, c = table[:, 0], table[:, 1], table[:, 2]
    return np.stack([np.exp(-np.exp(0.3 * (a + b) + a * b * c)), np.tanh(a + b) + c**2], axis=1)


# --- what Shapley values must hold -----------------------------------------------------------------------


@given(st.integers(0, 10_000), st.sampled_from(["exact", "sampled"]))
def test_efficiency_and_dummy(seed, method):
    _, whole, alone = game(bent, seed=seed)
    values = values_of(bent, seed=seed, method=method)
    np.testing.assert_allclose(values.sum(axis=1), whole - alone.mean(axis=0), atol=1e-9)
    # Sampled values are drawn around the exact ones; a feature that the function ignores never changes anything.
    if method == "exact":
        np.testing.assert_allclose(values[:, 3], 0, atol=1e-12)


@given(st.integers(0, 10_000))
def test_symmetry(seed):
    """Two features that mean the same and have the same values share alike."""

    def same(table):
        return bent(np.column_stack([table[:, 0], table[:, 0], table[:, 2]]))

    def twins(table):
        return bent(table[:, [0, 1, 2]])

    table, _, _ = game(twins, players=3, seed=seed)
    table[:, 1] = table[:, 0]
    whole, alone = twins(table[:3]), twins(table[3:])
    values = exact(mixing(twins, table), whole, alone.mean(axis=0), len(alone), 3).values
    np.testing.assert_allclose(values[:, 0], values[:, 1], atol=1e-12)
    np.testing.assert_allclose(whole, same(table[:3]))


@given(st.integers(0, 10_000), st.floats(-3, 3), st.sampled_from(["exact", "sampled"]))
def test_linearity(seed, factor, method):
    other = lambda table: np.stack([table[:, 3] * table[:, 0], np.abs(table).sum(axis=1)], axis=1)  # noqa: E731
    both = lambda table: bent(table) + factor * other(table)  # noqa: E731
    kwargs = {"seed": seed, "method": method}
    expected = values_of(bent, **kwargs) + factor * values_of(other, **kwargs)
    np.testing.assert_allclose(values_of(both, **kwargs), expected, atol=1e-8)


def test_sampled_values_are_as_far_from_the_exact_ones_as_they_say():
    """With few and many patients, below and above one round of the background: the ratio to the error is about 1."""
    rng = np.random.default_rng(1)
    for n, n_background, n_pairs in ((3, 8, 32), (120, 20, 24), (120, 40, 12)):
        table = rng.normal(size=(n + n_background, 4))
        whole, alone = bent(table[:n]), bent(table[n:])
        truth = exact(mixing(bent, table), whole, alone.mean(axis=0), n_background, 4).values
        traits = np.column_stack([table, table**2])
        found = sampled(mixing(bent, table), whole, alone, (traits[:n], traits[n:]), 4, n_pairs, rng)
        gap, error = (found.values - truth)[:, :3], found.error[:, :3]
        assert 0.5 < np.sqrt(np.mean(gap[..., 0] ** 2) / np.mean(error[..., 0] ** 2)) < 1.4, (n, n_background, n_pairs)
        if n_pairs % n_background == 0:  # orders there and back leave no luck to interactions of two
            np.testing.assert_allclose(gap[..., 1], 0, atol=1e-12)


def test_regression_takes_most_of_the_luck_out():
    """The error with it is far below that of the plain mean over the same changes."""
    rng = np.random.default_rng(0)
    n, n_background, n_pairs = 200, 30, 15
    table = rng.normal(size=(n + n_background, 3))
    f = lambda t: np.exp(-np.exp(t.sum(axis=1)))[:, None]  # noqa: E731
    whole, alone = f(table[:n]), f(table[n:])
    truth = exact(mixing(f, table), whole, alone.mean(axis=0), n_background, 3).values
    traits = np.column_stack([f(table), table, table**2])
    found = sampled(mixing(f, table), whole, alone, (traits[:n], traits[n:]), 3, n_pairs, rng)
    nothing = np.zeros((1, 1)), np.zeros((n_background, 1))
    plain = []
    for k in range(20):  # one patient alone has too few orders for a regression
        mixed = mixing(f, table[[k, *range(n, len(table))]])
        plain.append(sampled(mixed, whole[[k]], alone, nothing, 3, n_pairs, rng).values[0] - truth[k])
    assert np.sqrt(np.mean((found.values - truth) ** 2)) < 0.5 * np.sqrt(np.mean(np.square(plain)))


# --- models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "sampled"])
def test_values_and_base_add_up_to_the_prediction(trees, metabric, method):
    patients = metabric[0][COLUMNS].iloc[600:605]
    found = dcsurv.explain(trees, patients, times=TIMES, n_background=20, method=method)
    predicted = trees.predict_survival_function(patients, TIMES).values
    np.testing.assert_allclose(found.base + found.values.sum(axis=1), predicted, atol=1e-9)
    assert (found.error is None) == (method == "exact")


def test_the_log_risk_of_a_cox_model_has_a_closed_form(cox, metabric):
    X = metabric[0][COLUMNS]
    patients, background = X.iloc[600:610], X.iloc[700:740]
    found = dcsurv.explain(cox, patients, times=TIMES, background=background, scale="log-hazard", method="exact")
    centred = cox.prepare(patients).astype(float) - cox.prepare(background).astype(float).mean(axis=0)
    expected = centred * cox.coef_  # every feature here is one column
    np.testing.assert_allclose(found.values, np.repeat(expected[:, :, None], 3, axis=2), atol=1e-7)


def test_shap_finds_the_same(trees, metabric):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own figures
        import shap

    X = metabric[0][COLUMNS]
    patients, background = trees.prepare(X.iloc[600:604]), X.iloc[700:712]
    ours = dcsurv.explain(trees, X.iloc[600:604], times=TIMES, background=background, method="exact")
    said = lambda rows: trees.curves_of(rows.astype(np.float32)).evaluate(TIMES)  # noqa: E731
    masker = shap.maskers.Independent(trees.prepare(background), max_samples=100)
    oracle = shap.explainers.ExactExplainer(said, masker)(patients)
    np.testing.assert_allclose(ours.values, oracle.values, atol=1e-6)
    np.testing.assert_allclose(ours.base, oracle.base_values[0], atol=1e-6)


def test_columns_of_a_feature_move_together_and_so_do_groups(metabric):
    """A category of three levels is one feature; grouping two features gives what they make together."""
    X, y = metabric
    X = X[["age", "PGR"]].assign(grade=pd.cut(X["MKI67"], 3, labels=["I", "II", "III"]))
    model = dcsurv.CoxPH().fit(X.iloc[:400], y[:400])
    assert model.prepare(X).shape[1] == 4
    background = X.iloc[500:530]
    options = {"times": TIMES, "background": background, "scale": "log-hazard"}
    alone = dcsurv.explain(model, X.iloc[600:606], **options)
    grouped = dcsurv.explain(model, X.iloc[600:606], groups={"body": ["age", "grade"]}, **options)
    assert alone.features == ["age", "PGR", "grade"]
    assert grouped.features == ["body", "PGR"]
    np.testing.assert_allclose(grouped.values[:, 0], alone.values[:, 0] + alone.values[:, 2], atol=1e-7)
    assert grouped.texts()[0][0].endswith(("I", "II", "III"))


def test_a_transformer_of_ones_own_and_arrays_are_explained(metabric):
    from sklearn.preprocessing import StandardScaler

    X, y = metabric
    X = X[["age", "MKI67", "PGR"]]
    model = dcsurv.CoxPH(preprocess=StandardScaler()).fit(X.iloc[:300], y[:300])
    found = dcsurv.explain(model, X.iloc[400:403], times=TIMES, background=X.iloc[500:510])
    array = dcsurv.CoxPH().fit(X.iloc[:300].to_numpy(), y[:300])
    again = dcsurv.explain(array, X.iloc[400:403].to_numpy(), times=TIMES, background=X.iloc[500:510].to_numpy())
    assert again.features == ["x0", "x1", "x2"]
    np.testing.assert_allclose(found.values, again.values, atol=1e-4)


def test_an_effect_that_turns_is_seen_to_turn():
    """Treatment helps early and harms late in this design; age does the same at all times."""
    cohort = simulate("administrative", 3000, hazards="non-proportional")
    X = cohort.X[["age", "marker", "bmi", "grade", "treated"]]
    model = dcsurv.BoostedHazards(random_state=0).fit(X, cohort.y)
    found = dcsurv.explain(model, X.iloc[:60], times=[1.0, 10.0], n_background=40, method="exact")
    values = dict(zip(found.features, np.moveaxis(found.values, 1, 0), strict=True))
    treated = X["treated"].iloc[:60].to_numpy() == 1
    early, late = values["treated"].T
    assert early[treated].mean() > 0.02 > 0 > -0.02 > late[treated].mean()
    assert early[~treated].mean() < 0 < late[~treated].mean()
    old = X["age"].iloc[:60].to_numpy() > 0.5
    assert (values["age"][old].mean(axis=0) < 0).all()
    assert np.abs(values["bmi"]).mean() < 0.3 * np.abs(values["age"]).mean()  # it has no effect


def test_wrong_use_is_told(cox, metabric):
    X = metabric[0][COLUMNS].head(2)
    for options, words in (
        ({"scale": "hazard"}, "scale is 'hazard'"),
        ({"method": "guess"}, "method is 'guess'"),
        ({"times": [3, 2]}, "ascending"),
        ({"n_pairs": 1}, "at least 2 orders"),
        ({"groups": {"both": ["age", "size"]}}, "a list of features is expected"),
        ({"groups": {"a": ["age"], "b": ["age"]}}, "in one group"),
        ({"background": X.iloc[:0]}, "no rows"),
    ):
        with pytest.raises(ValueError, match=words):
            dcsurv.explain(cox, X, **options)
    found = dcsurv.explain(cox, X, times=TIMES)
    with pytest.raises(ValueError, match="runs from 1000 to 3000"):
        found.at(10)
    with pytest.raises(ValueError, match="needs a model whose features add up"):
        nomogram(dcsurv.SplineCox(), [1000])


# --- the background -----------------------------------------------------------------------------------------


def test_made_up_patients_are_like_the_cohort_and_nobody_of_it(metabric):
    X, _ = metabric
    population = Population.from_state(json.loads(json.dumps(Population.of(X).get_state())))
    drawn = population.draw(400)
    assert population.draw(400).equals(drawn)
    for name in ("age", "PGR", "MKI67"):
        assert abs(drawn[name].median() - X[name].median()) < 0.1 * X[name].std()
        few = X[name].sort_values().iloc[[4, -5]]
        assert few.iloc[0] <= drawn[name].min()
        assert drawn[name].max() <= few.iloc[1]
    assert abs((drawn["chemotherapy"] == "yes").mean() - (X["chemotherapy"] == "yes").mean()) < 0.03
    ranks = drawn[["age", "EGFR", "PGR"]].corr("spearman") - X[["age", "EGFR", "PGR"]].corr("spearman")
    assert ranks.abs().to_numpy().max() < 0.12


def test_rare_values_are_not_kept():
    X = pd.DataFrame({"rare": ["a"] * 50 + ["b"] * 46 + ["only me"] * 4, "few": [0.0] * 60 + [1.0] * 37 + [7.0] * 3})
    text = json.dumps(Population.of(X).get_state())
    assert "only me" not in text
    assert "7.0" not in text
    assert set(Population.of(X).draw(50)["few"]) == {0.0, 1.0}


def test_the_background_travels_with_the_file_and_older_files_say_what_they_lack(cox, metabric, tmp_path):
    X = metabric[0][COLUMNS].iloc[:3]
    cox.save(tmp_path / "model.safetensors")
    loaded = dcsurv.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(dcsurv.explain(loaded, X).values, dcsurv.explain(cox, X).values)
    loaded.population_ = None
    older = dcsurv.explain(loaded, X)
    assert "saved by an older version" in older.background
    np.testing.assert_allclose(older.base + older.values.sum(axis=1), older.predicted, atol=1e-9)
    file = Path(__file__).parent / "fixtures" / "format1" / "CoxPH.safetensors"
    assert dcsurv.load(file).population_ is None


# --- tables and figures -------------------------------------------------------------------------------------


def test_tables_and_figures_of_an_explanation(cox, metabric):
    found = dcsurv.explain(cox, metabric[0][COLUMNS].iloc[600:640], times=TIMES, n_background=20, method="sampled")
    table = found.to_frame()
    assert len(table) == 40 * 4 * 3
    assert list(table.columns) == ["patient", "feature", "feature_value", "time", "value", "standard_error"]
    risk = found.at(1500)
    np.testing.assert_allclose(risk.base + risk.values.sum(axis=1), risk.predicted, atol=1e-12)
    assert risk.to_frame()["feature"].tolist()[:4] == COLUMNS
    assert found.order()[0] == "age" == found.importance().index[0]
    for kind in ("waterfall", "bands", "beeswarm"):
        check_texts(found.plot(kind, patient=3))


def test_a_trait_that_the_background_does_not_vary_in_does_no_harm():
    # Centred, it is a rounding error, on which a regression must not rest: it made values of 1e15.
    rng, n, n_pairs, n_background = np.random.default_rng(0), 300, 26, 100
    partners = np.stack([rng.permutation(n_background)[:n_pairs] for _ in range(n)])
    changes, alone = rng.normal(size=(n, n_pairs, 3, 2)), rng.random((n_background, 2))
    traits, others = rng.normal(size=(n, 6)), rng.normal(size=(n_background, 6))
    others[:, 2:] = [0.1, 0.2, 0.3, 0.7]
    values, _ = without_luck(changes, partners, alone, traits, others)
    expected, _ = without_luck(changes, partners, alone, traits[:, :2], others[:, :2])
    np.testing.assert_allclose(values, expected, atol=0.05)


def test_what_if(trees, cox, metabric):
    X = metabric[0][COLUMNS].iloc[600:680].reset_index(drop=True)
    found = what_if(trees, X, "age", times=TIMES)
    at = int(np.abs(found.grid[0] - X["age"].iloc[0]).argmin())
    changed = X.iloc[[0]].assign(age=found.grid[0][at])
    np.testing.assert_allclose(
        found.curves[0, at], trees.predict_survival_function(changed, TIMES).values[0], atol=1e-7
    )
    np.testing.assert_allclose(found.mean, found.curves.mean(axis=0))
    assert found.density[0].sum() == pytest.approx(1)
    assert found.grid[0][0] > X["age"].min()
    assert len(found.to_frame()) == 21 * 3
    check_texts(found.plot())
    # Of a Cox model's log-hazard both kinds of effect are the same line; of survival they still run together.
    line = what_if(cox, X, "MKI67", times=TIMES)
    np.testing.assert_allclose(np.diff(line.local, axis=0), np.diff(line.mean, axis=0), atol=0.02)
    for one in (what_if(cox, X, ["age", "chemotherapy"], times=TIMES), what_if(cox, X.head(1), "chemotherapy")):
        check_texts(one.plot())
    with pytest.raises(ValueError, match="one or two different features"):
        what_if(cox, X, "size")
    whole, same = (what_if(cox, X, "age", times=TIMES, values=values) for values in ([50, 60, 70], [50.0, 60.0, 70.0]))
    np.testing.assert_array_equal(whole.local, same.local)
    assert whole.density[0].sum() == pytest.approx(1)


@pytest.mark.parametrize("feature", ["age", "chemotherapy"])
def test_a_figure_of_one_patient_shows_where_the_patient_is(cox, metabric, feature):
    X = metabric[0][COLUMNS].iloc[[600]]
    found = what_if(cox, X, feature, times=[1500.0])
    own = next(line for line in found.plot().axes[0].lines if line.get_marker() == "D")
    where, survival = own.get_xdata()[0], own.get_ydata()[0]
    assert survival == pytest.approx(100 * cox.predict_survival_function(X, [1500.0]).values[0, 0], abs=1e-4)
    at = found.grid[0] if feature == "age" else np.arange(2)
    assert np.interp(where, at, 100 * found.curves[0, :, 0]) == pytest.approx(survival, abs=1)


def test_the_nearest_realistic_change(cox, metabric):
    old = metabric[0][COLUMNS].iloc[[600]].assign(age=80.0, chemotherapy="no")
    found = what_if(cox, old, "age", times=TIMES)
    now = found.own[0, 1]
    change = found.nearest(2000, now + 0.1)
    assert change["age"] < 80
    assert change["survival"] >= now + 0.1
    younger = found.nearest(2000, now + 0.2)
    assert younger["age"] < change["age"]
    assert younger["change"] > change["change"]
    assert found.nearest(2000, 0.9999) == {}


def test_importance_over_time_finds_what_matters_and_when():
    cohort = simulate("administrative", 1200, hazards="non-proportional")
    X = cohort.X[["age", "marker", "bmi", "treated"]].assign(copy=cohort.X["age"] + 0.01 * cohort.X["bmi"])
    model = dcsurv.BoostedHazards(random_state=0).fit(X[:800], cohort.y[:800])
    found = permutation_importance(model, X[800:], cohort.y[800:], horizons=[2, 6], n_repeats=3, n_bootstrap=10)
    assert found.groups["age + copy"] == ["age", "copy"]
    assert set(found.table["metric"]) == {"C-td", "Brier", "ICI"}
    assert len(found.table) == 4 * 3 * 2
    for metric in ("C-td", "Brier"):
        assert found.order(metric)[-1] == "bmi"
        assert found.order(metric)[0] == "age + copy"
    clear = found.table[(found.table["feature"] == "age + copy") & (found.table["metric"] != "ICI")]
    assert (clear["lower"] > 0).all()
    check_texts(found.plot("Brier"))


def test_points_of_a_nomogram_give_the_risk_of_the_model(cox, metabric):
    sheet = nomogram(cox, [1826, 3652])
    assert sheet.points["points"].max() == pytest.approx(100)
    patient = pd.DataFrame({"age": [70.0], "MKI67": [6.0], "chemotherapy": ["yes"], "er_positive": ["no"]})
    total = 0.0
    for name, value in (("age", 70.0), ("MKI67", 6.0)):
        own = sheet.points[sheet.points["feature"] == name]
        first = own.iloc[0]
        total += first["points"] + (value - float(first["value"])) * sheet.per_unit[name] * sheet.points_per_log_hazard
    for name, level in (("chemotherapy", "yes"), ("er_positive", "no")):
        own = sheet.points[(sheet.points["feature"] == name) & (sheet.points["value"] == level)]
        total += float(own["points"].iloc[0])
    for time, part in sheet.risks.groupby("time"):
        read = np.interp(total, part["total"], part["risk"])
        assert read == pytest.approx(1 - cox.predict_survival_function(patient, [time]).values[0, 0], abs=1e-3)
    check_texts(sheet.plot())


def test_no_word_of_causes():
    """What a model makes of a feature is not what the feature does to a patient."""
    import re

    source = Path(dcsurv.__file__).parent
    texts = [
        path.read_text("utf-8") for room in ("explanation", "figures") for path in (source / room).glob("*expla*.py")
    ]
    texts += [path.read_text("utf-8") for path in (source / "explanation").glob("*.py")]
    for text in texts:
        assert not re.search(r"\bcaus(?:e|es|ed|al)\b", text)


# --- pages --------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page_and_its_numbers(cox, metabric, tmp_path):
    from typer.testing import CliRunner

    from dcsurv.cli import app

    cox.save(tmp_path / "cox.safetensors")
    metabric[0][COLUMNS].iloc[600:612].to_csv(tmp_path / "patients.csv", index=False)
    words = ["explain", str(tmp_path / "cox.safetensors"), str(tmp_path / "patients.csv"), "--horizons", "3y,5y"]
    done = CliRunner().invoke(app, [*words, "--row", "7", "-o", str(tmp_path / "one.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "one.html").read_text("utf-8")
    assert "Why: patient in row 7" in page
    assert "The model on one sheet" in page
    assert page.count("<svg") == 5  # waterfall, bands, two features varied, nomogram
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "caus" not in page.lower()
    numbers = pd.read_csv(tmp_path / "one.csv")
    assert len(numbers) == 2 * 4
    for _, part in numbers.groupby("horizon"):
        assert part["average_risk"].iloc[0] + part["risk_change"].sum() == pytest.approx(part["risk"].iloc[0], abs=1e-9)
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "all.html")])
    assert done.exit_code == 0, done.output
    assert "What moves the predictions of 12 patients" in (tmp_path / "all.html").read_text("utf-8")
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "only.csv")])
    assert done.exit_code == 0, done.output
    assert len(pd.read_csv(tmp_path / "only.csv")) == 12 * 2 * 4
    done = CliRunner().invoke(app, [*words, "--row", "13", "-o", str(tmp_path / "none.html")])
    assert done.exit_code == 2
    assert "there are 1 to 12" in done.output


def test_the_command_does_not_overwrite_its_patients_and_names_what_it_leaves_out(cox, metabric, tmp_path):
    from typer.testing import CliRunner

    from dcsurv.cli import app

    cox.save(tmp_path / "cox.safetensors")
    patients = tmp_path / "patients.csv"
    metabric[0][COLUMNS].iloc[600:602].to_csv(patients, index=False)
    before = patients.read_bytes()
    words = ["explain", str(tmp_path / "cox.safetensors"), str(patients), "--horizons", "5y"]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "patients.html")])
    assert done.exit_code == 2
    assert "which is read here" in done.output
    assert patients.read_bytes() == before
    words[-1] = "5y,90y"
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "numbers.csv")])
    assert done.exit_code == 0, done.output
    assert "left out: 90y" in " ".join(done.output.split())
