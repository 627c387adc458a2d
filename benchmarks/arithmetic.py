"""How far a browser and onnxruntime are from the library: every kind of model, 1,000 patients of each cohort.

Models are fitted to whole cohorts with the settings that users get, except that recurrent networks have few epochs,
because what they have learnt does not matter here. Each is packed and computed in Chromium, written as ONNX and
computed by onnxruntime, and compared with the library: survival and its band at 121 even times from 0 to a tenth beyond
the last node, median, restricted mean, lower bound of the time, and followed_to.
``python benchmarks/arithmetic.py`` writes docs/results/arithmetic; fitted models are kept in a folder and used again.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import time
import warnings
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd

import dcsurv
from dcsurv.arithmetic import Arithmetic, packed, to_onnx
from dcsurv.cohort import ModelCard, Predictor
from dcsurv.datasets import load_flchain, load_metabric, load_support
from dcsurv.durations import Horizon
from dcsurv.models import SurvivalModel
from dcsurv.plain import level_text

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "arithmetic"
SCRIPT = resources.files("dcsurv.service").joinpath("page/arithmetic.js").read_text(encoding="utf-8")
PATIENTS, LEVEL, PIECE = 1000, 0.9, 100
COHORTS: dict[str, Callable[[], Any]] = {
    "metabric": lambda: load_metabric(labels="measured"),
    "support": load_support,
    "flchain": load_flchain,
}
BRIEF = {"max_epochs": 5, "random_state": 0}
MODELS: dict[str, Callable[[], Any]] = {
    "CoxPH": dcsurv.CoxPH,
    "SplineCox": dcsurv.SplineCox,
    "SplineAFT, Weibull": lambda: dcsurv.SplineAFT(distribution="weibull"),
    "SplineAFT, log-logistic": lambda: dcsurv.SplineAFT(distribution="log-logistic"),
    "SplineAFT, log-normal": lambda: dcsurv.SplineAFT(distribution="log-normal"),
    "BoostedHazards": lambda: dcsurv.BoostedHazards(random_state=0),
    "HazardForest": lambda: dcsurv.HazardForest(random_state=0),
    "DeepSurv": lambda: dcsurv.DeepSurv(random_state=0),
    "CoxTime": lambda: dcsurv.CoxTime(random_state=0),
    "DRSA": lambda: dcsurv.DRSA(**BRIEF),
    "Kamran": lambda: dcsurv.Kamran(**BRIEF),
    "DCS": lambda: dcsurv.DCS(**BRIEF),
    "DCS, both directions": lambda: dcsurv.DCS(**BRIEF, bidirectional=True, skip=True, feature_bins=8),
    "calibrated CoxPH": lambda: dcsurv.CalibratedEnsemble(estimator=dcsurv.CoxPH(), random_state=0),
    "CalibratedEnsemble (default)": lambda: dcsurv.CalibratedEnsemble(random_state=0),
    "Recalibrated (default)": lambda: None,
}


def fitted(cohort: str, name: str, folder: Path) -> SurvivalModel:
    """Return a model, from the folder if it is there."""
    path = folder / f"{cohort} {name}.safetensors"
    if not path.exists():
        X, y = COHORTS[cohort]()
        if name.startswith("Recalibrated"):
            inside = fitted(cohort, "CalibratedEnsemble (default)", folder)
            model = dcsurv.Recalibrated(inside).fit(X.iloc[::5], y[::5])
        else:
            model = MODELS[name]().set_params(time_unit="days").fit(X, y)
        model.save(path)
    return dcsurv.load(path)


class Expected:
    """What the library predicts for some patients of a cohort."""

    def __init__(self, model: SurvivalModel, X: pd.DataFrame) -> None:
        self.model, self.X = model, X
        self.last = float(model.nodes[-1])
        self.times = np.linspace(0, 1.1 * self.last, 121)
        self.end = 0.6 * self.last
        prepared = model.prepare(X)
        if model.has_band:
            self.curves, band = model.curves_with_band(prepared, self.times, LEVEL)
            self.tables = {"survival": band.survival, "lower": band.lower, "upper": band.upper}
        else:
            self.curves = model.curves_of(prepared)
            self.tables = {"survival": self.curves.evaluate(self.times)}
        interval = LEVEL if model.time_bounds_ is not None else None
        predictor = Predictor(model, ModelCard.of(model), [Horizon("end", self.end)], interval=interval)
        rows = dict(zip(predictor.numbers(), predictor.numbers_of(X), strict=True))
        self.in_time = {"median": self.curves.median(), "mean": rows["mean_to_end"], "followed_to": rows["followed_to"]}
        if interval is not None:
            self.in_time["time_lower"] = model.interval_of(prepared, LEVEL, both=False)[0]

    def differences(self, found: dict[str, Any]) -> dict[str, float]:
        """Return the largest difference of each; times as shares of the last one."""
        out = {}
        for name, table in self.tables.items():
            out[name] = float(np.abs(np.reshape(found[name], table.shape) - table).max())
        for name, row in self.in_time.items():
            if name in found:
                own = np.array(found[name], dtype=np.float64)
                alike = np.isnan(own) & np.isnan(row)
                away = np.where(alike, 0.0, np.abs(own - row) / self.last)
                out[name] = float(np.where(np.isnan(away), np.inf, away).max())
        if "median" in found:
            # A curve in steps, or nearly flat, can reach one half at another time: how far is S from it there?
            own = np.array(found["median"], dtype=np.float64)
            apart = np.flatnonzero(np.abs(own - self.in_time["median"]) > 1e-6 * self.last)
            out["medians apart"] = len(apart)
            both = np.minimum(own, self.in_time["median"])
            out["there from one half"] = float(
                max((abs(float(self.curves[[k]].evaluate(both[[k]])[0, 0]) - 0.5) for k in apart), default=0.0)
            )
        return out


def columns_of(X: pd.DataFrame, whole: Arithmetic) -> dict[str, list[Any]]:
    """Return the features as a form has them."""
    out = {}
    for feature in whole.features:
        text = feature.levels is not None
        column = X[feature.name].astype(object)
        out[feature.name] = [None if pd.isna(one) else level_text(one) if text else float(one) for one in column]
    return out


ASK = """([description, block, columns, times, level, end]) => {
    const bytes = Uint8Array.from(atob(block), (one) => one.charCodeAt(0));
    const model = dcsurvArithmetic.open(JSON.parse(description), bytes);
    const begin = performance.now();
    const some = model.patients(columns);
    const found = model.hasBand ? some.band(times, level) : { survival: some.survival(times) };
    const seconds = (performance.now() - begin) / 1000;
    Object.assign(found, { median: some.median(), mean: some.mean(end), followed_to: some.followedTo() });
    if (model.hasInterval) found.time_lower = some.timeLower(level);
    const plain = (values) => Array.from(values, (one) => (Number.isNaN(one) ? null : one));
    return [seconds, Object.fromEntries(Object.entries(found).map(([name, values]) => [name, plain(values)]))];
}"""


def in_browser(page: Any, own: Expected, whole: Arithmetic) -> tuple[dict[str, Any], float, int]:
    """Return what Chromium computes, the seconds that it took, and the size of the packed model."""
    description, block = packed(whole)
    text = json.dumps(description, separators=(",", ":"), allow_nan=False)
    encoded = base64.b64encode(block).decode("ascii")
    asked = [text, encoded, columns_of(own.X, whole), own.times.tolist(), LEVEL, own.end]
    seconds, found = page.evaluate(ASK, asked)
    return found, seconds, len(text) + len(block)


def in_onnxruntime(own: Expected, whole: Arithmetic) -> tuple[dict[str, Any], float, int]:
    """Return what onnxruntime computes, the seconds that it took, and the size of the file."""
    written = to_onnx(whole)
    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    columns = columns_of(own.X, whole)
    fed: dict[str, Any] = {}
    for one in json.loads(session.get_modelmeta().custom_metadata_map["features"]):
        cells = columns[one["name"]]
        if one["levels"] is None:
            fed[one["input"]] = np.array([np.nan if cell is None else cell for cell in cells])
        else:
            fed[one["input"]] = np.array(["" if cell is None else cell for cell in cells], dtype=object)
    more = {"times": own.times} | ({"level": np.array(LEVEL)} if whole.has_band else {})
    names = [one.name for one in session.get_outputs()]
    begin = time.perf_counter()
    parts = [
        session.run(names, {name: one[start : start + PIECE] for name, one in fed.items()} | more)
        for start in range(0, len(own.X), PIECE)
    ]
    seconds = time.perf_counter() - begin
    return (
        {name: np.concatenate(part) for name, part in zip(names, zip(*parts, strict=True), strict=True)},
        seconds,
        len(written),
    )


def cell(page: Any, cohort: str, name: str, folder: Path) -> dict[str, Any]:
    """Compare one model of one cohort."""
    X, _ = COHORTS[cohort]()
    some = X.sample(min(PATIENTS, len(X)), random_state=0)
    model = fitted(cohort, name, folder)
    own, whole = Expected(model, some), model.arithmetic()
    browser, in_seconds, packed_size = in_browser(page, own, whole)
    runtime, ort_seconds, onnx_size = in_onnxruntime(own, whole)
    return {
        "cohort": cohort,
        "model": name,
        "patients": len(some),
        "browser": own.differences(browser),
        "onnxruntime": own.differences(runtime),
        "seconds": {"browser": in_seconds, "onnxruntime": ort_seconds},
        "bytes": {
            "model file": (folder / f"{cohort} {name}.safetensors").stat().st_size,
            "packed": packed_size,
            "onnx": onnx_size,
        },
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results as a page."""
    head = ["cohort", "model", "survival", "band", "median", "mean", "lower time", "medians apart", "ONNX: survival",
            "ONNX: band", "model file", "packed", "ONNX file"]  # fmt: skip
    lines = [
        "# A model computed elsewhere",
        "",
        f"Made by `python benchmarks/arithmetic.py`: the largest difference from the library over {PATIENTS:,} "
        "patients, in Chromium and in onnxruntime. Survival and the ends of its band at 121 times; median, mean up to "
        "six tenths of the last time, and lower time as shares of the last time. *Medians apart*: patients whose medians "
        "differ by more than 1e-6 of the last time, because a curve in steps, or a flat one, passes one half by less "
        "than the rounding of single precision; in brackets how far S is from one half there. Sizes in kB.",
        "",
        "| " + " | ".join(head) + " |",
        "|---|---|" + "---:|" * (len(head) - 2),
    ]
    for row in rows:
        own, runtime, size = row["browser"], row["onnxruntime"], row["bytes"]

        def shown(found: dict[str, float], *names: str) -> str:
            values = [found[name] for name in names if name in found]
            return f"{max(values):.1e}" if values else "–"

        apart = f"{own['medians apart']} ({own['there from one half']:.0e})" if own["medians apart"] else "0"
        lines.append(
            f"| {row['cohort']} | {row['model']} | {shown(own, 'survival')} | {shown(own, 'lower', 'upper')} | "
            f"{shown(own, 'median')} | {shown(own, 'mean')} | {shown(own, 'time_lower')} | {apart} | "
            f"{shown(runtime, 'survival')} | {shown(runtime, 'lower', 'upper')} | "
            + " | ".join(f"{size[name] / 1e3:,.0f}" for name in ("model file", "packed", "onnx"))
            + " |"
        )
    worst = {
        place: max(row[place][name] for row in rows for name in ("survival", "lower", "upper") if name in row[place])
        for place in ("browser", "onnxruntime")
    }
    lines += ["", f"Largest of all: {worst['browser']:.1e} in Chromium, {worst['onnxruntime']:.1e} in onnxruntime.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "arithmetic", help="folder of fitted models")
    parser.add_argument("--cohorts", nargs="*", default=list(COHORTS))
    parser.add_argument("--only", nargs="*", default=list(MODELS))
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.models.mkdir(parents=True, exist_ok=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    rows = []
    with sync_playwright() as playwright, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = shutil.which("chromium") or shutil.which("google-chrome")
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for cohort in asked.cohorts:
            for name in asked.only:
                page = chromium.new_page()
                page.set_default_timeout(600_000)
                page.add_script_tag(content=SCRIPT)
                rows.append(cell(page, cohort, name, asked.models))
                page.close()
                print(json.dumps(rows[-1]), flush=True)
        chromium.close()
    (asked.out / "results.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (asked.out / "README.md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
