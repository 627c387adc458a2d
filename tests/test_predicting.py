"""Predicting tables: the same numbers in any pieces, with any number of threads, compiled or not, and from a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import stdtrit

import dcsurv
from dcsurv.calibration import HorizonMap, RankPreservingMap
from dcsurv.calibration.map_base import MappedCurves
from dcsurv.cohort import CohortError, ModelCard, Predictor, inspect_table, write_predictions
from dcsurv.cohort.cells import to_numbers
from dcsurv.cohort.parts import Counts, find_parts, predict_folder
from dcsurv.cohort.predictions import in_order
from dcsurv.curves import SurvivalCurves
from dcsurv.datasets import simulate
from dcsurv.models.bands import student_reach
from dcsurv.networks import EncoderDecoder, StackedNetworks

SOURCE = Path(dcsurv.__file__).parents[1]
# All that decide between compiled code and NumPy.
DECIDE = [
    "trees.arrays",
    "curves.interpolated",
    "calibration.rank_map",
    "calibration.horizon_map",
    "cohort.prediction_files",
]


@pytest.fixture(scope="module")
def model() -> Any:
    """A small ensemble in which all families take part."""
    cohort = simulate("independent", 300, hazards="non-linear")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcsurv.calibration.ensemble.stacking_weights", lambda *_: np.full(5, 0.2))
        fitted = dcsurv.CalibratedEnsemble(n_members=2, random_state=0).set_params(estimator__max_epochs=2)
        fitted.fit(cohort.X, cohort.y)
    assert len(fitted.members_) == 2 * (2 + 4)
    return fitted


@pytest.fixture(scope="module")
def patients() -> pd.DataFrame:
    return simulate("independent", 700, random_state=1).X


def predicted(model: Any, file: Path, output: Path, **options: Any) -> bytes:
    card = ModelCard.of(model)
    predictor = Predictor(model, card, card.horizons, bands=0.9, **options)
    for _ in write_predictions(predictor, inspect_table(file), output):
        pass
    return output.read_bytes()


def use_compiled(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    for name in DECIDE:
        monkeypatch.setattr(f"dcsurv.{name}.pays", lambda work, limit: answer)
    if not answer:
        monkeypatch.setattr("dcsurv.cohort.predictions.expect_much", lambda: None)


# --- the same numbers ------------------------------------------------------------------------------------------


def test_rows_do_not_depend_on_pieces_threads_or_compiled_code(
    model: Any, patients: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "patients.csv"
    patients.to_csv(file, index=False)
    use_compiled(monkeypatch, True)
    expected = predicted(model, file, tmp_path / "out.csv")
    frame = pd.read_csv(tmp_path / "out.csv")
    assert len(frame) == len(patients)
    for rows, threads, compiled in ((100, 3, True), (1, 2, True), (97, 1, False)):
        monkeypatch.setattr("dcsurv.cohort.predictions._CHUNK", 3 * rows + 1)
        monkeypatch.setattr("dcsurv.cohort.predictions._PIECE", rows)
        monkeypatch.setattr("dcsurv.cohort.predictions._cores", lambda threads=threads: threads)
        use_compiled(monkeypatch, compiled)
        if rows == 1:
            patients[:40].to_csv(file, index=False)
            assert expected.startswith(predicted(model, file, tmp_path / "again.csv"))
            patients.to_csv(file, index=False)
        else:
            assert predicted(model, file, tmp_path / "again.csv") == expected
    assert not list(tmp_path.glob(".*"))


def test_a_table_is_predicted_as_the_library_does(model: Any, patients: pd.DataFrame, tmp_path: Path) -> None:
    file = tmp_path / "patients.csv"
    patients.to_csv(file, index=False)
    predicted(model, file, tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    horizons = ModelCard.of(model).horizons
    band = model.predict_band(patients, [one.time for one in horizons])
    curves = model.predict_survival_function(patients)
    for k, one in enumerate(horizons):
        for name, values in (("", band.survival), ("_lower90", band.lower), ("_upper90", band.upper)):
            np.testing.assert_allclose(found[f"survival_{one.label}{name}"], values[:, k], atol=1e-6)
        np.testing.assert_allclose(band.survival[:, k], curves.evaluate(band.times)[:, k], atol=1e-12)
    np.testing.assert_allclose(found["median"], curves.median(), atol=1e-6)
    np.testing.assert_allclose(found["followed_to"], model.predict_followed_to(patients), atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain"])
def test_members_and_bands_are_those_of_one_member_after_the_other(
    model: Any, patients: pd.DataFrame, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ensemble did before its members were asked together, written out."""
    use_compiled(monkeypatch, compiled)
    X = model.prepare(patients[:60])
    nodes = model.nodes
    folds, kinds = np.zeros((2, 60, len(nodes))), []
    for family in model.families_:
        n = family.n_seeds
        own = [
            np.mean([one.survival_at(X, nodes) for one in family.members[k * n : k * n + n]], axis=0) for k in (0, 1)
        ]
        mapped = [np.minimum.accumulate(family.map(one, nodes), axis=1) for one in (*own, np.mean(own, axis=0))]
        folds += family.weight * np.array(mapped[:2])
        kinds.append(mapped[2])
    curves = [model.map_.transform((np.minimum(one, 1), nodes)) for one in (*folds, *kinds, np.mean(kinds, axis=0))]
    sources = model.band_sources(X)
    times = np.array([0.01, 0.7, 3.0, nodes[-1], nodes[-1] + 1])
    asked = [*sources.replicates, *(one for _, one in sources.families), sources.center]
    for one, other in zip(asked, curves, strict=True):
        np.testing.assert_allclose(one.evaluate(times), other.evaluate(times), atol=2e-6)


@pytest.mark.parametrize("interpolation", ["linear", "step", "constant_hazard"])
def test_a_map_that_is_read_equals_the_map_that_transforms(interpolation: Any) -> None:
    cohort = simulate("independent", 300)
    fitted = dcsurv.CoxPH().fit(cohort.X[:100], cohort.y[:100])
    values = fitted.predict_survival_function(cohort.X[100:]).project(np.linspace(0.5, 9, 12)).values ** 1.7
    curves = SurvivalCurves(np.linspace(0.5, 9, 12), values, interpolation=interpolation)
    first = HorizonMap().fit(cohort.y[100:], curves)
    times = np.array([8.9, 0.0, 0.1, 2.0, 4.4, 9.0, 12.0])
    np.testing.assert_allclose(first.read(curves, times), first.transform(curves).evaluate_rows(times), atol=1e-14)
    one = first.transform(curves)
    second = RankPreservingMap().fit(cohort.y[100:], one)
    behind = MappedCurves(MappedCurves(curves, first), second)
    np.testing.assert_allclose(behind.evaluate(times), second.transform(one).evaluate(times), atol=1e-14)
    np.testing.assert_array_equal(behind.times, second.transform(one).times)
    # And the level of a rank-preserving map is undone, not searched for.
    last = second.transform(one)
    reached = last.median()
    seen = ~np.isnan(reached)
    assert seen.any()
    np.testing.assert_array_equal(seen, last.evaluate_rows(last.times[-1:])[0] <= 0.5)
    if interpolation != "step":
        np.testing.assert_allclose(last[np.flatnonzero(seen)].at_own(reached[seen]), 0.5, atol=1e-9)


@pytest.mark.parametrize("shape", [{"feature_bins": 4, "encoder_layers": 2}, {"aggregation_layers": 2}])
def test_stacked_networks_say_what_each_says(shape: dict[str, int]) -> None:
    torch.manual_seed(0)
    networks = [EncoderDecoder(6, 9, decoder_layers=0, **shape).eval() for _ in range(3)]
    x = torch.randn(600, 6)
    for one in networks:
        if one.embedding is not None:
            one.embedding.set_bins(torch.randn(50, 6).numpy())
    assert StackedNetworks.accepts(networks)
    stacked = StackedNetworks(networks)
    with torch.no_grad():
        torch.testing.assert_close(stacked(x), torch.stack([one(x) for one in networks]), atol=1e-5, rtol=1e-5)
    for rows in (slice(0, 1), slice(37, 80), slice(255, 257)):
        assert torch.equal(stacked(x[rows]), stacked(x)[:, rows]), "a row depends on its place"
    assert not StackedNetworks.accepts([networks[0], EncoderDecoder(6, 9, decoder_layers=1)])
    assert not StackedNetworks.accepts([networks[0], EncoderDecoder(6, 8, decoder_layers=0, **shape)])


def test_the_reach_of_student_is_that_of_scipy() -> None:
    for freedom in (1, 2, 3, 4, 9, 19, 40):
        for level in (0.05, 0.9, 0.99):
            assert student_reach(level, freedom) == pytest.approx(stdtrit(freedom, (1 + level) / 2), rel=1e-12)


# --- text ------------------------------------------------------------------------------------------------------


def test_numbers_are_written_as_pandas_writes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dcsurv.cohort.prediction_files import _lines

    rng = np.random.default_rng(0)
    values = rng.choice([0, 1, 1e-6, 1.2e-5, 1e-5, 9.9e-5, 1e-4, 0.5, 999_999_999.999999, 30, np.nan], (4, 300))
    values[:, 100:] = rng.uniform(0, 10.0 ** rng.integers(-7, 9, (4, 200)))
    names = ["a", "b", "c", "d"]
    frame = pd.DataFrame(dict(zip(names, np.round(values, 6), strict=True)))
    frame.insert(0, "row", np.arange(95, 395))
    frame["notes"] = ""
    assert _lines(frame, [], frame[names].to_numpy().T) == frame.to_csv(index=False, header=False).encode()
    frame["notes"] = rng.choice(["", "far, far away", "plain"], 300)
    assert _lines(frame, [], frame[names].to_numpy().T) == frame.to_csv(index=False, header=False).encode()
    frame.insert(1, "id", rng.choice(["plain", "with, comma", 'a "quote"', "two\nlines", "ü", None], 300))
    assert _lines(frame, ["id"], frame[names].to_numpy().T) == frame.to_csv(index=False, header=False).encode()


def test_numbers_and_text_are_read_to_the_same_bits(tmp_path: Path) -> None:
    """A word in the last rows makes all that follows text; the rows before are not read twice."""
    from dcsurv.cohort import read_chunks

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400) * 10.0 ** rng.integers(-9, 9, 400), "y": rng.normal(size=400)})
    file = tmp_path / "numbers.csv"
    frame.to_csv(file, index=False)
    form = inspect_table(file)
    as_text = pd.concat(read_chunks(form, rows=100)).apply(to_numbers)
    as_numbers = list(read_chunks(form, rows=100, numbers=["x", "y"]))
    assert all((chunk.dtypes == np.float64).all() for chunk in as_numbers)
    pd.testing.assert_frame_equal(pd.concat(as_numbers), as_text, check_exact=True)
    for odd in ("unknown", "inf"):
        cells = frame.astype(object)
        cells.loc[350, "y"], cells.loc[20, "x"] = odd, None
        cells.to_csv(file, index=False)
        mixed = pd.concat(read_chunks(inspect_table(file), rows=100, numbers=["x", "y"]))
        plain = pd.concat(read_chunks(inspect_table(file), rows=100))
        assert mixed["y"].iloc[350] == odd
        pd.testing.assert_series_equal(to_numbers(mixed["x"]), to_numbers(plain["x"]), check_exact=True)
        assert len(mixed) == 400


def test_an_interruption_does_not_wait_for_the_rows_that_are_being_predicted() -> None:
    go_on, done = threading.Event(), threading.Event()

    def predict(item: int) -> int:
        if item:
            go_on.wait(60)  # only ends what hangs
            done.set()
        return item

    found = in_order(predict, range(3), 2)
    assert next(found) == 0
    found.close()
    assert not done.is_set()
    go_on.set()


# --- folders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(patients: pd.DataFrame, tmp_path: Path) -> Path:
    parts = tmp_path / "parts"
    (parts / "more").mkdir(parents=True)
    for k, name in enumerate(("a.parquet", "b.parquet", "more/c.parquet")):
        patients[50 * k : 50 * k + 50].to_parquet(parts / name)
    (parts / "_metadata.parquet").write_bytes(b"none of these")
    return parts


def test_what_is_wrong_in_one_file_of_a_folder_is_said_with_its_path_and_a_remedy_that_it_has(
    model: Any, patients: pd.DataFrame, folder: Path, tmp_path: Path
) -> None:
    name = next(one.name for one in ModelCard.of(model).columns if one.kind == "number")
    commas = patients[:50].assign(**{name: [f"{60 + k},5" for k in range(50)]})
    commas.to_parquet(folder / "more" / "c.parquet")
    card = ModelCard.of(model)
    predictor = Predictor(model, card, card.horizons)
    with pytest.raises(CohortError, match=r"more/c\.parquet: 50 of 50 values of .* are not numbers") as caught:
        list(predict_folder(predictor, find_parts(folder, tmp_path / "out"), tmp_path / "out", "a model"))
    assert "such as 60.5 for '60,5'" in caught.value.remedy
    assert "decimal=" not in str(caught.value)


def test_a_folder_goes_on_after_a_kill(model: Any, patients: pd.DataFrame, folder: Path, tmp_path: Path) -> None:
    file, output, held = tmp_path / "model.safetensors", tmp_path / "out", tmp_path / "held"
    model.save(file)
    # The second part waits for a kill; the first is there by then.
    program = f"""
import sys, time
from pathlib import Path
import dcsurv.cohort.parts as parts
original = parts.write_predictions
def slow(predictor, form, path, **options):
    for rows in original(predictor, form, path, **options):
        if path.name == "b.parquet":
            Path({str(held)!r}).touch()
            time.sleep(600)
        yield rows
parts.write_predictions = slow
from dcsurv.cli import main
sys.argv = ["dcsurv", "predict", {str(file)!r}, {str(folder)!r}, "-o", {str(output)!r}]
main()
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        while not held.exists():
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert [path.name for path in output.glob("*.parquet")] == ["a.parquet"]
    begun = (output / "a.parquet").stat().st_mtime_ns
    card = ModelCard.of(model)
    predictor = Predictor(model, card, card.horizons, bands=0.9)
    parts = find_parts(folder, output)
    assert [part.done for part in parts] == [True, False, False]
    record = json.loads((output / "_predicted.json").read_text())
    *_, counts = predict_folder(predictor, parts, output, record["model"])
    assert (counts.rows, predictor.rows) == (100, 0)
    assert (output / "a.parquet").stat().st_mtime_ns == begun
    assert not list(output.rglob(".*")), "half-written files of the killed run are gone"
    found = pd.concat([pd.read_parquet(part.target) for part in parts], ignore_index=True)
    expected = predictor.predict(patients[:150])
    pd.testing.assert_frame_equal(found.drop(columns="row"), expected.drop(columns="row"))
    assert found["row"].tolist() == [*range(1, 51)] * 3
    with pytest.raises(dcsurv.cohort.CohortError, match="another model"):
        next(predict_folder(predictor, parts, output, "another"))


def test_a_part_without_rows_has_no_predictions_and_a_wrong_one_is_named(
    model: Any, patients: pd.DataFrame, folder: Path, tmp_path: Path
) -> None:
    card, output = ModelCard.of(model), tmp_path / "out"
    predictor = Predictor(model, card, card.horizons)
    patients[:0].to_parquet(folder / "b.parquet")
    *_, counts = predict_folder(predictor, find_parts(folder, output), output, "")
    assert counts.rows == 100
    assert list(pd.read_parquet(output / "b.parquet").columns) == predictor.names()
    patients[:5].drop(columns=patients.columns[0]).to_parquet(folder / "b.parquet")
    with pytest.raises(dcsurv.cohort.CohortError, match=r"b\.parquet: the model needs"):
        list(predict_folder(predictor, find_parts(folder, output), output, ""))


def test_folders_that_cannot_be(tmp_path: Path, model: Any) -> None:
    with pytest.raises(dcsurv.cohort.CohortError, match="no Parquet files"):
        find_parts(tmp_path, tmp_path / "out")
    (tmp_path / "other.txt").touch()
    card = ModelCard.of(model)
    with pytest.raises(dcsurv.cohort.CohortError, match="something else"):
        next(predict_folder(Predictor(model, card, card.horizons), [], tmp_path, ""))
    assert (Counts(2, {}, {"1y": 1}) + Counts(3, {}, {"1y": 4, "2y": 1})) == Counts(5, {}, {"1y": 5, "2y": 1})


# --- the start -------------------------------------------------------------------------------------------------


def test_ten_rows_import_nothing_slow_and_are_the_librarys(model: Any, patients: pd.DataFrame, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    patients[:10].to_csv(tmp_path / "ten.csv", index=False)
    program = """
import json, sys
from dcsurv.cli import main
sys.argv = ["dcsurv", "predict", "model.safetensors", "ten.csv", "-o", "out.csv"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    slow = {
        "sklearn",
        "scipy",
        "numba",
        "llvmlite",
        "matplotlib",
        "lifelines",
        "joblib",
        "optuna",
        "jinja2",
        "openpyxl",
    }
    assert not slow & set(json.loads(done.stdout.splitlines()[-1]))
    card = ModelCard.of(model)
    expected = Predictor(model, card, card.horizons, bands=0.9).predict(patients[:10])
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out.csv").fillna({"notes": ""}), expected, check_dtype=False)
