"""The command line, as a researcher with a table of patients uses it."""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dcsurv
from dcsurv.cli import app
from dcsurv.cohort import ModelCard, read_cohort

# How the library names its parameters to those who call it from Python.
PYTHON_WORDS = re.compile(
    rf"\b({'|'.join(inspect.signature(read_cohort).parameters)}|sheet|delimiter|decimal|encoding)="
)
OUTCOME = ("--time", "days", "--event", "died")
SMALL = ("--set", "max_epochs=2", "--set", "n_nodes=6", "--set", "encoder_size=4", "--set", "decoder_size=4")


def patients(n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Make a cohort with numbers, groups, yes and no, gaps, an identifier and outcomes."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 10, n).round(1)
    smoker = rng.choice(["yes", "no"], n)
    time = rng.exponential(900 * np.exp(-(age - 60) / 12) * np.where(smoker == "yes", 0.6, 1.3)) + 1
    censored = rng.exponential(1500, n) + 1
    frame = pd.DataFrame(
        {
            "patient_id": np.arange(n) * 3 + 1000,
            "age": np.where(rng.random(n) < 0.05, np.nan, age),
            "stage": rng.choice(["I", "II", "III"], n),
            "smoker": smoker,
            "days": np.minimum(time, censored).round(),
            "died": (time <= censored).astype(int),
        }
    )
    return frame


def run(*arguments: Any, code: int = 0) -> Any:
    """Run a command in this process; whatever happens, it ends in words."""
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text
    assert not re.search(PYTHON_WORDS, text), text
    assert done.exit_code == code, text
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, another one of later patients, and three models."""
    path: Path = tmp_path_factory.mktemp("cli")
    patients().to_csv(path / "patients.csv", index=False)
    patients(90, seed=1).to_csv(path / "later.csv", index=False)
    common = ("fit", path / "patients.csv", *OUTCOME, "--unit", "days", "--horizons", "6m,1y,2y")
    run(*common, "--model", "coxph", "--evaluate", "holdout", "-o", path / "cox.safetensors", "--bootstrap", 20)
    run(*common, *SMALL, "--set", "n_members=2", "--evaluate", "none", "--jobs", 1, "-o", path / "ensemble.safetensors")
    X = patients().set_index("patient_id").drop(columns=["days", "died"])
    y = dcsurv.make_outcome(patients()["days"], patients()["died"])
    dcsurv.CoxPH().fit(X, y).save(path / "python.safetensors")
    return path


def test_help_tells_the_commands_and_the_exit_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run("--help").stdout
    for name in (
        "demo",
        "check",
        "validate",
        "fit",
        "predict",
        "evaluate",
        "recalibrate",
        "tune",
        "reproduce",
        "report",
        "info",
    ):
        assert re.search(rf"│ {name} ", text), name
        assert "--json" in run(name, "--help").stdout
    assert re.search(r"Exit codes: 0 done; 1 .*2 wrong use.*130", " ".join(text.split()))
    assert run("--version").stdout == f"dcsurv {dcsurv.__version__}\n"
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # tests may run under no shell
    assert "complete" in run("--show-completion").stdout


def test_help_needs_no_torch() -> None:
    import subprocess

    code = "import sys; import dcsurv.cli; assert not {'torch', 'sklearn', 'scipy', 'optuna'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_check_shows_columns_and_findings(folder: Path, tmp_path: Path) -> None:
    frame = patients()
    frame["died_of"] = np.where(frame["died"] == 1, np.where(frame["age"] > 60, "cancer", "other"), None)
    frame.to_csv(tmp_path / "p.csv", index=False)
    shown = " ".join(run("check", tmp_path / "p.csv", *OUTCOME, "--unit", "days").stdout.split())
    for words in ("240 patients", "1 = event, 0 = censored", "smoker yes/no", "stage category", "patient_id left out"):
        assert words in shown
    assert "--drop died_of" in shown
    found = json.loads(run("check", tmp_path / "p.csv", *OUTCOME, "--json").stdout)
    assert {f["code"] for f in found["findings"]} >= {"known-for-one-side", "id-columns", "last-usable-horizon"}
    assert found["outcome"]["coding"]["events"] == ["1"]
    frame.loc[3, "days"] = -1
    frame.to_csv(tmp_path / "p.csv", index=False)
    assert "1 error to repair" in run("check", tmp_path / "p.csv", *OUTCOME, code=1).stdout


def test_fit_evaluates_then_fits_to_everybody(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "m.safetensors"
    given = ("fit", folder / "patients.csv", *OUTCOME, *SMALL, "--model", "dcs", "--bootstrap", 10, "-o", output)
    done = run(*given, "--evaluate", "holdout")
    shown = " ".join(done.stdout.split())
    assert "On 48 patients" in shown
    assert "fitted to all 240 patients" in shown
    assert re.search(r"C-td 0\.\d{3} \(0\.\d{3} to [01]\.\d{3}\) 0\.\d{3}", shown)  # ours and CoxPH's
    model = dcsurv.load(output)
    assert type(model) is dcsurv.DCS
    assert model.training_summary_["patients"] == 240
    card = ModelCard.of(model)
    assert card.outcome is not None
    assert (card.outcome.time, card.outcome.event, card.unit) == ("days", "died", None)
    assert card.evaluation is not None
    # The numbers are those of the library on that split.
    X, y = model_input(folder / "patients.csv")
    train, test = dcsurv.train_test_indices(y, random_state=0)
    again = dcsurv.DCS(max_epochs=2, n_nodes=6, encoder_size=4, decoder_size=4, random_state=0)
    curves = again.fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[test])
    table = dcsurv.metrics.evaluate(y[test], curves, y[train], metrics=["C-td", "IBS"]).set_index("metric")["value"]
    measured = {row["metric"]: row["value"] for row in card.evaluation["metrics"] if row["horizon"] is None}
    assert measured["C-td"] == pytest.approx(table["C-td"], abs=1e-9)
    assert measured["IBS"] == pytest.approx(table["IBS"], abs=1e-9)


def model_input(path: Path) -> tuple[pd.DataFrame, Any]:
    frame = pd.read_csv(path)
    X = frame[["age", "stage", "smoker"]].assign(
        smoker=frame["smoker"].astype(pd.CategoricalDtype(["no", "yes"])),
    )
    return X, dcsurv.make_outcome(frame["days"], frame["died"])


def test_fit_in_other_ways(folder: Path, tmp_path: Path) -> None:
    cox = ("fit", folder / "patients.csv", *OUTCOME, "--model", "coxph", "-o", tmp_path / "m.safetensors")
    done = run(*cox, "--evaluate", "cv", "--folds", 3, "--json")
    document = json.loads(done.stdout)
    assert "6 of 6 tasks" in done.stderr, "three folds, twice"
    found = document["card"]["evaluation"]
    assert found["patients"] == 240
    assert found["how"].startswith("3-fold cross-validation, 2 times: metrics of the out-of-fold predictions")
    assert all(row["lower"] < row["value"] < row["upper"] for row in found["metrics"] if row["metric"] == "C-td")
    kept = json.loads(run(*cox, "--no-refit", "--bootstrap", 0, "--json").stdout)["card"]
    assert kept["trained_on"] == "fitted to 192 of 240 patients, the others held out"
    assert dcsurv.load(tmp_path / "m.safetensors").training_summary_["patients"] == 192
    told = run(*cox, "--evaluate", "none", "--categorical", "stage", "--drop", "smoker", "--event-value", 0)
    assert "0 = event, 1 = censored (as told by --event-value)" in told.stdout
    assert "Not evaluated" in told.stdout


def test_with_few_events_everybody_is_predicted_in_turn(folder: Path, tmp_path: Path) -> None:
    """A fifth of these patients has 29 events; the file and `info` say how the numbers were made."""
    output = tmp_path / "m.safetensors"
    done = run("fit", folder / "patients.csv", *OUTCOME, "--model", "spline-cox", "--quick", "-o", output)
    shown = " ".join(done.stdout.split())
    assert re.search(r"A fifth of the patients would have about 29 events, too few to judge a model by", shown)
    assert "On 240 patients" in shown
    told = " ".join(run("info", output).stdout.split())
    assert "5-fold cross-validation: metrics of the out-of-fold predictions" in told
    evaluation = ModelCard.of(dcsurv.load(output)).evaluation
    assert evaluation is not None
    found = dcsurv.validate(
        dcsurv.SplineCox(), *model_input(folder / "patients.csv"), resamples=0, repeats=1,
        metrics=["C-td", "IBS"],
    ).performance.set_index("metric")  # fmt: skip
    measured = {row["metric"]: row["value"] for row in evaluation["metrics"] if row["horizon"] is None}
    for name in ("C-td", "IBS"):
        assert measured[name] == pytest.approx(found.loc[name, "cross_validated"], abs=1e-3)  # other horizons, nodes
    assert evaluation["reference"]["model"] == "CoxPH"


@pytest.mark.usefixtures("undrawn")
def test_a_report_comes_with_the_fit(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    run("fit", folder / "patients.csv", *OUTCOME, "--unit", "days", "--model", "coxph", "--bootstrap", 5,
        "--report", page, "-o", tmp_path / "m.safetensors")  # fmt: skip
    text = page.read_text(encoding="utf-8")
    assert "The event is in the column ‘died’" in text
    assert "m.safetensors holds a model of the same kind, fitted to all" in text


def test_predictions_are_those_of_the_library(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "p.csv"
    options = ("--keep", "patient_id", "--interval")
    said = run("predict", folder / "ensemble.safetensors", folder / "later.csv", "-o", output, *options)
    assert "predictions for 90 patients at 6m, 1y, 2y" in said.stdout
    assert "_upper90: 90 % confidence band" in said.stdout
    assert "time_lower90: the event comes later than this in 90 %" in said.stdout
    made = pd.read_csv(output)
    assert made["row"].tolist() == list(range(1, 91))
    assert made["patient_id"].tolist() == patients(90, seed=1)["patient_id"].tolist()
    model = dcsurv.load(folder / "ensemble.safetensors")
    X, _ = model_input(folder / "later.csv")
    times = np.array([1, 2, 4]) * 365.25 / 2
    curves = model.predict_survival_function(X)
    band = model.predict_band(X, times)
    for k, label in enumerate(("6m", "1y", "2y")):
        np.testing.assert_allclose(made[f"survival_{label}"], curves(times)[:, k], atol=1e-6)
        np.testing.assert_allclose(made[f"risk_{label}"], 1 - curves(times)[:, k], atol=1e-6)
        np.testing.assert_allclose(made[f"survival_{label}_lower90"], band.lower[:, k], atol=1e-6)
        np.testing.assert_allclose(made[f"survival_{label}_upper90"], band.upper[:, k], atol=1e-6)
    np.testing.assert_allclose(made["time_lower90"], model.predict_interval(X, 0.9).lower, rtol=1e-6)
    np.testing.assert_allclose(made["median"], curves.median(), rtol=1e-6)
    np.testing.assert_allclose(made["mean_to_2y"], curves.rmst(times[-1]), rtol=1e-3)


def test_predictions_do_not_depend_on_chunks_or_format(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dcsurv.cohort import predictions, reading

    frame = patients(90, seed=1)
    frame.to_parquet(tmp_path / "later.parquet")
    frame[frame.columns[::-1]].to_csv(tmp_path / "later.csv", index=False, sep=";", decimal=",")
    run("predict", folder / "cox.safetensors", folder / "later.csv", "-o", tmp_path / "whole.csv")
    whole = pd.read_csv(tmp_path / "whole.csv")
    assert (whole["survival_6m"] > whole["survival_2y"]).all()
    monkeypatch.setattr(reading, "_CHUNK_ROWS", 35)
    monkeypatch.setattr(predictions, "_PIECE", 20)
    run("predict", folder / "cox.safetensors", tmp_path / "later.csv", "-o", tmp_path / "chunks.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "chunks.csv"), whole)
    told = run(
        "predict", folder / "cox.safetensors", tmp_path / "later.parquet", "-o", tmp_path / "c.parquet", "--json"
    )
    assert json.loads(told.stdout)["rows"] == 90
    whole["notes"] = whole["notes"].fillna("")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "c.parquet"), whole, check_dtype=False)


def test_kept_columns_are_copied_as_they_are(folder: Path, tmp_path: Path) -> None:
    frame = patients(6, seed=1)
    long = [1152921504606846977 + k for k in range(5)]
    frame["key"] = pd.array([*long, None], dtype="Int64")
    frame["score"] = [0.123456789012 + k for k in range(6)]
    frame.to_parquet(tmp_path / "p.parquet")
    predict = ("predict", folder / "cox.safetensors")
    run(*predict, tmp_path / "p.parquet", "--keep", "key,score", "-o", tmp_path / "o.csv")
    made = pd.read_csv(tmp_path / "o.csv", dtype={"key": "Int64"})
    assert made["key"].tolist()[:5] == long
    assert made["score"].tolist() == frame["score"].tolist()
    run(*predict, tmp_path / "p.parquet", "--keep", "key,score", "-o", tmp_path / "o.parquet")
    assert pd.read_parquet(tmp_path / "o.parquet", dtype_backend="numpy_nullable")["key"].tolist()[:5] == long
    frame.assign(key=[7, "A7", 1.5, None, 8, 9]).to_excel(tmp_path / "p.xlsx", index=False)
    run(*predict, tmp_path / "p.xlsx", "--keep", "key,patient_id", "-o", tmp_path / "x.parquet")
    mixed = pd.read_parquet(tmp_path / "x.parquet")
    assert mixed["key"].dropna().tolist() == ["7", "A7", "1.5", "8", "9"]
    assert mixed["patient_id"].tolist() == frame["patient_id"].tolist()
    frame.assign(key="1.003").to_csv(tmp_path / "p.csv", index=False, sep=";", decimal=",")
    run(*predict, tmp_path / "p.csv", "--keep", "key", "-o", tmp_path / "c.parquet")
    assert set(pd.read_parquet(tmp_path / "c.parquet")["key"]) == {"1.003"}


def test_settings_change_only_what_they_name(tmp_path: Path) -> None:
    from dcsurv.calibration import default_member
    from dcsurv.cli.choices import build

    def changed(usual: Any, parameters: dict[str, Any], settings: Path | None = None, quick: bool = False) -> set[str]:
        common = {"unit": None, "seed": 0, "jobs": 1, "quick": quick}
        made = build("calibrated", settings_file=settings, parameters=parameters, **common).estimator
        known = usual.get_params(deep=False)
        return {name for name, value in made.get_params(deep=False).items() if value != known[name]}

    assert changed(default_member(), {"n_nodes": 15}) == {"n_nodes"}
    assert changed(default_member(), {}, quick=True) == {"max_epochs"}
    tuned = dcsurv.DCS(n_nodes=9, encoder_size=12)
    (tmp_path / "s.json").write_text(
        json.dumps({"model": "dcs", "parameters": {"n_nodes": 9, "encoder_size": 12}}), encoding="utf-8"
    )
    assert changed(tuned, {}, tmp_path / "s.json") == set()


def test_settings_without_a_model_fit_what_they_are_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dcsurv.calibration import COMPANIONS
    from dcsurv.cli.choices import build
    from dcsurv.experiments.tuning import save_settings

    def made(settings: Any, model: str | None = None) -> tuple[Any, str]:
        save_settings(tmp_path / "s.json", settings)
        out = build(model, settings_file=tmp_path / "s.json", parameters={}, unit=None, seed=0, jobs=1)
        return out, " ".join(capsys.readouterr().err.split())

    cox, said = made(dcsurv.CoxPH(penalizer=0.3))
    assert isinstance(cox, dcsurv.CoxPH)
    assert cox.penalizer == 0.3
    assert "The settings are for CoxPH, and this is the model that is fitted." in said
    default, said = made(dcsurv.DCS(n_nodes=9))
    assert (default.estimator.n_nodes, default.companions) == (9, COMPANIONS)
    assert "for DCS: they go into the networks of the default, whose other families stay" in said
    ensemble, _ = made(dcsurv.CalibratedEnsemble(n_members=3))
    assert ensemble.n_members == 3
    of_cox, said = made(dcsurv.CoxPH(penalizer=0.3), "calibrated-coxph")
    assert (of_cox.estimator.penalizer, of_cox.companions, said) == (0.3, None, "")
    with pytest.raises(ValueError, match=r"for CoxPH, but --model is calibrated\. Leave --model out to fit what"):
        made(dcsurv.CoxPH(), "calibrated")


def test_new_patients_that_differ_are_explained(folder: Path, tmp_path: Path) -> None:
    frame = patients(90, seed=1)
    model, path, output = folder / "cox.safetensors", tmp_path / "n.csv", tmp_path / "out.csv"
    changed = frame.assign(stage=frame["stage"].replace("II", "IV").where(frame.index > 80, "I"), extra=1)
    changed["age"] = changed["age"].astype(object).where(changed.index != 4, "sixty")
    changed.to_csv(path, index=False)
    said = " ".join(run("predict", model, path, "-o", output).stderr.split())
    assert re.search(r"\d+ values? of 'stage' (is|are) unknown to the model, such as 'IV'", said)
    assert "1 value of 'age' is not a number, such as 'sixty', and counts as missing" in said
    frame.drop(columns=["age", "stage"]).to_csv(path, index=False)
    output.unlink()
    said = " ".join(run("predict", model, path, "-o", output, code=2).stderr.split())
    assert "the model needs 'age', 'stage', which the table does not have" in said
    assert not output.exists()
    late = run("predict", model, folder / "later.csv", "--horizons", "1y,90y", "-o", output)
    assert "90y lies beyond the follow-up" in " ".join(late.stderr.split())


def test_a_model_made_in_python_predicts_tables_too(folder: Path, tmp_path: Path) -> None:
    run("predict", folder / "python.safetensors", folder / "later.csv", "--horizons", "365", "-o", tmp_path / "o.csv")
    model = dcsurv.load(folder / "python.safetensors")
    X = patients(90, seed=1)[["age", "stage", "smoker"]]
    ours = pd.read_csv(tmp_path / "o.csv")["survival_365"]
    np.testing.assert_allclose(ours, model.predict_survival_function(X)(365.0), atol=1e-6)
    assert "CoxPH" in run("info", folder / "python.safetensors").stdout
    said = run("evaluate", folder / "python.safetensors", folder / "later.csv", code=2).stderr
    assert "--time and --event" in said
    run("evaluate", folder / "python.safetensors", folder / "later.csv", *OUTCOME, "--bootstrap", 0)


def test_info_shows_the_hazard_ratios_of_a_cox_model(folder: Path) -> None:
    shown = " ".join(run("info", folder / "cox.safetensors").stdout.split())
    summary = dcsurv.load(folder / "cox.safetensors").summary_
    age = summary.loc["age"]
    assert "Hazard ratios per unit of the feature" in shown
    found = re.search(r"age (1\.\d+) (1\.\d+) to (1\.\d+)", shown)
    assert found is not None
    np.testing.assert_allclose(
        [float(text) for text in found.groups()], age[["hazard_ratio", "lower", "upper"]].astype(float), atol=6e-4
    )
    assert "smoker: yes vs no" in shown
    assert "Proportional hazards, all features together: χ²" in shown
    assert "The fit is penalised (penalizer 0.0001)" in shown
    document = json.loads(run("info", folder / "cox.safetensors", "--json").stdout)
    assert [row["column"] for row in document["hazard_ratios"]] == summary.index.tolist()
    assert document["proportional_hazards"][-1]["feature"] == "GLOBAL"
    old = run("info", Path(__file__).parent / "fixtures" / "format1" / "CoxPH.safetensors")
    assert "are not in this model's file, which dcsurv 0.1 wrote" in " ".join(old.stderr.split())
    assert "Hazard ratios" not in run("info", folder / "ensemble.safetensors").stdout


def test_evaluate_measures_and_warns_of_the_training_file(folder: Path) -> None:
    done = run("evaluate", folder / "cox.safetensors", folder / "later.csv", "--bootstrap", 10, "--json")
    document = json.loads(done.stdout)
    model = dcsurv.load(folder / "cox.safetensors")
    X, y = model_input(folder / "later.csv")
    expected = dcsurv.metrics.concordance_index_td(y, model.predict_survival_function(X))
    measured = {row["metric"]: row["value"] for row in document["metrics"] if row["horizon"] is None}
    assert measured["C-td"] == pytest.approx(expected)
    assert document["patients"] == 90
    flattered = run("evaluate", folder / "cox.safetensors", folder / "patients.csv", "--bootstrap", 0)
    assert "flatter" in flattered.stderr


@pytest.mark.usefixtures("undrawn")
def test_recalibrate_writes_a_new_model(folder: Path, tmp_path: Path) -> None:
    local = patients(200, seed=2)
    local["days"] = (local["days"] * 0.4).round() + 1
    local.rename(columns={"died": "status"}).assign(status=lambda f: f["status"] + 1).to_csv(
        tmp_path / "l.csv", index=False
    )
    output = tmp_path / "new.safetensors"
    done = run(
        "recalibrate", folder / "cox.safetensors", tmp_path / "l.csv", "--event", "status", "-o", output, "--json"
    )
    document = json.loads(done.stdout)
    before, after = document["observed_expected_before"], document["observed_expected_after"]
    assert np.abs(np.array(after) - 1).mean() < np.abs(np.array(before) - 1).mean()
    shown = " ".join(run("info", output).stdout.split())
    assert "CoxPH, recalibrated" in shown
    assert "recalibrated on 200 patients" in shown
    assert "l.csv" in shown
    assert "by the horizon and rank maps" in shown
    assert re.search(r"Before any recalibration, on \d+ patients \(\d+ events\) not used for training", shown)
    measured = " ".join(run("evaluate", output, folder / "later.csv", "--bootstrap", 0).stdout.split())
    assert re.search(r"Measured on 90 patients \(\d+ events\) of later\.csv: CoxPH, recalibrated", measured)
    seen = ["report", output, tmp_path / "l.csv", "--event", "status", "-o", tmp_path / "seen.html", "--bootstrap", 0]
    run(*seen)
    words = "200 patients whom the model was fitted to, or recalibrated with, are what"
    assert words in (tmp_path / "seen.html").read_text(encoding="utf-8")
    run("predict", output, folder / "later.csv", "-o", tmp_path / "p.csv")
    page = ["report", output, folder / "later.csv", "--train", folder / "patients.csv", "-o", tmp_path / "r.html"]
    run(*page, "--bootstrap", 0)
    assert "CoxPH was not" in (tmp_path / "r.html").read_text()
    local.to_csv(tmp_path / "other.csv", index=False)
    wrong = run(*page, "--local", tmp_path / "other.csv", code=2)
    assert "was recalibrated with 200 patients" in " ".join(wrong.stderr.split())


def test_info_says_what_a_file_holds(folder: Path) -> None:
    shown = " ".join(run("info", folder / "cox.safetensors").stdout.split())
    for words in (
        "fitted to all 240 patients",
        "patients.csv",
        "time 'days', event 'died'",
        "6m, 1y, 2y",
        "I, II, III",
        "C-td",
    ):
        assert words in shown, words
    document = json.loads(run("info", folder / "ensemble.safetensors", "--json").stdout)
    assert document["kind"] == "CalibratedEnsemble"
    assert document["card"]["data"]["patients"] == 240


def test_tune_finds_settings_that_fit_takes(folder: Path, tmp_path: Path) -> None:
    settings = tmp_path / "s.json"
    data = (folder / "patients.csv", *OUTCOME, "--unit", "days")
    pictures = tmp_path / "pictures"
    some = ("--trials", 2, "--folds", 2, "--jobs", 1, "--figures", pictures)
    done = run("tune", *data, "--model", "coxph", *some, "-o", settings, "--json")
    document = json.loads(done.stdout)
    assert document["tuned_on"]["patients"] == 192
    assert {path.name for path in pictures.glob("*.svg")} == {"history.svg", "parallel.svg"}
    assert json.loads(settings.read_text())["model"] == "coxph"
    fit = ("fit", *data, "--settings", settings, "--model", "coxph", "--bootstrap", 0, "-o", tmp_path / "m.safetensors")
    assert "searched on patients" not in run(*fit).stderr
    assert "searched on patients" in run(*fit, "--seed", 1).stderr
    model = dcsurv.load(tmp_path / "m.safetensors")
    assert model.penalizer == pytest.approx(document["best"]["penalizer"])
    assert "for CoxPH, but --model is dcs" in " ".join(
        run(*fit[:-6], "--model", "dcs", *fit[-4:], code=2).stderr.split()
    )


def test_report_is_written(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    found = {"verdict": "no clear difference", "rests_on": "C-td 0.700 against 0.699.", "reference": "CoxPH"}
    (tmp_path / "validation.json").write_text(json.dumps(found))
    asked = ("report", folder / "cox.safetensors", folder / "later.csv", "--train", folder / "patients.csv", "-o", page)
    done = run(*asked, "--patients", "1,3", "--bootstrap", 5, "--validation", tmp_path / "validation.json", "--json")
    document = json.loads(done.stdout)
    assert page.read_text(encoding="utf-8").startswith("<!")
    assert all(Path(figure).is_file() for figure in document["figures"])
    assert "whom the model was not trained on" in page.read_text(encoding="utf-8")
    assert "cox.safetensors holds this very model" in page.read_text(encoding="utf-8")
    assert "(validation): no clear difference. C-td 0.700 against 0.699." in page.read_text(encoding="utf-8")
    (tmp_path / "validation.json").write_text("[]")
    refused = run(*asked, "--validation", tmp_path / "validation.json", code=2)
    assert "the validation.json of `dcsurv validate` is expected" in refused.stderr


@pytest.mark.usefixtures("undrawn")
def test_train_of_a_report_is_the_table_of_the_model(folder: Path, tmp_path: Path) -> None:
    def said(*arguments: Any, model: str = "cox", code: int = 0) -> str:
        asked = ("report", folder / f"{model}.safetensors", folder / "later.csv", *coded[model], "--bootstrap", 0)
        return " ".join(run(*asked, "-o", tmp_path / "r.html", *arguments, code=code).stderr.split())

    coded: dict[str, tuple[str, ...]] = {"cox": (), "part": (), "python": OUTCOME}
    others, again = tmp_path / "others.csv", tmp_path / "again.csv"
    patients(240, seed=3).to_csv(others, index=False)
    patients().to_csv(again, index=False, sep=";")
    for model in ("cox", "python"):
        assert "later.csv, which is also evaluated" in said("--train", folder / "later.csv", model=model, code=2)
        wrong = said("--train", others, model=model, code=2)
        assert re.search(r"others.csv \(240 patients, .* was fitted to a table of 240 patients, ", wrong)
        assert "or leave --train out" in wrong
    assert "is not the very file that the model was fitted to, patients.csv" in said("--train", again)
    assert "fitted to" not in said("--train", again, model="python")
    assert "fitted to" not in said("--train", folder / "patients.csv")
    fit = ("fit", folder / "patients.csv", *OUTCOME, "--unit", "days", "--model", "coxph", "--evaluate", "holdout")
    run(*fit, "--no-refit", "--bootstrap", 0, "-o", folder / "part.safetensors")
    kept = said("--train", folder / "patients.csv", model="part")
    assert re.search(r"fitted to 192 patients \(.* but 240 patients \(.* were passed as its training patients", kept)
    assert "were passed as its training patients" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("undrawn")
def test_local_of_a_report_is_the_table_of_the_recalibration(folder: Path, tmp_path: Path) -> None:
    local = tmp_path / "local.csv"
    patients(200, seed=2).to_csv(local, index=False)
    X, y = model_input(local)
    made = dcsurv.Recalibrated(dcsurv.load(folder / "cox.safetensors")).fit(X, y)
    made.save(tmp_path / "m.safetensors")
    asked = ("report", tmp_path / "m.safetensors", folder / "later.csv", "--train", folder / "patients.csv")
    asked = (*asked, "--bootstrap", 0, "-o", tmp_path / "r.html", "--local")
    patients(200, seed=4).to_csv(tmp_path / "others.csv", index=False)
    wrong = " ".join(run(*asked, tmp_path / "others.csv", code=2).stderr.split())
    assert re.search(r"others.csv \(200 patients, .*, but the model was recalibrated with 200 patients", wrong)
    assert "later.csv, which is also evaluated" in run(*asked, folder / "later.csv", code=2).stderr
    run(*asked, local)


@pytest.mark.usefixtures("undrawn")
def test_patients_of_a_report_are_rows_of_the_file(folder: Path, tmp_path: Path) -> None:
    later = patients(90, seed=1)
    later.loc[1, "died"] = np.nan
    later.to_csv(tmp_path / "gap.csv", index=False)
    model = folder / "cox.safetensors"
    page = ("--bootstrap", 0, "--horizons", "1y,30y", "-o", tmp_path / "r.html")
    report = ("report", model, tmp_path / "gap.csv", *page)
    written = run(*report, "--patients", "1,3", "--json")
    assert "Nothing is reported at 30 years: follow-up of these patients ends at" in written.stderr
    numbers = json.loads(written.stdout)["numbers"]["examples"]
    assert numbers["labels"] == ["patient in row 1", "patient in row 3"]
    assert "patient in row 3" in (tmp_path / "r.html").read_text(encoding="utf-8")
    run("predict", model, tmp_path / "gap.csv", "--horizons", "1y", "-o", tmp_path / "p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv").set_index("row")["survival_1y"]
    np.testing.assert_allclose(numbers["survival_at_horizons"]["365.25"], predicted[[1, 3]], atol=1e-6)
    for rows, words in (
        ("2", "row 2, which has no time or no event"),
        ("91", "there are 1 to 90"),
        ("1,1", "different"),
    ):
        assert words in " ".join(run(*report, "--patients", rows, code=2).stderr.split())


@pytest.mark.usefixtures("undrawn")
def test_a_report_on_patients_that_were_used_says_so(folder: Path, tmp_path: Path) -> None:
    quick = ("--bootstrap", 0, "--horizons", "1y", "-o", tmp_path / "r.html")
    model = tmp_path / "new.safetensors"
    run("recalibrate", folder / "cox.safetensors", folder / "later.csv", "-o", model)
    for data, words in ((folder / "patients.csv", "fitted to"), (folder / "later.csv", "recalibrated with")):
        assert f"the model was {words}" in " ".join(run("report", model, data, *quick).stderr.split())
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert "these very patients" in page
        assert "not trained on" not in page
        assert not re.search(r"\d held-out patients", page)


def test_a_model_file_quotes_no_cell(tmp_path: Path) -> None:
    frame = patients()
    frame["lab"] = ["see Smith"] * 3 + [str(k / 7) for k in range(len(frame) - 3)]
    frame["ward"] = "Smith"
    frame.to_csv(tmp_path / "p.csv", index=False)
    fit = ("fit", tmp_path / "p.csv", *OUTCOME, "--model", "coxph", "--evaluate", "none")
    assert "Smith" in run(*fit, "-o", tmp_path / "m").stdout
    assert b"Smith" not in (tmp_path / "m").read_bytes()


def test_dates_of_the_model_are_read_for_another_event(tmp_path: Path) -> None:
    frame = patients()
    first = pd.Timestamp("2010-01-01") + pd.to_timedelta(np.arange(len(frame)) % 12, "D")
    frame["first"] = first.strftime("%d/%m/%Y")
    frame["last"] = (first + pd.to_timedelta(frame["days"], "D")).dt.strftime("%d/%m/%Y").to_numpy()
    frame = frame.drop(columns="days")
    frame.to_csv(tmp_path / "p.csv", index=False)
    dates = ("--time", "last", "--start", "first", "--date-format", "%d/%m/%Y", "--event", "died")
    fit = ("fit", tmp_path / "p.csv", *dates, "--model", "coxph", "--evaluate", "none", "-o", tmp_path / "m")
    run(*fit)
    frame = frame[frame["first"].str[:2].astype(int) <= 12]
    frame["last"] = "05/06/2015"
    frame.to_csv(tmp_path / "other.csv", index=False)
    done = run("evaluate", tmp_path / "m", tmp_path / "other.csv", "--event-value", "1", "--bootstrap", 0, "--json")
    expected = (pd.Timestamp("2015-06-05") - first.min()).days
    assert json.loads(done.stdout)["data"]["last_time"] == expected
    frame["last"] = "2015-06-05"  # as another hospital writes dates
    frame["first"] = pd.to_datetime(frame["first"], format="%d/%m/%Y").dt.strftime("%Y-%m-%d")
    frame.to_csv(tmp_path / "other.csv", index=False)
    other = ("evaluate", tmp_path / "m", tmp_path / "other.csv", "--bootstrap", 0, "--json")
    assert "say how dates are written, such as --date-format" in run(*other, code=2).stderr
    for more in ((), ("--event-value", "1")):
        done = run(*other, "--date-format", "%Y-%m-%d", *more)
        assert json.loads(done.stdout)["data"]["last_time"] == expected


def test_demo_writes_everything(tmp_path: Path) -> None:
    done = run("demo", "--quick", "--jobs", 1, "-o", tmp_path / "demo")
    for name in ("metabric.csv", "new_patients.csv", "model.safetensors", "predictions.csv", "report.html"):
        assert (tmp_path / "demo" / name).stat().st_size > 1000
        assert name in "".join(done.stdout.split())  # a long path is wrapped
    assert "CoxPH" in done.stdout
    assert len(pd.read_csv(tmp_path / "demo" / "predictions.csv")) == 381
    assert not list((tmp_path / "demo").glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fit", "patients.csv", *OUTCOME, "--model", "jungle", "-o", "m"), "--model is 'jungle'"),
        (("fit", "patients.csv", *OUTCOME, "--set", "depth=3", "-o", "m"), "'depth', which DCS does not have"),
        (("fit", "patients.csv", *OUTCOME, "--set", "depth", "-o", "m"), "NAME=VALUE"),
        (("fit", "patients.csv", *OUTCOME, "--model", "dcs", "--set", "max_epochs=0", "-o", "m"), "max_epochs is 0"),
        (("fit", "patients.csv", *OUTCOME, "--horizons", "1y", "-o", "m"), "--unit days"),
        (("fit", "patients.csv", *OUTCOME, "--unit", "eras", "-o", "m"), "--unit is 'eras', but days, weeks, months"),
        (("fit", "patients.csv", *OUTCOME, "-o", "nowhere/m"), "folder nowhere does not exist"),
        (("fit", "patients.csv", *OUTCOME, "-o", "patients.csv"), "which is read here"),
        (("fit", "patients.csv", *OUTCOME, "-o", "."), "names the folder"),
        (("fit", "patients.csv", *OUTCOME, "--no-refit", "--evaluate", "none", "-o", "m"), "--evaluate holdout"),
        (("fit", "patients.csv", *OUTCOME, "--report", "r.pdf", "-o", "m"), "ends in .html"),
        (("fit", "patients.csv", *OUTCOME, "--settings", "no.json", "-o", "m"), "no settings file"),
        (("fit", "patients.csv", *OUTCOME, "--bootstrap", "1", "-o", "m"), "one resample makes no interval"),
        (("fit", "patients.csv", *OUTCOME, "--report", "./m.html", "-o", "m.html"), "is named twice"),
        (("tune", "patients.csv", *OUTCOME, "--storage", "./s.json", "-o", "s.json"), "is named twice"),
        (("fit", "none.csv", *OUTCOME, "-o", "m"), "no file none.csv"),
        (("fit", "patients.csv", "--event", "died", "-o", "m"), "--time"),
        (("predict", "patients.csv", "later.csv", "-o", "p.csv"), "not a model file"),
        (("predict", "none", "later.csv", "-o", "p.csv"), "no model file"),
        (("predict", "cox.safetensors", "later.csv", "-o", "p.txt"), ".csv or .parquet"),
        (
            ("predict", "cox.safetensors", "later.csv", "-o", "p.csv", "--keep", "name"),
            "--keep names the column 'name'",
        ),
        (("report", "cox.safetensors", "later.csv", "-o", "r.html", "--patients", "0"), "there are 1 to 90"),
        (
            ("report", "cox.safetensors", "later.csv", "-o", "r.html", "--subgroups", "agee"),
            "--subgroups names 'agee', which is no feature of the model. Did you mean 'age'?",
        ),
        (("evaluate", "cox.safetensors", "later.csv", "--event", "stage"), "--event-value"),
        (("tune", "patients.csv", *OUTCOME, "--criterion", "accuracy", "-o", "s.json"), "accuracy"),
    ],
)
def test_wrong_use_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    assert words in " ".join(re.sub("[│╭╰─╮╯]", " ", run(*arguments, code=2).stderr).split())
    assert sorted(folder.rglob("*")) == before


def test_an_unexpected_error_is_no_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Any) -> None:
        raise RuntimeError("a bug [with brackets]")

    monkeypatch.setattr("dcsurv.persistence.load", broken)
    said = run("info", folder / "cox.safetensors", code=1).stderr
    assert "a bug [with brackets]" in said
    assert "DCSURV_DEBUG=1" in said
    monkeypatch.setenv("DCSURV_DEBUG", "1")
    done = CliRunner().invoke(app, ["info", str(folder / "cox.safetensors")])
    assert "Traceback" in done.stderr
