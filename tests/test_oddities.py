"""Columns and cells that are not what they seem, found before anything is trained, and the same for later patients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcsurv
from dcsurv.cohort import Cohort, Finding, check_cohort, codes
from dcsurv.cohort.cells import spellings, yes_and_no
from dcsurv.cohort.identifiers import is_patient_number
from dcsurv.datasets import load_flchain, load_metabric, load_support
from test_cli import OUTCOME, patients, run

N = 929
RNG = np.random.default_rng(0)
LOTS = RNG.choice(900_000, N, replace=False) + 100_000
LOTS[5] = LOTS[8]  # 928 different ones in 929 rows
AGE = RNG.normal(60, 10, N).round(1)


def with_column(values: Any, name: str = "marker", **options: Any) -> Cohort:
    """Return a cohort with one more column than an age that matters."""
    rng = np.random.default_rng(1)
    n = len(values)
    days = rng.exponential(1000, n).round(1) + 0.1
    frame = pd.DataFrame({"age": AGE[:n], name: values, "days": days, "died": rng.integers(0, 2, n)})
    return Cohort.from_frame(frame, time="days", event="died", **options)


def found(cohort: Cohort, code: str) -> Finding | None:
    return next((finding for finding in check_cohort(cohort) if finding.code == code), None)


def kind(cohort: Cohort, name: str = "marker") -> tuple[str, str | None]:
    return next((column.kind, column.reason) for column in cohort.columns if column.name == name)


@pytest.mark.parametrize("name", ["hospital number", "z1", "MRN", "Fallnummer"])
def test_random_numbers_of_patients_are_no_feature(name: str) -> None:
    cohort = with_column(LOTS, name)
    assert kind(cohort, name) == ("left out", "identifier")
    assert list(cohort.features) == ["age"]


NO_IDENTIFIERS = {
    "age in days": (RNG.normal(60, 10, N) * 365.25).round(),
    "age in days, evenly": (RNG.uniform(30, 90, N) * 365.25).round(),
    "platelets": RNG.normal(250_000, 60_000, N).round(),
    "LDH": RNG.lognormal(5.5, 0.4, N).round(),
    "number of cells": RNG.lognormal(11, 0.5, N).round(),
    "expression": RNG.normal(8, 2, N),
    "day of diagnosis": RNG.integers(43_000, 44_500, N),
    "date of diagnosis": RNG.choice([20_150_000 + 100 * m + d for m in range(101, 113) for d in range(1, 29)], N),
    "hospital id": RNG.integers(1, 60, N),
    "site_no": RNG.integers(1, 30, N),
    "nodes, number": RNG.poisson(3, N),
}


@pytest.mark.parametrize("name", NO_IDENTIFIERS)
def test_measurements_are_no_identifiers(name: str) -> None:
    assert kind(with_column(NO_IDENTIFIERS[name], name), name) == ("number", None)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("patient_id", True), ("PatientID", True), ("Patienten-Nr.", True), ("numero paciente", True), ("id", True),
        ("study id", True), ("medical record number", True), ("site id", False), ("centre_id", False),
        ("number of nodes", False), ("idh_mutation", False), ("hospital", False), ("case", False),
    ],
)  # fmt: skip
def test_names_of_patients_numbers(name: str, is_one: bool) -> None:
    assert is_patient_number(name) is is_one


def test_one_repeated_number_is_a_warning_and_a_name_by_chance_none() -> None:
    one = found(with_column(LOTS, "hospital number"), "repeated-ids")
    assert one is not None
    assert (one.severity, one.numbers) == ("warning", {"rows": 1})
    assert found(with_column(LOTS, "z1"), "repeated-ids") is None


CODES: dict[str, tuple[Any, tuple[float, ...]]] = {
    "999": (np.where(RNG.random(N) < 0.05, 999, AGE), (999,)),
    "-99 and 999": (np.where(RNG.random(N) < 0.05, 999, np.where(RNG.random(N) < 0.05, -99, AGE)), (-99, 999)),
    "998 and 999": (np.where(RNG.random(N) < 0.05, 999, np.where(RNG.random(N) < 0.05, 998, AGE)), (998, 999)),
    "-1 among counts": (np.where(RNG.random(N) < 0.05, -1, RNG.poisson(4, N)), (-1,)),
    "9 among levels": (RNG.choice([1, 2, 3, 4, 9], N), (9,)),
    "9999 beyond a long tail": (np.where(RNG.random(N) < 0.05, 9999, RNG.lognormal(5, 1, N).round()), (9999,)),
    "ages up to 99": (RNG.integers(30, 100, N), ()),
    "scores around 0": (RNG.integers(-3, 4, N), ()),
    "worse, same, better": (RNG.integers(-1, 2, N), ()),
    "one 999 only": (np.where(np.arange(N) == 3, 999, AGE), ()),
    "counts up to 9": (RNG.integers(0, 10, N), ()),
    "logarithms": (np.log10(RNG.lognormal(0, 1, N).clip(0.1)), ()),
}


@pytest.mark.parametrize("name", CODES)
def test_codes_for_missing_values(name: str) -> None:
    values, expected = CODES[name]
    assert codes.missing_codes(np.asarray(values, dtype=np.float64)) == expected


def test_a_code_counts_as_missing_once_it_is_told_also_for_later_patients(tmp_path: Path) -> None:
    frame = patients()
    frame["bmi"] = np.where(frame.index % 9 == 0, 999, np.random.default_rng(0).normal(25, 4, len(frame)).round(1))
    path, model = tmp_path / "patients.csv", tmp_path / "model.safetensors"
    frame.to_csv(path, index=False)
    said = json.loads(run("check", path, *OUTCOME, "--json").stdout)
    one = next(finding for finding in said["findings"] if finding["code"] == "missing-codes")
    assert (one["columns"], one["parameter"]) == (["bmi"], "missing_values")
    assert "--missing-values bmi=999" in one["remedy"]
    told = ("--missing-values", "bmi=999", "--model", "coxph", "--evaluate", "none")
    run("fit", path, *OUTCOME, *told, "-o", model)
    assert dcsurv.load(model).preprocessor_.get_state()["columns"][-1]["mean"] < 30
    later = frame.head(9)
    for name, value in (("code", 999), ("empty", None)):
        later.assign(bmi=value).to_csv(tmp_path / f"{name}.csv", index=False)
        run("predict", model, tmp_path / f"{name}.csv", "-o", tmp_path / f"{name}_out.csv")
    assert (tmp_path / "code_out.csv").read_text() == (tmp_path / "empty_out.csv").read_text()
    plain = Cohort.from_frame(frame, time="days", event="died", missing_values=[999])
    assert plain.features["bmi"].max() < 60


def test_too_large_a_cell_is_refused_alike_with_its_row_and_column(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[7, "age"] = 1e308
    path = tmp_path / "patients.csv"
    frame.to_csv(path, index=False)
    for command in (("check",), ("fit", "--model", "coxph", "-o", tmp_path / "model.safetensors")):
        done = run(command[0], path, *OUTCOME, *command[1:], code=1 if command[0] == "check" else 2)
        said = " ".join((done.stdout + done.stderr).split())
        assert "'age' holds 1e+308 in row 8: too large to compute with" in said
    with pytest.raises(ValueError, match=r"column 'age' holds 1e\+308 in row 8"):
        dcsurv.CoxPH().fit(frame[["age"]], (frame["days"], frame["died"]))
    slip = found(with_column(np.where(np.arange(N) == 4, 1e30, AGE + RNG.random(N))), "extreme-values")
    assert slip is not None
    assert "1e+30 in row 5" in slip.message


def test_copies_are_left_out_and_near_copies_named() -> None:
    for values in (AGE, AGE * 12, 120 - AGE, AGE * 1.8 + 459.67):
        cohort = with_column(values)
        assert kind(cohort) == ("left out", "copy")
        assert found(cohort, "copied-columns").columns == ("marker",)  # type: ignore[union-attr]
    near = with_column((AGE * 2.2046).round(0))
    assert kind(near) == ("number", None)
    assert found(near, "collinear-columns").columns == ("marker", "age")  # type: ignore[union-attr]
    words = pd.Series(RNG.choice(["a", "b", "c"], N))
    frame = pd.DataFrame({"one": words, "two": words.map({"a": "x", "b": "y", "c": "z"}), "days": AGE, "died": 1})
    assert list(Cohort.from_frame(frame, time="days", event="died").features) == ["one"]
    assert list(with_column(AGE * 12, numeric=["marker"]).features) == ["age", "marker"]  # as asked


def test_numbers_with_text_around_them_are_named() -> None:
    half = with_column([f"{value} mg" if k % 2 else f"{value}" for k, value in enumerate(AGE)])
    assert kind(half) == ("left out", "half numbers")
    one = found(half, "half-read-numbers")
    assert one is not None
    assert "mg" in one.message
    assert found(with_column([f">{v}" if k % 9 == 0 else f"{v}" for k, v in enumerate(AGE)]), "mixed-columns")
    nearly_empty = with_column(np.where(np.arange(N) < 9, AGE, np.nan))
    assert kind(nearly_empty) == ("left out", "few values")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["Y", "N", "y", "n", "Yes"], ("no", "yes")),
        (["ja", "nein", "Ja", "J"], ("nein", "ja")),
        (["Oui", "non", "O"], ("non", "Oui")),
        (["sí", "no"], ("no", "sí")),
        (["sim", "não"], ("não", "sim")),
        (["J", "N"], ("N", "J")),
        (["yes", "no", "unknown"], None),
        (["N", "S", "E", "W"], None),
    ],
)
def test_yes_and_no_keep_their_language(words: list[str], expected: tuple[str, str] | None) -> None:
    assert yes_and_no(words) == expected


def test_spellings_of_one_level_are_put_together() -> None:
    merged = {
        ("Left", "left", "left", "right"): {"Left": "left"},
        ("M", "m", "M", "F"): {"m": "M"},
        ("stage  1", "stage 1", "stage 1", "stage 2"): {"stage  1": "stage 1"},
        ("Yes", "Yes", "y", "no", "unknown"): {"y": "Yes"},
        ("AA", "Aa", "aa"): {},
        ("A", "a"): {},
        ("N", "NO", "O", "S"): {},  # points of the compass
    }
    for words, expected in merged.items():
        assert spellings(pd.Series(words)) == expected


def test_later_patients_are_spelled_like_those_of_training(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    frame = patients().drop(columns="smoker")
    frame["raucher"] = rng.choice(["ja", "nein"], len(frame))
    frame["side"] = rng.choice(["left", "Left", "right"], len(frame))
    path, model = tmp_path / "patients.csv", tmp_path / "model.safetensors"
    frame.to_csv(path, index=False)
    fit = ("fit", path, *OUTCOME, "--model", "coxph", "--evaluate", "none", "-o", model)
    assert "Spellings of one level" in " ".join(run("check", path, *OUTCOME).stdout.split())
    run(*fit)
    names = dcsurv.load(model).preprocessor_.get_feature_names_out().tolist()
    assert "raucher_ja" in names
    assert "side_right" in names
    plain = frame.head(6).assign(raucher=["ja", "nein"] * 3, side=["left", "right"] * 3)
    odd = plain.assign(raucher=["JA", "N"] * 3, side=[" LEFT", "Right "] * 3)
    for name, table in (("plain", plain), ("odd", odd)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        run("predict", model, tmp_path / f"{name}.csv", "-o", tmp_path / f"{name}_out.csv")
    assert (tmp_path / "plain_out.csv").read_text() == (tmp_path / "odd_out.csv").read_text()


@pytest.mark.parametrize("load", [load_metabric, load_support, load_flchain])
def test_good_cohorts_raise_no_false_alarm(load: Any) -> None:
    X, y = load()
    cohort = Cohort.from_frame(X.assign(days=y["time"], died=y["event"])[:1500], time="days", event="died")
    new = {"repeated-ids", "copied-columns", "collinear-columns", "level-spellings", "half-read-numbers", "too-large",
           "extreme-values", "missing-codes", "id-columns", "no-features"}  # fmt: skip
    assert not new & {finding.code for finding in check_cohort(cohort)}
    assert list(cohort.features) == list(X)


def test_ages_are_recognised_in_other_languages() -> None:
    from dcsurv.report.subgroups import is_person

    for name in ("age", "Alter", "âge", "edad", "età", "leeftijd", "idade", "age_at_diagnosis", "Geschlecht", "sexe"):
        assert is_person(name), name
    for name in ("stage", "dosage", "Alternative", "cabbage"):
        assert not is_person(name), name
