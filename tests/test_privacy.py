"""What a model file tells about single patients: nothing that one of them alone has, and a list of the rest."""

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
from dcsurv import DCS, CoxPH, SplineCox
from dcsurv.cli import app
from dcsurv.persistence import read
from dcsurv.preprocessing import Preprocessor, UnknownLevelsWarning
from dcsurv.report.blocks import Paragraph, Section


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 120
    frame = pd.DataFrame({"age": rng.normal(60, 10, n).round(2), "site": rng.choice(["lung", "colon"], n)})
    frame.loc[[5, 17], "site"] = "Fabry's disease"
    time = rng.exponential(900, n).round() + 1
    return frame.assign(days=time, died=(rng.random(n) < 0.7).astype(int))


@pytest.fixture(scope="module")
def saved(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("privacy")
    table.to_csv(folder / "st-mary.csv", index=False)
    words = ["fit", folder / "st-mary.csv", "--time", "days", "--event", "died", "--unit", "days", "--model", "coxph"]
    words += ["--evaluate", "none", "-o", folder / "model.safetensors"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    (folder / "said").write_text(" ".join((done.stdout + done.stderr).split()))
    return folder / "model.safetensors"


def test_no_level_of_one_patient_is_in_the_file(saved: Path) -> None:
    assert b"Fabry" not in saved.read_bytes()
    assert 'count as missing, and the file does not name them: "site (Fabry\'s disease)"' in (
        saved.with_name("said").read_text()
    )
    header, _ = read(saved)
    assert header["preprocessing"]["columns"][1]["levels"] == ["colon", "lung"]


def test_a_rare_level_counts_as_missing(table: pd.DataFrame) -> None:
    X = table[["age", "site"]]
    pooled = Preprocessor().fit(X)
    assert pooled.rare_levels_ == {"site": ["Fabry's disease"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = pooled.transform(X)
    gone = X.assign(site=X["site"].where(X["site"] != "Fabry's disease"))
    np.testing.assert_array_equal(ours, Preprocessor(least_patients=1).fit(gone).transform(gone))
    assert Preprocessor(least_patients=1).fit(X).get_feature_names_out().tolist()[1:] == ["site_colon", "site_lung"]
    assert Preprocessor().fit(X[:4]).get_state()["columns"][1]["levels"] == [X["site"][:4].mode()[0]]
    with pytest.raises(ValueError, match="least_patients is 'x'"):
        Preprocessor(least_patients="x").fit(X)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "model",
    [DCS(max_epochs=1, feature_bins=4, n_nodes=5, random_state=0), SplineCox()],
    ids=["bins of a network", "effects that are held"],
)
def test_the_extreme_values_are_not_in_the_file(table: pd.DataFrame, model: Any, tmp_path: Path) -> None:
    X, y = table[["age"]], dcsurv.make_outcome(table["days"], table["died"])
    model.fit(X, y).save(tmp_path / "model")
    _, arrays = read(tmp_path / "model")
    prepared = model.prepare(X)[:, 0].astype(np.float64)
    margin = 0.25 * np.ptp(prepared)
    hidden = np.array([prepared.min(), prepared.max(), prepared.min() - margin, prepared.max() + margin])
    edges = [one.ravel() for name, one in arrays.items() if one.dtype.kind == "f" and "weight" not in name]
    lower = arrays.get("network.embedding.lower")
    if lower is not None:
        edges.append(
            (lower + 1 / np.where(arrays["network.embedding.scale"], arrays["network.embedding.scale"], 1)).ravel()
        )
        assert lower[0, 0] <= prepared.min()
    else:
        assert arrays["lower_"][0] <= prepared.min() - margin
        assert arrays["upper_"][0] >= prepared.max() + margin
    assert np.abs(np.concatenate(edges)[:, None] - hidden).min() > 1e-5


def test_info_lists_what_a_reader_could_learn(saved: Path, table: pd.DataFrame) -> None:
    done = CliRunner().invoke(app, ["info", str(saved), "--privacy", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["privacy"]
    by_kind: dict[str, list[Any]] = {}
    for one in found:
        by_kind.setdefault(one["what"], []).append(one)
    assert {"patients", "table", "dates", "levels", "numbers", "columns", "times"} <= by_kind.keys()
    assert by_kind["table"][0]["values"] == ["st-mary.csv"]
    events = np.unique(table["days"][table["died"] == 1])
    assert [one["values"] for one in by_kind["times"] if one["about"] == "times_"] == [events.tolist()]
    site = next(one for one in by_kind["levels"] if one["about"] == "site")
    assert "colon (about" in site["text"]
    told = CliRunner().invoke(app, ["info", str(saved), "--privacy"]).output
    assert "holds no row of a patient" in told
    assert "st-mary.csv" in told


def test_a_page_counts_levels_that_it_does_not_know(table: pd.DataFrame) -> None:
    X, y = table[["age", "site"]], dcsurv.make_outcome(table["days"], table["died"])
    model = CoxPH().fit(X, y)
    others = X.assign(site="Mrs Miller, see letter of 3 May")
    with pytest.warns(UnknownLevelsWarning, match="Mrs Miller"):  # on the screen of whoever has the table
        model.predict(others)
    section = Section("one", "One")
    with section.trying("Something"):
        model.predict(others)
    said = " ".join(block.text for block in section.blocks if isinstance(block, Paragraph))
    assert "1 level of 'site' that the model does not know is treated as missing" in said
    assert "Miller" not in said
