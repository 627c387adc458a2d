"""What happens to model files that were forged or damaged, with a digest that fits: thousands of them, of every kind.

Every kind of model that is registered is fitted to a small table, with the files of older formats beside them, and
changed at random: bytes of the header, its values and its shape, arrays, the file as a whole. Each mutant is loaded
and, if it loads, predicts a few patients in Python, through its card and its horizons, and is described by
``dcsurv info``. A mutant may be refused in words, or predict probabilities that fall from 1 towards 0; nothing else.
Writes the counts to ``docs/results/mutants``.

    python benchmarks/mutants.py [--mutants 21000] [--seed 0]
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import resource
import struct
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "mutants"
FIXTURES = ROOT / "tests" / "fixtures" / "format1"
# A mutant that takes longer hangs; one that asks for more memory than this above the campaign itself blows up.
MOST_SECONDS, MOST_BYTES = 30.0, 1 << 30
# Of this many mutants that load, one is also shown by `dcsurv info`.
SHOWN = 8
# In the order of the table: what is allowed to happen, then what is not.
REFUSED, OTHER_TABLE, PREDICTED = "refused in words", "asks for another table", "sound probabilities"
UNEXPECTED, OUTSIDE, HANGS, MEMORY = "unexpected exception", "unsound probabilities", "hang", "memory"
GOOD, BAD = (REFUSED, OTHER_TABLE, PREDICTED), (UNEXPECTED, OUTSIDE, HANGS, MEMORY)


@dataclass(frozen=True)
class Original:
    """A sound file: what it says, its arrays, and patients that it can predict."""

    name: str
    text: str
    arrays: dict[str, Any]
    patients: pd.DataFrame


# --- sound files ------------------------------------------------------------------------------------------


def table(n: int = 160) -> pd.DataFrame:
    """Return made-up patients: numbers, categories, yes and no, missing values, a time and an event."""
    rng = np.random.default_rng(7)
    age, marker = rng.normal(60, 10, n).round(1), rng.lognormal(size=n).round(2)
    stage = rng.choice(["I", "II", "III"], n)
    risk = 0.03 * (age - 60) + 0.4 * (stage == "III")
    time, lost = rng.exponential(900 * np.exp(-risk)), rng.uniform(100, 2500, n)
    smokes = rng.choice(["yes", "no"], n)
    frame = pd.DataFrame({"age": age, "marker": marker, "stage": stage, "smokes": smokes})
    frame.loc[rng.choice(n, n // 10, replace=False), "marker"] = np.nan
    return frame.assign(days=np.minimum(time, lost).round() + 1, died=(time <= lost).astype(int))


def models() -> Iterator[tuple[str, Any]]:
    """Yield unfitted models that are small: one of every registered kind, and those that wrap others."""
    from dcsurv import CalibratedEnsemble, CoxPH, CoxTime, HazardForest, SplineCox
    from dcsurv.kinds import kinds
    from dcsurv.preprocessing import Preprocessor

    small = {"max_epochs": 1, "n_nodes": 5, "encoder_size": 4, "decoder_size": 4, "layer_size": 4, "n_trees": 3}
    small |= {"max_rounds": 3, "random_state": 0, "feature_bins": 3}
    for kind in kinds():
        if kind.by_name and not kind.wraps:
            model = kind.model()
            yield kind.model.__name__, model.set_params(**{k: v for k, v in small.items() if k in model.get_params()})
    yield "CoxPH, ordinal", CoxPH(preprocess=Preprocessor(ordinal=("stage",)))
    yield "SplineCox, strongest", SplineCox(strongest=2)
    few = {"n_members": 2, "seeds_per_member": 1, "random_state": 0, "n_jobs": 1}
    member = CoxTime(max_epochs=1, layer_size=4)
    trees = HazardForest(n_trees=3)
    yield "CalibratedEnsemble", CalibratedEnsemble(estimator=member, companions=("spline-aft", trees), **few)
    yield (
        "CalibratedEnsemble, refits",
        CalibratedEnsemble(estimator=CoxPH(), companions=(), bands="bootstrap", **{**few, "n_refits": 2}),
    )


def originals() -> list[Original]:
    """Fit one small model of every kind, recalibrate some, and add the files of older formats."""
    from dcsurv import CoxPH, Recalibrated
    from dcsurv.cli.fitting import give_card
    from dcsurv.cohort import read_cohort
    from dcsurv.cohort.evaluation import hold_out
    from dcsurv.datasets import load as load_cohort
    from dcsurv.durations import parse_horizons
    from dcsurv.persistence import read

    found = []
    with tempfile.TemporaryDirectory() as folder:
        path, source = Path(folder, "model.safetensors"), Path(folder, "patients.csv")
        patients = table()
        patients.to_csv(source, index=False)
        cohort = read_cohort(source, time="days", event="died", unit="days")
        horizons = parse_horizons("1y,2y", "days")

        def keep(name: str, model: Any) -> None:
            model.save(path)
            header, arrays = read(path)
            found.append(Original(name, json.dumps(header, sort_keys=True), arrays, patients.head(4)))

        fitted = {}
        for name, model in models():
            fitted[name] = model.fit(cohort.features, cohort.y)
            give_card(model, cohort, horizons, "fitted to all", None)
            keep(name, model)
        held = hold_out(CoxPH(time_unit="days"), cohort, horizons, seed=0, n_bootstrap=0, progress=str)
        give_card(held.model, cohort, horizons, "held out", held.evaluation)
        keep("CoxPH, evaluated", held.model)
        once = Recalibrated(fitted["CoxPH"], fitted_on="local.csv").fit(cohort.features, cohort.y)
        keep("Recalibrated", once)
        keep("Recalibrated twice", Recalibrated(once, maps=("rank",)).fit(cohort.features, cohort.y))
        keep("Recalibrated ensemble", Recalibrated(fitted["CalibratedEnsemble"]).fit(cohort.features, cohort.y))
        numbers = cohort.features[["age"]].to_numpy(dtype=np.float64)
        keep("CoxPH, numbers alone", CoxPH(preprocess=None).fit(numbers, cohort.y))
        found[-1] = Original(*(getattr(found[-1], k) for k in ("name", "text", "arrays")), pd.DataFrame(numbers[:4]))
    cohorts = {
        one: json.loads((FIXTURES / one).read_text())["dataset"] for one in ("expected.json", "recalibrated.json")
    }
    for file in sorted(FIXTURES.glob("*.safetensors")):
        header, arrays = read(file)
        data = cohorts["recalibrated.json" if file.stem.startswith("recalibrated") else "expected.json"]
        X = load_cohort(data)[0].iloc[1:5]
        found.append(Original(f"format 1: {file.stem}", json.dumps(header, sort_keys=True), arrays, X))
    return found


# --- changes ----------------------------------------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, -5.0, 0.5, -0.0, 1.5, 1e-300, 1e308, -1e308, 10**30, -(10**30), 2**31, 2**63,
    math.nan, math.inf, -math.inf, "", "x", "yes", "NaN", "1", "number", "category", "auto", "\x1b[31m", "\ud800",
    "é" * 3, "x" * 100_000, [], {}, [[]], [0], [1.0, 0.0], ["a"], {"a": 1}, [None], "CoxPH", "DCS", "5y",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the ways to everything in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield (*path, key)
        yield from places(one, (*path, key))


def chosen_place(document: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Choose a place: half of the time any, half of the time by going down, so that long lists do not hide the rest."""
    if rng.random() < 0.3:
        everywhere = list(places(document))
        return everywhere[rng.integers(len(everywhere))]
    path: tuple[Any, ...] = ()
    while isinstance(document, dict | list) and document and (not path or rng.random() < 0.85):
        keys = list(document) if isinstance(document, dict) else range(len(document))
        path = (*path, keys[int(rng.integers(len(keys)))])
        document = document[path[-1]]
    return path


def changed_value(text: str, rng: np.random.Generator) -> str:
    """Change one or two values of the header, or what they are part of."""
    document = json.loads(text)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        path = chosen_place(document, rng)
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        key, value = path[-1], holder[path[-1]]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        match rng.choice(["value", "value", "near", "remove", "add", "move", "deep", "wrap", "order", "rename"]):
            case "near" if number:
                factor = rng.choice([-1.0, 0.0, 0.5, 1.001, 2.0, 10.0, 1e6])
                holder[key] = type(value)(value * factor) if rng.random() < 0.7 else str(value)
            case "near" if isinstance(value, str):
                holder[key] = value[: len(value) // 2] if rng.random() < 0.5 else value + "x"
            case "remove":
                del holder[key]
            case "add" if isinstance(value, list):
                value.append(copy.deepcopy(value[0]) if value else 0)
            case "add" if isinstance(value, dict):
                value["extra"] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
            case "move":
                other = document
                for step in chosen_place(document, rng):
                    other = other[step]
                holder[key] = copy.deepcopy(other)
            case "deep":
                deep: Any = 0
                for _ in range(int(rng.choice([3, 60]))):
                    deep = [deep]
                holder[key] = deep
            case "wrap":
                holder[key] = [value] if rng.random() < 0.5 else {"value": value}
            case "order" if isinstance(value, list):
                rng.shuffle(value)
            case "rename" if isinstance(holder, dict):
                holder[f"{key}x"] = holder.pop(key)
            case _:
                holder[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return json.dumps(document, sort_keys=True)


def changed_bytes(text: str, rng: np.random.Generator) -> str:
    """Change some characters of the header, half of the time so that digits stay digits and letters letters."""
    letters = list(text)
    for place in rng.integers(len(letters), size=rng.choice([1, 1, 2, 5])):
        old = letters[place]
        if rng.random() < 0.5 and old.isalnum():
            letters[place] = str(rng.integers(10)) if old.isdigit() else chr(97 + int(rng.integers(26)))
        else:
            letters[place] = chr(int(rng.integers(1, 127)))
    return "".join(letters)


def very_deep(text: str, rng: np.random.Generator) -> str:
    """Put brackets by the thousand into the header."""
    depth = int(rng.choice([900, 5000, 200_000]))
    opened, closed = ("[", "]") if rng.random() < 0.5 else ('{"a":', "}")
    place = text.index(":", int(rng.integers(len(text) // 2))) + 1
    return f"{text[:place]}{opened * depth}0{closed * depth},{text[place:]}"


def other_format(text: str, rng: np.random.Generator) -> str:
    """Give the file another format or kind."""
    document = json.loads(text)
    if rng.random() < 0.6:
        document["format"] = [0, -1, True, False, 2, 1.0, "1", None, 10**30, [1]][rng.integers(10)]
    else:
        kinds = ["DCS", "CoxPH", "CoxTime", "CalibratedEnsemble", "Recalibrated", "HazardForest", "os.system", "", "é"]
        document["kind"] = kinds[rng.integers(len(kinds))]
    return json.dumps(document, sort_keys=True)


def changed_array(arrays: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Change one array: its shape, its type, its values, or whether it is there."""
    names = sorted(arrays)
    name = names[rng.integers(len(names))]
    out, array = dict(arrays), arrays[name].copy()
    what = rng.choice(["shape", "shape", "dtype", "value", "value", "value", "order", "there"])
    if what == "shape":
        cut = array.ravel()
        shapes: list[Callable[[], Any]] = [
            lambda: array[None], lambda: array[..., None], lambda: cut, lambda: cut[:0], lambda: cut[:-1],
            lambda: np.append(cut, cut[-1:]), lambda: np.zeros((), array.dtype), lambda: array.T,
            lambda: np.repeat(array, 2, axis=0) if array.ndim else array[None], lambda: np.zeros((0, 5), array.dtype),
        ]  # fmt: skip
        out[name] = shapes[rng.integers(len(shapes))]()
    elif what == "dtype":
        kinds = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u1", "?"]
        with np.errstate(all="ignore"):
            out[name] = array.astype(kinds[rng.integers(len(kinds))])
    elif what == "value" and array.size:
        flat = array.reshape(-1)
        some = rng.integers(array.size, size=int(rng.choice([1, 1, array.size])))
        values = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30, -1e30, 1e38, 2.0**31 - 1, 1e-30, 5.0]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flat[some] = np.array(values[rng.integers(len(values))]).astype(array.dtype)
            if rng.random() < 0.3:
                flat[some] = (flat[some] * rng.choice([-1, 10, 1000])).astype(array.dtype)
        out[name] = array
    elif what == "order" and array.size:
        out[name] = rng.permutation(array.reshape(-1)).reshape(array.shape)
    else:
        other = names[rng.integers(len(names))]
        match rng.integers(4):
            case 0:
                del out[name]
            case 1:
                out[f"{name}x"] = out.pop(name)
            case 2:
                out["extra"] = np.ones(3)
            case _:
                out[name], out[other] = arrays[other], arrays[name]
    return {one: np.ascontiguousarray(part).reshape(part.shape) for one, part in out.items()}


def changed_file(data: bytes, rng: np.random.Generator) -> bytes:
    """Cut a file short, or change bytes of it, its digest staying what it was."""
    size = struct.unpack("<Q", data[:8])[0]
    match rng.integers(4):
        case 0:
            return data[: int(rng.integers(len(data)))]
        case 1:
            out = bytearray(data)
            for place in rng.integers(8 + size, size=int(rng.choice([1, 2, 8]))):
                out[place] = int(rng.integers(256))
            return bytes(out)
        case 2:
            kinds = [b'"F64"', b'"F32"', b'"I64"', b'"I32"', b'"F16"', b'"BF16"', b'"U8"', b'"BOOL"', b'"F8_E4M3"']
            old, new = (kinds[k] for k in rng.integers(len(kinds), size=2))
            header = data[8 : 8 + size].replace(old, new, int(rng.integers(1, 4)))
            return struct.pack("<Q", len(header)) + header + data[8 + size :]
        case _:
            return data + bytes(rng.integers(256, size=int(rng.integers(1, 99)), dtype=np.uint8))


CHANGES = ("values of the header", "bytes of the header", "arrays", "header and arrays", "deep nesting",
           "format and kind", "the file")  # fmt: skip
_SHARES = (0.45, 0.12, 0.28, 0.05, 0.01, 0.04, 0.05)


def mutant(files: list[Original], seed: int, k: int) -> tuple[Original, str, bytes]:
    """Return the k-th mutant: what it was, what was changed, and its bytes."""
    from dcsurv.persistence import file_bytes

    rng = np.random.default_rng([seed, k])
    one = files[k % len(files)]
    change = str(rng.choice(CHANGES, p=_SHARES))
    text, arrays = one.text, one.arrays
    if change in ("values of the header", "header and arrays"):
        text = changed_value(text, rng)
    if change in ("arrays", "header and arrays"):
        arrays = changed_array(arrays, rng)
    if change == "bytes of the header":
        text = changed_bytes(text, rng)
    if change == "deep nesting":
        text = very_deep(text, rng)
    if change == "format and kind":
        text = other_format(text, rng)
    data = file_bytes(text, arrays)
    return one, change, changed_file(data, rng) if change == "the file" else data


# --- what happens -----------------------------------------------------------------------------------------


def fate(path: Path, patients: pd.DataFrame, *, shown: bool) -> tuple[str, str]:
    """Load a mutant and use it; return what happened, and where something unexpected was raised."""
    from dcsurv import load
    from dcsurv.messages import InputError
    from dcsurv.persistence import ModelFileError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = load(path)
            try:
                model.prepare(patients)
            except ModelFileError:
                raise
            except ValueError:
                return OTHER_TABLE, ""  # it asks for columns, or for numbers, that these patients do not have
            wrong = _unsound(model, patients)
            if shown and not wrong:
                wrong = _told(path)
        except (ModelFileError, InputError):
            return REFUSED, ""
        except MemoryError:
            return MEMORY, _where()
        except Exception:
            return UNEXPECTED, _where()
    return (PREDICTED, "") if not wrong else (OUTSIDE if wrong.startswith("S") else UNEXPECTED, wrong)


def _unsound(model: Any, patients: pd.DataFrame) -> str:
    """Predict in Python and through the card; say what is wrong with the probabilities."""
    from dcsurv.cohort import ModelCard, Predictor

    curves = model.predict_survival_function(patients)
    wrong = _wrong_probabilities(curves.values) or _wrong_times(model.predict(patients), least=-math.inf)
    if wrong or not isinstance(patients.columns[0], str):
        return wrong
    card = ModelCard.of(model)
    bands = 0.9 if model.has_band else None
    interval = 0.9 if model.time_bounds_ is not None else None
    out = Predictor(model, card, card.horizons, bands=bands, interval=interval).predict(patients)
    survival = out[[f"survival_{horizon.label}" for horizon in card.horizons]].to_numpy()
    ends = out[[name for name in out if "_lower" in name or "_upper" in name if name.startswith("survival")]].to_numpy()
    rest = out[["median", f"mean_to_{card.horizons[-1].label}"]].to_numpy()
    return _wrong_probabilities(survival) or _wrong_probabilities(ends, falling=False) or _wrong_times(rest)


def _wrong_probabilities(values: Any, *, falling: bool = True) -> str:
    if not np.isfinite(values).all() or (values < 0).any() or (values > 1).any():
        return f"S from {values.min()} to {values.max()}"
    return "S rises" if falling and (np.diff(values, axis=1) > 1e-9).any() else ""


def _wrong_times(values: Any, least: float = 0.0) -> str:
    return "S has impossible times" if np.isinf(values).any() or (values < least).any() else ""


def _told(path: Path) -> str:
    """Show the file as the command line does; return what it said where that was unexpected."""
    from typer.testing import CliRunner

    from dcsurv.cli import app

    done = CliRunner().invoke(app, ["info", str(path)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"info: {done.exception!r}"
    return f"info: {done.output[-300:]}" if "unexpected" in done.output else ""


def _where() -> str:
    return traceback.format_exc()


# --- the campaign -----------------------------------------------------------------------------------------


def work(connection: Any, files: list[Original], seed: int, first: int, last: int) -> None:
    """Try mutants one after the other and send what happened to each."""
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mutant.safetensors")
        for k in range(first, last):
            one, change, data = mutant(files, seed, k)
            path.write_bytes(data)
            connection.send((k, one.name, change, *fate(path, one.patients, shown=k % SHOWN == 0)))


def refuse_unsound(files: list[Original]) -> None:
    """End if a file is not what mutants are to be made of: one that loads and predicts."""
    from dcsurv.persistence import file_bytes

    with tempfile.TemporaryDirectory() as folder:
        for one in files:
            path = Path(folder, "model.safetensors")
            path.write_bytes(file_bytes(one.text, one.arrays))
            found = fate(path, one.patients, shown=True)
            if found != (PREDICTED, ""):
                raise SystemExit(f"the unchanged file {one.name}: {found}")


def campaign(files: list[Original], n: int, seed: int, report: Callable[[int, Counter[Any]], None]) -> list[Any]:
    """Try all mutants in a process that is watched, and replaced when it hangs or dies."""
    results: list[Any] = []
    counts: Counter[Any] = Counter()
    context = multiprocessing.get_context("fork")  # the fitted models need not be fitted again
    while len(results) < n:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(there, files, seed, len(results), n))
        process.start()
        there.close()
        while len(results) < n:
            try:
                found = here.recv() if here.poll(MOST_SECONDS) else None
            except EOFError:
                found = (len(results), *_known(files, seed, len(results)), MEMORY, "the process died")
            if found is None:
                found = (len(results), *_known(files, seed, len(results)), HANGS, "")
            results.append(found)
            counts[found[3]] += 1
            if found[3] in BAD:
                print("--- mutant {} of {}, {}: {}\n{}".format(*found), flush=True)
            if found[3] in (HANGS, MEMORY):
                break
            report(len(results), counts)
        process.kill()
        process.join()
    return results


def _known(files: list[Original], seed: int, k: int) -> tuple[str, str]:
    one, change, _ = mutant(files, seed, k)
    return one.name, change


def page(results: list[Any], seed: int) -> tuple[dict[str, Any], str]:
    """Return the counts as data and as a page."""

    def rows(place: int) -> dict[str, dict[str, int]]:
        found: dict[str, Counter[str]] = {}
        for one in results:
            found.setdefault(one[place], Counter())[one[3]] += 1
        return {name: {what: counted[what] for what in (*GOOD, *BAD)} for name, counted in found.items()}

    total = Counter(one[3] for one in results)
    data = {
        "mutants": len(results), "seed": seed, "seconds a mutant may take": MOST_SECONDS,
        "memory a mutant may take (MB)": MOST_BYTES >> 20, "total": {what: total[what] for what in (*GOOD, *BAD)},
        "changes": rows(2), "files": rows(1),
    }  # fmt: skip
    lines = [
        "# Forged and damaged model files",
        "",
        f"{len(results):,} mutants of {len(data['files'])} files, made and tried by "
        f"`python benchmarks/mutants.py --mutants {len(results)} --seed {seed}`; the digests of all but those of "
        "“the file” fit. What the columns mean is said in [Files](../../tasks/files.md#forged-and-damaged-files).",
    ]
    for title, part in (("changed", data["changes"]), ("file", data["files"])):
        lines += ["", "| " + " | ".join([title, *GOOD, *BAD]) + " |", "|---" + "|--:" * len((*GOOD, *BAD)) + "|"]
        for name, counted in [*part.items(), ("all", data["total"])]:
            lines.append("| " + " | ".join([name, *(f"{counted[what]:,}" for what in (*GOOD, *BAD))]) + " |")
    return data, "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=21_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=OUT)
    asked = parser.parse_args()

    def report(done: int, counts: Counter[Any]) -> None:
        if done % 500 == 0:
            print(done, dict(counts), flush=True)

    files = originals()
    refuse_unsound(files)
    results = campaign(files, asked.mutants, asked.seed, report)
    data, text = page(results, asked.seed)
    asked.output.mkdir(parents=True, exist_ok=True)
    (asked.output / "mutants.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (asked.output / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
