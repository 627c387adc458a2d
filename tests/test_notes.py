"""Nonsense is not predicted in silence: rows unlike training are noted, counted, warned of and, if asked, refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dcsurv
from dcsurv.cli import app
from dcsurv.cli.shell import Shell
from dcsurv.cli.tables import show_metrics
from dcsurv.cohort import ModelCard, Predictor, describe_time
from dcsurv.messages import fixed
from dcsurv.preprocessing import OutsideTrainingWarning, Population
from dcsurv.preprocessing.ranges import RANGES_UNKNOWN, edges_of


def patients(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Make a cohort with years, kilograms, levels, yes and no, and outcomes in days."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 97, n).round(1)
    time = rng.exponential(900 * np.exp(-(age - 60) / 20), n) + 1
    censored = rng.exponential(1500, n) + 1
    return pd.DataFrame(
        {
            "age": age,
            "weight": rng.normal(75, 12, n).round(1),
            "stage": rng.choice(["I", "II", "III"], n),
            "smoker": rng.choice(["yes", "no"], n),
            "days": np.minimum(time, censored).round(),
            "died": (time <= censored).astype(int),
        }
    )


FEATURES = ["age", "weight", "stage", "smoker"]


def run(*arguments: Any, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("notes")
    patients().to_csv(path / "patients.csv", index=False)
    run(
        "fit", path / "patients.csv", "--time", "days", "--event", "died", "--unit", "days", "--horizons", "6m,1y",
        "--model", "coxph", "--evaluate", "none", "-o", path / "cox.safetensors",
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return dcsurv.load(folder / "cox.safetensors")


def predicted(folder: Path, table: str, name: str = "out.csv", *more: Any) -> tuple[pd.DataFrame, str]:
    """Predict the text of a table; return the predictions and what was said."""
    (folder / "new.csv").write_text(table)
    done = run("predict", folder / "cox.safetensors", folder / "new.csv", "-o", folder / name, *more)
    return pd.read_csv(folder / name).fillna({"notes": ""}), done.stderr


GOOD = "61,70,II,no"


def test_each_row_of_nonsense_has_its_note_and_the_screen_counts(folder: Path) -> None:
    rows = [GOOD, "560,70,II,no", "22000,70,II,no", "1e30,70,II,no", ",,,", "61,70,V,no", "61", "61,70,II,maybe"]
    made, said = predicted(folder, "\n".join(["age,weight,stage,smoker", *rows]))
    notes = made["notes"]
    assert notes[0] == ""
    assert notes[1] == "outside training range: age 560 (15 to 100); not to be used, predicted as age 100"
    assert "age 22000 (15 to 100)" in notes[2]
    assert "age 1e+30 (15 to 100)" in notes[3]
    assert notes[4] == "every feature is missing; not to be used"
    assert notes[5] == "stage 'V' is unknown to the model, taken as missing"
    assert notes[6] == "the row is cut: 1 of 4 fields"
    assert notes[7] == "smoker 'maybe' is neither yes nor no, taken as missing"
    assert "3 of 8 patients have values outside the training range" in said
    assert "The predictions of 4 patients are not to be used" in said
    assert "1 row of new.csv is cut" in said
    survival = made[["survival_6m", "survival_1y"]].to_numpy()
    assert (survival[1:4] > 0).all()  # clamped: no certain death
    np.testing.assert_array_equal(survival[1], survival[3])


def test_strict_refuses_with_rows_and_columns_and_writes_nothing(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text(f"age,weight,stage,smoker\n{GOOD}\n560,70,II,no\n61,70,V,no\n")
    order = ("predict", folder / "cox.safetensors", table, "-o", tmp_path / "out.csv", "--strict")
    said = run(*order, code=2).stderr
    assert "2 of 3 rows" in said
    assert "row 2: outside training range: age 560" in said
    assert "row 3: stage 'V'" in said
    late = run(*order[:-1], "--horizons", "90y", "--strict", code=2).stderr
    assert "90y" in late
    assert "follow-up" in late
    parts = tmp_path / "parts"
    parts.mkdir()
    patients(20, 1)[FEATURES].to_parquet(parts / "a.parquet")
    patients(20, 2)[FEATURES].assign(age=560.0).to_parquet(parts / "b.parquet")
    run("predict", folder / "cox.safetensors", parts, "-o", tmp_path / "made", "--strict", code=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "parts"]
    table.write_text(f"age,weight,stage,smoker\n{GOOD}\n")
    run(*order)
    counted = run("predict", folder / "cox.safetensors", parts, "-o", tmp_path / "made", "--json")
    assert json.loads(counted.stdout)["not_to_be_used"] == 20
    made = pd.read_parquet(tmp_path / "made" / "b.parquet")
    assert made["notes"].str.contains("age 560 (15 to 100)", regex=False).all()


@pytest.mark.parametrize(
    ("column", "factor", "words"),
    [
        ("age", 365.25, "it looks like days, the model learned years"),
        ("age", 12, "it looks like months, the model learned years"),
        ("weight", 2.2046, "it looks like pounds, the model learned kilograms"),
        ("weight", 1000, "about 1,000 times larger"),
    ],
)
def test_a_column_in_another_unit_is_named(folder: Path, column: str, factor: float, words: str) -> None:
    new = patients(60, 3)[FEATURES]
    new[column] *= factor
    _, said = predicted(folder, new.to_csv(index=False))
    assert words in said


def test_horizons_beyond_the_follow_up_are_marked_in_the_file(folder: Path) -> None:
    made, _ = predicted(folder, f"age,weight,stage,smoker\n{GOOD}\n", "late.csv", "--horizons", "1y,90y")
    assert made["notes"][0] == "beyond all follow-up, curves held constant: 90y"


def test_python_warns_with_counts_and_ordinary_patients_are_silent(model: Any) -> None:
    new = patients(50, 4)[FEATURES]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.predict_survival_function(new).values
    bad = new.copy()
    bad.loc[[3, 5], "age"] = 560.0
    for predict in (model.predict, model.predict_survival_function, model.predict_cumulative_hazard_function):
        with pytest.warns(OutsideTrainingWarning, match=r"2 of 50 patients have values .* age 560 \(15 to 100\)"):
            found = predict(bad)
    with pytest.warns(OutsideTrainingWarning):
        found = model.predict_survival_function(bad).values
    others = np.setdiff1d(np.arange(50), [3, 5])
    np.testing.assert_array_equal(found[others], expected[others])
    at_edge = model.predict_survival_function(new.assign(age=100.0)).values
    np.testing.assert_array_equal(found[[3, 5]], at_edge[[3, 5]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.score(bad, (patients(50, 4)["days"], patients(50, 4)["died"]))


def test_arrays_are_compared_too_and_folds_stay_silent() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    X[:, 2] = rng.lognormal(sigma=3, size=120)  # some fold has by far the greatest value
    y = dcsurv.make_outcome(rng.exponential(size=120) + 0.1, rng.random(120) < 0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OutsideTrainingWarning)
        dcsurv.validate(dcsurv.CoxPH(), X, y, reference=None, resamples=2, repeats=1, folds=3)
        fitted = dcsurv.CoxPH(preprocess=None).fit(X, y)
    new = X[:5].copy()
    new[1, 0] = -50
    with pytest.warns(OutsideTrainingWarning, match="x0 -50"):
        fitted.predict(new)


def test_older_files_without_ranges_say_so_once(folder: Path, tmp_path: Path) -> None:
    model = dcsurv.load(folder / "cox.safetensors")
    state = model.population_.get_state()
    for one in state["features"]:
        del one["edges"]
    model.population_ = Population.from_state(state)
    model.save(tmp_path / "old.safetensors")
    (tmp_path / "new.csv").write_text("age,weight,stage,smoker\n560,70,II,no\n")
    done = run("predict", tmp_path / "old.safetensors", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert done.stderr.count(RANGES_UNKNOWN) == 1
    assert pd.read_csv(tmp_path / "out.csv")["notes"].isna().all()


def test_times_in_another_unit_are_noticed_and_shorter_follow_up_is_not(folder: Path, tmp_path: Path) -> None:
    new = patients(120, 5)
    years = new.assign(days=new["days"] / 365.25)
    years.to_csv(tmp_path / "years.csv", index=False)
    words = "they look like years, the model learned days"
    cox = folder / "cox.safetensors"
    assert words in run("evaluate", cox, tmp_path / "years.csv", "--bootstrap", 0).stderr
    assert words in run("recalibrate", cox, tmp_path / "years.csv", "-o", tmp_path / "r.safetensors").stderr
    cut = new["days"].clip(upper=120)
    new.assign(days=cut, died=new["died"].where(new["days"] <= 120, 0)).to_csv(tmp_path / "short.csv", index=False)
    assert "learned days" not in run("evaluate", cox, tmp_path / "short.csv", "--bootstrap", 0).stderr


def test_evaluate_explain_and_the_report_count(folder: Path, tmp_path: Path, model: Any) -> None:
    new = patients(60, 6)
    new.loc[0, "age"] = 560
    new.to_csv(tmp_path / "new.csv", index=False)
    cox = folder / "cox.safetensors"
    counted = "1 of 60 patients has values outside the training range, such as age 560 (15 to 100)."
    assert counted in run("evaluate", cox, tmp_path / "new.csv", "--bootstrap", 0).stderr
    order = ("explain", cox, tmp_path / "new.csv", "--row", 1, "--horizons", "1y", "-o", tmp_path / "e.csv")
    assert "Row 1: outside training range: age 560" in run(*order).stderr
    from dcsurv.report.study import make_study

    study = make_study(
        model, new[FEATURES], (new["days"], new["died"]), X_train=None, y_train=None, reference=None, horizons=None,
        unit="days", random_state=0, seen=False, n_bootstrap=0, subgroups=None, patients=None, data_name=None,
    )  # fmt: skip
    assert counted.replace("age 560", "age") in study.remarks, "a page holds no value of a patient"


def test_edges_are_round_and_nobodys_value() -> None:
    assert edges_of(np.array([18.3, 50.0, 96.7])) == (15.0, 100.0)
    assert edges_of(np.repeat([0.0, 1.0], 50)) == (0.0, 1.0)
    assert edges_of(np.append(np.zeros(50), 7.0)) == (0.0, 8.0)
    assert edges_of(np.full(9, 3.0)) == (3.0, 3.0)


def test_predictions_go_to_a_workbook(folder: Path) -> None:
    frame = patients(30, 7)[FEATURES]
    frame.insert(0, "id", [f"=HYPERLINK({k})" for k in range(30)])
    frame.loc[2, "age"] = 560
    made, _ = predicted(folder, frame.to_csv(index=False), "out.csv", "--keep", "id")
    predicted(folder, frame.to_csv(index=False), "other.csv")
    run("predict", folder / "cox.safetensors", folder / "new.csv", "--keep", "id", "-o", folder / "out.xlsx")
    book = pd.read_excel(folder / "out.xlsx").fillna({"notes": ""})
    pd.testing.assert_frame_equal(book.drop(columns="id"), made.drop(columns="id"), check_dtype=False)
    assert book["id"].tolist() == frame["id"].tolist()


def test_recalibrate_keeps_the_models_horizons(folder: Path, tmp_path: Path) -> None:
    patients(150, 8).to_csv(tmp_path / "local.csv", index=False)
    order = ("recalibrate", folder / "cox.safetensors", tmp_path / "local.csv", "-o", tmp_path / "r.safetensors")
    said = run(*order).stdout
    assert "6 months" in said
    assert "1 year" in said
    assert "ICI at 6m" in said
    moved = dcsurv.load(tmp_path / "r.safetensors")
    assert moved.evaluation_["horizons"] == [365.25 / 2, 365.25]
    assert [horizon.label for horizon in ModelCard.of(moved).horizons] == ["6m", "1y"]


def test_small_numbers_do_not_look_like_nothing() -> None:
    assert [fixed(value) for value in (0.0, 0.0002, -0.0002, 0.0005, 0.1234)] == [
        "0.000", "<0.001", ">-0.001", "0.001", "0.123",
    ]  # fmt: skip
    assert describe_time(365.25 / 2, "days") == "6 months"
    assert describe_time(183, "days") == "183 days (6.0 months)"


def test_spread_over_folds_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"metric": "DDC", "horizon": None, "value": 0.0002, "sd": 0.012}
    show_metrics(Shell(), "Measured", {"CoxPH": [row]}, [], "days")
    said = " ".join(capsys.readouterr().out.split())
    assert "<0.001 ± 0.012" in said
    assert "After ±: the standard deviation over the folds" in said


def test_info_names_the_start(tmp_path: Path) -> None:
    table = patients(200)
    begin = pd.Timestamp("2020-01-01")
    dated = table.assign(enrolled=begin, seen=begin + pd.to_timedelta(table["days"], "D")).drop(columns="days")
    dated.to_csv(tmp_path / "dated.csv", index=False)
    run(
        "fit", tmp_path / "dated.csv", "--time", "seen", "--start", "enrolled", "--event", "died", "--unit", "days",
        "--model", "coxph", "--evaluate", "none", "-o", tmp_path / "m.safetensors",
    )  # fmt: skip
    assert "minus start 'enrolled'" in run("info", tmp_path / "m.safetensors").stdout


def test_categories_have_no_order_and_few_rows_of_many_features_are_sampled() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 12)), columns=[f"f{k}" for k in range(12)])
    X["f0"] = rng.choice(["a", "b"], 80)
    y = dcsurv.make_outcome(rng.exponential(size=80) + 0.1, rng.random(80) < 0.8)
    found = dcsurv.explain(dcsurv.CoxPH().fit(X, y), X.head(2), times=[0.5])
    assert found.error is not None
    ranks = found._numbers()
    assert np.isnan(ranks[:, 0]).all()
    assert not np.isnan(ranks[:, 1:]).any()


def test_a_nomogram_names_both_ends_of_a_short_line() -> None:
    from dcsurv.figures.explanation import nomogram

    points = pd.DataFrame(
        {"feature": ["age", "age", "er", "er"], "value": ["40", "80", "no", "yes"], "points": [0.0, 100.0, 0.0, 4.0]}
    )
    risks = pd.DataFrame({"time": [5.0] * 3, "total": [0.0, 50.0, 104.0], "risk": [0.1, 0.4, 0.9]})
    texts = [text.get_text() for text in nomogram(points, risks).axes[0].texts]
    assert "no" in texts
    assert "yes" in texts


def test_a_predictor_in_python_has_notes(model: Any) -> None:
    card = ModelCard.of(model)
    predictor = Predictor(model, card, card.horizons)
    table = patients(5, 9)[FEATURES]
    table.loc[1, "age"] = 560
    made = predictor.predict(table)
    assert list(made.columns) == predictor.names()
    assert made.columns[-1] == "notes"
    assert made["notes"][1].startswith("outside training range: age 560")
    assert predictor.outside is not None
    assert predictor.outside.unusable == 1
