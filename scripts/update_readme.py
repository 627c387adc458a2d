"""Fill the tables of README.md and the documentation from the committed results.

A table stands between `<!-- name -->` and `<!-- /name -->`. `--check` only says whether all are up to date.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dcsurv.experiments.plan import CALIBRATED
from dcsurv.experiments.reproduce import SPLITS_OF_NETWORKS
from dcsurv.experiments.tables import over_splits
from dcsurv.kinds import kinds as model_kinds
from dcsurv.metrics import find_metric, list_metrics

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAPER_TABLES = RESULTS / "paper" / "tables"
NEUTRAL = RESULTS / "neutral" / "README.md"
COHORTS = ("support", "metabric", "flchain")
_NOT_RUN = "The run is not committed yet."
_MODELS = ("CoxPH", "DeepSurv", "CoxTime", "DRSA", "Kamran", "DCS-linear", "DCS-log", "DCS-quant")


def quality() -> str:
    """Return the five-split table, as `make quality` wrote it."""
    return _table_of(ROOT / "benchmarks" / "quality.md")


def bench() -> str:
    """Return the speed ratios, as `make bench` wrote them."""
    results = _benchmarks()
    rows = [
        ("C-td, 20,000 patients, 200 nodes", "pycox", results["ctd_vs_pycox"]),
        ("cumulative-dynamic AUC, 20,000 patients, 50 times", "scikit-survival", results["cdauc_vs_sksurv"]),
        ("1,000 bootstraps of four metrics, 1,775 patients", "loop over both", results["bootstrap_vs_loop"]),
    ]
    rows += [
        (f"training step of the decoder, {shape}", "torch.nn.LSTM", ratio)
        for shape, ratio in results["decoder_vs_nn_lstm"].items()
    ]
    return _table(["what", "against", "times faster"], [(what, peer, f"{ratio:.1f}") for what, peer, ratio in rows])


def fit_speed() -> str:
    """Return what a fit of the default model costs beside others, as `make bench` wrote it."""
    results = _benchmarks()
    if not {"fit_vs_before", "fit_vs_peers"} <= set(results):
        return _NOT_RUN
    sizes = {"metabric": "METABRIC, 1,523 rows", "support": "SUPPORT, 7,098 rows"}
    rows = [
        (f"fit, {sizes.get(name, '100,000 simulated rows')}", "the version before", one["times_less_cpu"])
        for name, one in results["fit_vs_before"].items()
    ]
    peers = {"forest": "scikit-survival's forest, 100 trees", "boosting": "scikit-survival's boosting, 100 trees"}
    rows += [
        (f"fit, {sizes['support']}", peer, 1 / results["fit_vs_peers"][name]["ratio"]) for name, peer in peers.items()
    ]
    return _table(["what", "against", "times less CPU"], [(what, peer, f"{ratio:.1f}") for what, peer, ratio in rows])


def fit_size() -> str:
    """Return how a fit grows with the table."""
    results = _benchmarks()
    if not {"fit_of_a_million", "fit_growth"} <= set(results):
        return _NOT_RUN
    million, growth = results["fit_of_a_million"], results["fit_growth"]
    rows = [
        (
            "CPU of a fit to 1,000,000 rows x 20 features, as a multiple of lifelines' CoxPH",
            f"{million['times_cox']:.1f}",
        ),
        ("its most memory above the table (GB)", f"{million['gb_above_table']:.2f}"),
        ("exponent of CPU in rows, 10,000 to 1,000,000", f"{growth['rows']['exponent']:.2f}"),
        ("exponent of CPU in features, 10 to 2,000", f"{growth['features']['exponent']:.2f}"),
    ]
    return _table(["what", "measured"], rows)


def predict_speed() -> str:
    """Return what predicting costs, as `make bench` wrote it."""
    results = _benchmarks()
    if "predict_vs_before" not in results:
        return _NOT_RUN
    table = f"a table of {results['predict_rows']:,} rows x 20 features, from CSV to CSV, with bands"
    rows = [
        (f"{table}: times less CPU than the version before", f"{results['predict_vs_before']:.1f}"),
        ("its most memory (GB)", f"{results['predict_memory_gb']:.2f}"),
        (
            "`dcsurv predict` of ten rows, as a multiple of the CPU of `import torch, pandas`",
            f"{results['predict_ten_vs_torch_and_pandas']:.2f}",
        ),
    ]
    return _table(["what", "measured"], rows)


def decoder() -> str:
    """Return what a training step of the decoder costs beside its matrix products."""
    shapes = _benchmarks()["decoder_vs_matmul"].items()
    return _table(["decoder", "times its matrix products"], [(shape, f"{ratio:.2f}") for shape, ratio in shapes])


def fit_profile() -> str:
    """Return where the time of a fit goes."""
    profile = _benchmarks().get("fit_profile")
    if profile is None:
        return _NOT_RUN
    first = next(iter(profile.values()))
    rows = [
        (part, *(f"{100 * one[part] / one['all']:.0f} %" for one in profile.values()))
        for part in first
        if part != "all"
    ]
    return _table(["share of CPU", *(name.upper() for name in profile)], rows)


def step_profile() -> str:
    """Return where the time of a step of five networks goes, as multiples of its matrix products."""
    parts = _benchmarks().get("step_profile")
    if parts is None:
        return _NOT_RUN
    products = parts["matrix products alone"]
    return _table(
        ["part of a step", "times its matrix products"], [(k, f"{v / products:.2f}") for k, v in parts.items()]
    )


def fit_quality() -> str:
    """Return the paired differences to the version before, as `benchmarks/fit_quality.py` wrote them."""
    page = RESULTS / "speed" / "README.md"
    return _table_of(page) if page.exists() else _NOT_RUN


def bad_tables() -> str:
    """Return what became of the bad tables, as `benchmarks/bad_tables.py` wrote it."""
    page = RESULTS / "bad_tables" / "README.md"
    return _table_of(page) if page.exists() else _NOT_RUN


def large() -> str:
    """Return seconds and memory of the large jobs of `make bench`."""
    results = _benchmarks()
    jobs = {
        "one epoch of DCS over 1,000,000 rows": "epoch_over_1000000_rows",
        "curves of 100,000 patients, 40 nodes": "predict_100000_patients_40_nodes",
        "curves of 100,000 patients, 700 nodes": "predict_100000_patients_700_nodes",
        "curves of 100,000 patients, CoxTime": "predict_100000_patients_coxtime",
        "all metrics of 100,000 patients": "metrics_at_100000",
    }
    rows = [
        (job, f"{results[key]['seconds']:.1f}", f"{results[key]['peak_memory_gb']:.1f}") for job, key in jobs.items()
    ]
    return _table(["what", "seconds, one thread", "peak memory (GB)"], rows)


def cluster() -> str:
    """Return how a fit gains from workers, as `make bench` measured and predicts it."""
    found = _benchmarks().get("cluster_fit")
    if found is None:
        return _NOT_RUN
    measured, predicted = found["speedup"], found["predicted_speedup"]
    rows = []
    for workers in sorted({*measured, *predicted}, key=int):
        seconds = f"{found['seconds'][workers]:.0f}" if workers in measured else ""
        ratios = (f"{one[workers]:.1f}" if workers in one else "" for one in (measured, predicted))
        rows.append((workers, seconds, *ratios))
    caption = (
        f"{found['tasks']} tasks, the longest of {found['longest_task']:.1f} s; {found['outside_tasks']:.1f} s outside "
        "of them."
    )
    return f"{_table(['workers', 'seconds', 'times faster', 'predicted'], rows)}\n\n{caption}"


def explain() -> str:
    """Return what explaining takes and how it compares with shap, as `make bench` measured it."""
    found = _benchmarks().get("explain")
    if found is None:
        return _NOT_RUN
    size = f"{found['patients']:,} patients, {found['features']} features, {found['times']} times"
    by_patients = sorted(found["cpu_seconds_by_patients"].items(), key=lambda one: int(one[0]))
    growth = ", ".join(f"{seconds:.0f} ({int(n):,})" for n, seconds in by_patients)
    relative = f"{found['error']:.5f} of values of {found['mean_size']:.3f}"
    rows = [
        (f"CPU seconds, {size}", f"{found['cpu_seconds']:.0f}"),
        ("peak memory (GB)", f"{found['peak_memory_gb']:.2f}"),
        ("CPU seconds by number of patients", growth),
        ("error against all coalitions, root mean square", relative),
        ("standard error as stated, root mean square", f"{found['stated_error']:.5f}"),
        ("times faster than shap at equal error", f"{found['vs_shap']:.1f}"),
    ]
    return _table(["what", "measured"], rows)


def pairs() -> str:
    """Return the comparable pairs of the three cohorts: Table I of the reproduction."""
    rows = []
    for row in _rows(PAPER_TABLES / "table-I.csv"):
        count = [f"{float(row[name]) / 1e6:.1f} million" for name in ("A", "B")]
        rows.append((row["dataset"].upper(), f"{float(row['censoring_rate']):.0%}", *count, f"{float(row['F']):.2f}"))
    return _table(["cohort", "censored", "event-event pairs", "with censored partners", "times as many"], rows)


def models() -> str:
    """Return ranking, calibration and training time of the eight models on the paper's split."""
    found = {(row["dataset"], row["model"]): row for row in _rows(PAPER_TABLES / "point-values.csv")}
    rows = []
    for model in _MODELS:
        cells = []
        for cohort in COHORTS:
            row = found[cohort, model]
            numbers = " / ".join(f"{float(row[f'paper {metric}']):.3f}" for metric in ("C-td", "CDAUC", "DDC"))
            cells.append(f"{numbers} ({float(row['fit_seconds']):.0f} s)")
        rows.append((model, *cells))
    return _table(["model", *(cohort.upper() for cohort in COHORTS)], rows)


def calibrated() -> str:
    """Return the calibrated ensemble beside the other models over repeated splits; before that was run, DCS alone."""
    path = RESULTS / "calibrated" / "tables" / "repeated.csv"
    if not path.exists():
        caption = (
            "DCS-quant with the paper's settings, one network without recalibration, mean ± sd over five stratified "
            "80/20 splits, the paper's conventions. Made by `make quality`."
        )
        return f"{quality()}\n\n{caption}"
    found = {(row["dataset"], row["model"]): row for row in _rows(path)}
    names = list(dict.fromkeys(model for _, model in found))
    metrics = ("C-td", "CDAUC", "DDC", "IBS")
    rows = []
    for model in names:
        own = [found.get((cohort, model)) for cohort in COHORTS]
        cells = ["" if row is None else " / ".join(_mean(row, m) for m in metrics) for row in own]
        rows.append((model, *cells))
    runs = {which: _whole(row["runs"]) for which, row in found.items()}
    command = re.search(r"Made by `([^`]+)`", (RESULTS / "calibrated" / "README.md").read_text(encoding="utf-8"))
    source = f"`{command[1]}`" if command else "the run in `docs/results/calibrated`"
    caption = f"{' / '.join(metrics)}, means {over_splits(runs)}, {_conventions()}. Made by {source}."
    if any(" (" in cell for row in rows for cell in row[1:]):
        caption += " (n): over n of the splits."
    return _table(["model", *(cohort.upper() for cohort in COHORTS)], rows) + "\n\n" + caption


def _conventions() -> str:
    """Say by which conventions the rows of the run were scored: those of today, or the ones before."""
    today = find_metric("CDAUC").convention
    for path in (RESULTS / "calibrated" / "rows").glob("*.json"):
        for one in json.loads(path.read_text(encoding="utf-8"))["row"]["metrics"]["default"]:
            if one["metric"] == "CDAUC" and not one["convention"].startswith(today):
                return (
                    "default conventions of version 0.1 (CDAUC up to the last event; where one censoring curve serves "
                    "all, that of the training part)"
                )
    return "default conventions"


def first_splits() -> str:
    """Return every model on the splits that all of them have, so that rows can be compared."""
    path = RESULTS / "calibrated" / "tables" / "repeated.csv"
    if not path.exists():
        return _NOT_RUN
    models = list(dict.fromkeys(row["model"] for row in _rows(path)))
    metrics = ("C-td", "CDAUC", "DDC", "IBS")
    rows = [(model, *(_first_splits(cohort, model, metrics) for cohort in COHORTS)) for model in models]
    caption = f"{' / '.join(metrics)}, means over the first {SPLITS_OF_NETWORKS} splits."
    return _table(["model", *(cohort.upper() for cohort in COHORTS)], rows) + f"\n\n{caption}"


def _first_splits(cohort: str, model: str, metrics: Sequence[str]) -> str:
    """Return the means of a model over the first splits; nothing if they are not all there."""
    values: list[list[float]] = []
    for split in range(SPLITS_OF_NETWORKS):
        slug = model.lower().replace(" ", "-")
        for path in (RESULTS / "calibrated" / "rows").glob(f"{cohort}_{slug}_s{split}_r0_*.json"):
            found = json.loads(path.read_text(encoding="utf-8"))["row"]["metrics"]["default"]
            values.append([next(one["value"] for one in found if one["metric"] == metric) for metric in metrics])
    if len(values) != SPLITS_OF_NETWORKS:
        return ""
    return " / ".join(f"{sum(column) / SPLITS_OF_NETWORKS:.4f}" for column in zip(*values, strict=True))


def rivals() -> str:
    """Return by cohort and metric the other row that does best on the splits that it shares with ours."""
    from scipy.stats import t as student

    rows = []
    for cohort in COHORTS:
        for metric in ("C-td", "CDAUC", "IBS"):
            path = RESULTS / "calibrated" / "tables" / f"difference-{metric}.csv"
            gaps = [row for row in _rows(path) if row["dataset"] == cohort] if path.exists() else []
            if not gaps:
                continue
            sign = 1 if find_metric(metric).better == "higher" else -1
            best = max(gaps, key=lambda row: sign * float(row["difference"]))
            gap, splits = float(best["difference"]), int(best["splits"])
            cells = ["–", "–"]
            if best["lower"]:
                error = (float(best["upper"]) - float(best["lower"])) / 2 / float(student.ppf(0.975, splits - 1))
                cells = [f"{error:.4f}", "yes" if sign * gap > error else "no"]
            rows.append((cohort.upper(), metric, best["model"], str(splits), f"{gap:+.4f}", *cells))
    head = ["cohort", "metric", "best other row", "splits", "more than the calibrated", "paired standard error"]
    return _table([*head, "ahead by more than that"], rows) if rows else _NOT_RUN


# What is to be reached: mean over splits, by cohort. None: the lowest of all rows, on the same splits.
_GOALS: dict[str, tuple[float | None, float | None, float | None]] = {
    "C-td": (0.648, 0.690, 0.803),
    "CDAUC": (0.685, 0.735, 0.832),
    "DDC": (0.003, 0.009, 0.001),
    "IBS": (None, None, None),
}
# What was asked for this version, fixed before the run.
_ASKED: dict[str, tuple[float | None, float | None, float | None]] = {
    "C-td": (0.643, 0.682, 0.798),
    "CDAUC": (0.678, 0.722, None),
}


def goals() -> str:
    """Return the calibrated model's means beside what was asked, the goals, the best of the paper's rows and peers."""
    tables = RESULTS / "calibrated" / "tables"
    found = {(row["dataset"], row["model"]): row for row in _rows(tables / "repeated.csv")}
    if not all((cohort, CALIBRATED) in found for cohort in COHORTS):
        return _NOT_RUN
    below = _rows(tables / "difference-IBS.csv")
    rows = []
    for k, cohort in enumerate(COHORTS):
        for metric in (*_GOALS, "ICI@Q1", "ICI@Q2", "ICI@Q3"):
            sign = 1 if find_metric(metric.partition("@")[0]).better == "higher" else -1
            own = {m: row for (name, m), row in found.items() if name == cohort and row[f"{metric} mean"]}
            values = {m: float(row[f"{metric} mean"]) for m, row in own.items()}
            ours = values.pop(CALIBRATED)
            if metric.startswith("ICI"):
                asked, goal = "", _within(cohort, metric)
            elif metric == "IBS":
                gaps = [(float(row["difference"]), row["model"]) for row in below if row["dataset"] == cohort]
                gap, rival = min(gaps, default=(0.0, ""))
                asked = ""
                goal = "lowest of all rows, on common splits: " + (
                    "yes" if gap >= 0 else f"no, {-gap:.4f} away from {rival}"
                )
            else:
                asked = _reached(ours, _ASKED.get(metric, (None, None, None))[k], sign)
                goal = _reached(ours, _GOALS[metric][k], sign)
            best = []
            for group in ([m for m in values if m in _MODELS], [m for m in values if m not in _MODELS]):
                name = max(group, key=lambda m: sign * values[m], default=None)
                few = (
                    ""
                    if name is None or own[name]["runs"] == own[CALIBRATED]["runs"]
                    else (f", {_whole(own[name]['runs'])} splits")
                )
                best.append("" if name is None else f"{values[name]:.4f} ({name}{few})")
            rows.append((cohort.upper(), metric, f"{ours:.4f}", asked, goal, *best))
    header = [
        "cohort",
        "metric",
        CALIBRATED,
        "asked for this version",
        "goal",
        "best of the paper's eight",
        "best peer",
    ]
    runs = {(cohort, CALIBRATED): _whole(found[cohort, CALIBRATED]["runs"]) for cohort in COHORTS}
    caption = f"Means {over_splits(runs)}; of other rows, over as many unless a number says otherwise."
    return f"{_table(header, rows)}\n\n{caption}"


def _reached(ours: float, limit: float | None, sign: int) -> str:
    """Say what was to be reached and whether it was; nothing if nothing was."""
    if limit is None:
        return ""
    told = "yes" if sign * ours >= sign * limit else f"no, {abs(ours - limit):.4f} away"
    return f"{'at least' if sign > 0 else 'at most'} {limit:.3f}: {told}"


def _within(cohort: str, metric: str) -> str:
    """Say in how many splits the model passes the test of calibration, and what a perfect model would score."""
    name, _, quartile = metric.partition("@Q")
    found = []
    slug = CALIBRATED.replace(" ", "-")
    for path in sorted((RESULTS / "calibrated" / "rows").glob(f"{cohort}_{slug}_s*.json")):
        default = json.loads(path.read_text(encoding="utf-8"))["row"]["metrics"]["default"]
        found.append([one for one in default if one["metric"] == name][int(quartile) - 1])
    tested = [one for one in found if "p_value" in one]
    if not tested:
        return "p above .05 against a perfect model: not computed yet"
    floor, high = (sum(one[part] for one in tested) / len(tested) for part in ("floor", "null_95"))
    passed = sum(one["p_value"] > 0.05 for one in tested)
    return (
        f"p above .05 against a perfect model ({floor:.4f}, 95th percentile {high:.4f}): in {passed} of {len(tested)} "
        "splits"
    )


def truth() -> str:
    """Return the goals and the errors of the study with a known truth."""
    parts = [_result("truth", "| what |"), "Mean absolute error of S:", _result("truth", "| hazards |")]
    return "\n\n".join(parts) if (RESULTS / "truth" / "README.md").exists() else _NOT_RUN


def simulation(heading: str) -> str:
    """Return a section of the study of inference, without its heading."""
    path = RESULTS / "simulation" / "README.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(rf"(?ms)^## {heading}$\n(.*?)(?=^## |\Z)", text)
    return found[1].strip() if found else _NOT_RUN


def _of_bands(header: str) -> str:
    """Return a table of the study of bands and bounds."""
    return _result("bands", header) if (RESULTS / "bands" / "README.md").exists() else _NOT_RUN


def small() -> str:
    """Return the differences from CoxPH on small cohorts."""
    return _result("small", "| metric |")


def follow_up_flchain() -> str:
    """Return the table of FLCHAIN by year of enrolment."""
    return _result("follow-up", "| model | 19")


def follow_up_simulation() -> str:
    """Return the table of the simulation with staggered enrolment."""
    return _result("follow-up", "| model | cohorts |")


def follow_up_designs() -> str:
    """Return the errors in every design."""
    return _result("follow-up", "| follow-up |")


def kills() -> str:
    """Return what commands left that were struck, as `python benchmarks/kills.py` wrote it."""
    path = RESULTS / "kills" / "README.md"
    return _table_of(path) if path.exists() else _NOT_RUN


def neutral() -> str:
    """Return our ranks among the published learners, with the pictures and the command that made them."""
    if not NEUTRAL.exists():
        return _NOT_RUN
    text = NEUTRAL.read_text(encoding="utf-8")
    pictures = [f"![{name}](results/neutral/{file})" for name, file in re.findall(r"!\[([^]]+)\]\(([^)]+)\)", text)]
    made = re.search(r"(?m)^Made by .*$", text)
    caption = f"{made[0] if made else ''} All tables: [the results](results/neutral/README.md)."
    return "\n\n".join([_result("neutral", "| model | mean rank"), *pictures, caption])


def neutral_sentence() -> str:
    """Return where the default model stands among the published learners, in one sentence with its source."""
    text = NEUTRAL.read_text(encoding="utf-8") if NEUTRAL.exists() else ""
    size = re.search(r"(\d+) cohorts, (\d+) folds", text)
    row = re.search(r"(?m)^\| `calibrated` \| (\S+) \(place (\d+) of (\d+)\) \| (\S+) \(place (\d+) of (\d+)\)", text)
    if size is None or row is None:
        return _NOT_RUN
    ours = (
        f"the default model, untuned, has place {row[2]} of {row[3]} in Harrell's C (mean rank {row[1]}) and place "
        f"{row[5]} of {row[6]} in the integrated Brier score (mean rank {row[4]})"
    )
    return (
        f"On {size[1]} cohorts of a published neutral benchmark (Burk et al., `arXiv:2406.04098`) {ours} among "
        "learners that were tuned on each cohort: [how, and what is not clean about it](docs/neutral.md)."
    )


def neutral_learners() -> str:
    """Return the mean ranks of all learners."""
    return _result("neutral", "| learner |")


def neutral_differences() -> str:
    """Return the differences to the best published learners."""
    return _result("neutral", "| model | score |")


def neutral_check() -> str:
    """Return how closely the published Cox model is met."""
    return _result("neutral", "| cohort | folds | difference")


def neutral_run() -> str:
    """Return the item of the list of results, once there are some."""
    return "- [The neutral benchmark](results/neutral/README.md)" if NEUTRAL.exists() else ""


def _result(study: str, head: str) -> str:
    """Return the first table that begins so on the page of a study."""
    path = RESULTS / study / "README.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    first = next((k for k, line in enumerate(lines) if line.startswith(head)), None)
    if first is None:
        return _NOT_RUN
    last = next(k for k in range(first, len(lines) + 1) if k == len(lines) or not lines[k].startswith("|"))
    return "\n".join(lines[first:last])


def metrics() -> str:
    """Return what every metric says, from its record."""
    rows = []
    for metric in list_metrics():
        name = metric.name + " at each horizon" * metric.per_horizon
        rows.append((name, metric.aspect, metric.meaning, metric.direction))
    return _table(["metric", "judges", "what it says", "better"], rows)


def conventions() -> str:
    """Return how every metric is computed, from its record."""
    rows = []
    for metric in list_metrics():
        rows.append((metric.name, metric.convention, metric.paper or "–"))
    return _table(["metric", "default", "paper"], rows)


def authors_code() -> str:
    """Return print, the authors' code and ours on the same split, on the whole test set."""
    authors = _authors()
    metrics, runs = authors["metrics"], authors["runs"]
    ours = {f"{row['dataset']} {row['model']}": row for row in _rows(PAPER_TABLES / "point-values.csv")}
    tables = [_rows(PAPER_TABLES / f"table-{number}.csv") for number in ("III", "IV", "V")]
    printed = [{f"{row['dataset']} {row['model']}": float(row["printed"]) for row in table} for table in tables]
    rows = []
    for name, found in runs.items():
        dataset, model = name.split()
        cells = [
            _slashed([table[name] for table in printed], 3),
            "; ".join(_slashed(run, 4) for run in found),
            _slashed([float(ours[name][f"paper {metric}"]) for metric in metrics], 4),
        ]
        rows.append((dataset.upper(), model, *cells))
    caption = f"{' / '.join(metrics)}; runs of the authors' code one by one. Settings: {authors['settings']}."
    header = ["cohort", "model", "print (mean of ten resamples)", "authors' code", "ours"]
    return _table(header, rows) + "\n\n" + caption


def authors_variants() -> str:
    """Return what was tried to reach the printed DDC of DCS-quant on FLCHAIN."""
    found = _authors()["variants"]
    rows = [
        ({"authors": "the authors'", "ours": "ours"}[one["code"]], one["change"], ", ".join(map(str, one["DDC"])))
        for one in found
    ]
    return _table(["code", "change", "DDC"], rows)


def authors_epochs() -> str:
    """Return the CPU time of an epoch in both."""
    rows = []
    for name, seconds in _authors()["cpu_seconds_per_epoch"].items():
        dataset, model = name.split()
        ratio = sum(seconds["authors"]) / len(seconds["authors"]) / (sum(seconds["ours"]) / len(seconds["ours"]))
        cells = [" to ".join(map(str, seconds[code])) for code in ("authors", "ours")]
        rows.append((dataset.upper(), model, *cells, f"{ratio:.0f}"))
    return _table(["cohort", "model", "authors' code", "ours", "times less"], rows)


def kinds() -> str:
    """Return the kinds of models, from their records."""
    rows = []
    for kind in model_kinds():
        if kind.by_name:
            names = ", ".join(f"`{name}`" for name in (kind.name, *kind.variants))
            rows.append((f"`{kind.model.__name__}`", names, kind.meaning, "yes" if kind.is_member else "no"))
    return _table(["model", "name", "what it is", "ensemble member"], rows)


def mutants() -> str:
    """Return what happened to forged and damaged files, as `python benchmarks/mutants.py` wrote it."""
    path = RESULTS / "mutants" / "mutants.json"
    if not path.exists():
        return _NOT_RUN
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = [("mutants", f"{found['mutants']:,} of {len(found['files'])} files")]
    return _table(["what", "how many"], rows + [(what, f"{count:,}") for what, count in found["total"].items()])


TABLES: dict[str, Callable[[], str]] = {
    "mutants": mutants,
    "quality": quality,
    "bad-tables": bad_tables,
    "bench": bench,
    "large": large,
    "fit-speed": fit_speed,
    "fit-size": fit_size,
    "predict-speed": predict_speed,
    "decoder": decoder,
    "fit-profile": fit_profile,
    "step-profile": step_profile,
    "fit-quality": fit_quality,
    "cluster": cluster,
    "explain": explain,
    "pairs": pairs,
    "models": models,
    "calibrated": calibrated,
    "first-splits": first_splits,
    "rivals": rivals,
    "goals": goals,
    "truth": truth,
    "simulation-goals": partial(simulation, "Goals"),
    "simulation-sizes": partial(simulation, "Sizes"),
    "simulation-power": partial(simulation, "Power"),
    "simulation-coverage": partial(simulation, "Coverage"),
    "simulation-decisions": partial(simulation, "Decisions"),
    "simulation-bias": partial(simulation, "Bias"),
    "simulation-printed": partial(simulation, "Printed"),
    "bands": lambda: _of_bands("| what |"),
    "bounds": lambda: _of_bands("| bound |"),
    "small": small,
    "small-perfect": partial(_result, "small", "| model |"),
    "follow-up-flchain": follow_up_flchain,
    "follow-up-simulation": follow_up_simulation,
    "follow-up-designs": follow_up_designs,
    "kills": kills,
    "service": partial(_result, "service", "| what |"),
    "neutral": neutral,
    "neutral-sentence": neutral_sentence,
    "neutral-learners": neutral_learners,
    "neutral-differences": neutral_differences,
    "neutral-check": neutral_check,
    "neutral-run": neutral_run,
    "authors-code": authors_code,
    "authors-variants": authors_variants,
    "authors-epochs": authors_epochs,
    "kinds": kinds,
    "metrics": metrics,
    "conventions": conventions,
}


def pages() -> list[Path]:
    """Return README.md and the pages of the documentation, without the results themselves."""
    docs = [page for page in sorted((ROOT / "docs").rglob("*.md")) if RESULTS not in page.parents]
    return [ROOT / "README.md", *docs]


def filled(text: str) -> str:
    """Return a page with every table between its markers made anew."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{TABLES[match[1]]()}\n<!-- /{match[1]} -->"

    return re.sub(rf"<!-- ({'|'.join(TABLES)}) -->\n.*?<!-- /\1 -->", table, text, flags=re.S)


def _table(header: list[str], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _table_of(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def _number(text: str) -> str:
    """Return a number with four digits; a dash where there is none."""
    return f"{float(text):.4f}" if text else "–"


def _mean(row: dict[str, str], metric: str) -> str:
    """Return a mean, and over how many splits if not over all of the row."""
    text, runs = _number(row[f"{metric} mean"]), _whole(row[f"{metric} runs"])
    return f"{text} ({runs})" if 0 < runs < _whole(row["runs"]) else text


def _whole(text: str) -> int:
    return int(float(text))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _slashed(values: list[float], digits: int) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


def _authors() -> dict[str, Any]:
    out: dict[str, Any] = json.loads((RESULTS / "paper" / "authors-code.json").read_text(encoding="utf-8"))
    return out


def _benchmarks() -> dict[str, Any]:
    out: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    return out


def main() -> None:
    behind = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new == text:
            continue
        behind.append(page.relative_to(ROOT).as_posix())
        if "--check" not in sys.argv:
            page.write_text(new, encoding="utf-8")
    if "--check" in sys.argv and behind:
        raise SystemExit(f"{', '.join(behind)} behind the results: run scripts/update_readme.py.")


if __name__ == "__main__":
    main()
