"""Our models on someone else's cohorts, folds and scores: the neutral benchmark of Burk et al. (arXiv 2406.04098).

FOLDER holds the cohorts and the published scores (cohorts.json, cohorts/, published_scores.csv); they stay there. The
harness first fits the published Cox model and compares its scores with those that were published. Then each model runs
with its defaults. Rows that are there already are not computed again, unless settings, data or the code of the models
have changed.

    python benchmarks/neutral.py FOLDER [--model calibrated] [--folds 1-3] [--cohorts NAME ...] [--workers 2] [-o OUT]
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from dcsurv.experiments import PlanError
from dcsurv.experiments.neutral import REFERENCE, NeutralFolder, NeutralReport, check_table, neutral_tasks, run_neutral

OUT = Path(__file__).parents[1] / "docs" / "results" / "neutral"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder with cohorts.json")
    parser.add_argument("--model", nargs="+", action="extend", metavar="NAME", help="registered; default: calibrated")
    parser.add_argument("--folds", default="1-3", help="such as 1-3 or 1,4, or all")
    parser.add_argument("--cohorts", nargs="+", action="extend", metavar="NAME", help="only these")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--workers", type=int, default=1, help="processes on this machine, one thread each")
    place.add_argument("--cluster", metavar="ADDRESS", help="a Dask scheduler whose workers see the folder, too")
    parser.add_argument("--unchecked", action="store_true", help="go on though the published Cox model is not met")
    parser.add_argument("-o", "--out", type=Path, default=OUT, help="where results go")
    chosen = parser.parse_args(arguments)
    chosen.model = chosen.model or ["calibrated"]
    try:
        return run(chosen)
    except PlanError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(chosen: argparse.Namespace) -> int:
    folder = NeutralFolder(chosen.folder)
    where = {"workers": chosen.workers, "cluster": chosen.cluster, "progress": sys.stderr.isatty()}
    tasks = neutral_tasks(folder, chosen.model, chosen.folds, chosen.cohorts)
    references = neutral_tasks(folder, [REFERENCE], chosen.folds, chosen.cohorts)
    cohorts = list(dict.fromkeys(task.cohort for task in references))
    check = check_table(*run_neutral(references, chosen.out, **where), folder, cohorts)
    print(check.to_string(index=False, float_format=lambda value: f"{value:.1e}"), flush=True)
    if (check["verdict"] == "not met").any() and not chosen.unchecked:
        names = ", ".join(check.loc[check["verdict"] == "not met", "cohort"])
        print(
            f"error: the published scores of the Cox model (CPH) are not met on {names}, so ours cannot be put beside "
            "them: the data, the folds or the scores differ from what this harness computes. Leave these cohorts out "
            "with --cohorts, or go on all the same with --unchecked.",
            file=sys.stderr,
        )
        return 1
    rows, failures = run_neutral(tasks, chosen.out, **where)
    for failure in failures.itertuples():
        print(f"failed: {failure.model} on {failure.cohort}, fold {failure.fold}: {failure.cause}", file=sys.stderr)
    if rows.empty:
        print("error: no model could be fitted on any fold; the causes are above.", file=sys.stderr)
        return 1
    NeutralReport(folder, chosen.model, rows, failures, check, command(chosen)).write(chosen.out)
    print(f"{chosen.out / 'README.md'} has the ranks.")
    return 0


def command(chosen: argparse.Namespace) -> str:
    """Return what makes the same again, without the places of this machine."""
    words = ["python", "benchmarks/neutral.py", "FOLDER", "--model", *chosen.model, "--folds", chosen.folds]
    words += ["--cohorts", *chosen.cohorts] if chosen.cohorts else []
    return shlex.join(words + (["--unchecked"] if chosen.unchecked else []))


if __name__ == "__main__":
    sys.exit(main())
