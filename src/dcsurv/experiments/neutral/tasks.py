"""Models on the folds of the neutral benchmark: one small row for each, kept as soon as it is there."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import platform
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.dispatch import check_options, run_all
from dcsurv.experiments.neutral.folder import NeutralCohort, NeutralFolder, chosen_folds
from dcsurv.experiments.neutral.reference import ReferenceCox, why_not_comparable
from dcsurv.experiments.neutral.scores import harrell, isbs, predicted_risk
from dcsurv.experiments.plan import PlanError, expected_cost, settings_of
from dcsurv.experiments.store import ResultStore, Row
from dcsurv.follow_up import study_follow_up
from dcsurv.kinds import make_model
from dcsurv.metrics import evaluate
from dcsurv.models.curve_model import held_out_curves

# The Cox model of the check, under a name that no model has.
REFERENCE: Final = "the published Cox model"
# Rows written under another number are not read as results: raise it when a score is computed differently.
_FORMAT: Final = 1
_VERSIONS: Final = ("dcsurv", "torch", "numpy", "scikit-learn", "lifelines")
# For information: metrics of ours, by the names of their columns.
OWN_METRICS: Final = ("C-td", "IBS", "DDC")
# Rooms that can change what a model predicts.
_ROOMS: Final = (
    *("curves", "preprocessing", "follow_up", "metrics", "networks", "losses", "training", "trees"),
    *("models", "calibration", "_interpolation.py", "grid.py", "target.py", "nonparametric.py"),
)


@dataclass(frozen=True)
class NeutralTask:
    """One model on one fold of one cohort."""

    folder: Path
    cohort: str
    fold: int
    model: str
    n_train: int
    data: str
    settings: dict[str, str]
    estimator: Any = field(compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """The name of the task's row; everything that decides its result goes into it."""
        code = code_digest(inspect.getsourcefile(type(self.estimator)))
        identity = [_FORMAT, self.cohort, self.fold, self.model, self.data, self.settings, code]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        name = "".join(c if c.isalnum() else "-" for c in f"{self.cohort} {self.model}").lower()[:80]
        return f"{name}_f{self.fold}_{digest[:10]}"

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f"{self.model} on {self.cohort}, fold {self.fold}"

    @property
    def cost(self) -> float:
        """A rough guess of the time it takes."""
        return expected_cost(self.estimator, self.n_train)


def neutral_tasks(
    folder: NeutralFolder, models: Sequence[str], folds: str = "1-3", cohorts: Sequence[str] | None = None
) -> list[NeutralTask]:
    """Return the tasks of models on those of the folds that cohorts have; ``REFERENCE`` is the Cox of the check."""
    if len(set(models)) < len(models) or not models:
        raise PlanError(f"models is {list(models)}, but at least one name, and each only once, is expected.")
    for model in models:
        _estimator(model)
    out = []
    for name in folder.names if cohorts is None else cohorts:
        cohort = folder.cohort(name)
        for fold in chosen_folds(folds, list(cohort.folds)):
            n_train, data = len(cohort.y) - len(cohort.folds[fold]), cohort.digest(fold)
            for model in models:
                estimator = _estimator(model)
                if "random_state" in estimator.get_params(deep=False):
                    # Of the model alone: an ensemble seeds its members, and is no default any more once theirs is set.
                    estimator.set_params(random_state=random_state(name, fold))
                settings = settings_of(estimator)
                out.append(NeutralTask(folder.path, name, fold, model, n_train, data, settings, estimator))
    if not out:
        raise PlanError(f"none of the cohorts has one of the folds {folds}.")
    return out


def run_neutral(
    tasks: Sequence[NeutralTask],
    out: str | os.PathLike[str],
    *,
    workers: int = 1,
    cluster: str | None = None,
    progress: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Run the tasks that have no row in ``out`` yet; return all rows, and the failures with their causes."""
    check_options(workers, cluster)
    store = ResultStore(out, keeps_curves=False)
    run_all(tasks, score_task, store, workers=workers, cluster=cluster, progress=progress)
    rows: list[Row] = []
    failures: list[Row] = []
    for task in tasks:
        row = store.read(task.key)
        if row is None:
            cause = (store.failure(task.key) or {"cause": "unknown"})["cause"]
            failures.append({"cohort": task.cohort, "fold": task.fold, "model": task.model, "cause": cause})
        else:
            rows.append({**{name: row[name] for name in _COLUMNS}, **row["scores"]})
    columns = [*_COLUMNS, "harrell_c", "isbs", *OWN_METRICS]
    return pd.DataFrame(rows, columns=columns), pd.DataFrame(failures, columns=["cohort", "fold", "model", "cause"])


_COLUMNS: Final = ("cohort", "fold", "model", "rows", "events", "n_train", "n_test", "cpu_seconds", "not_comparable")


def score_task(task: NeutralTask) -> tuple[Row, None]:
    """Fit, predict and score one task."""
    cohort = NeutralFolder(task.folder).cohort(task.cohort)
    if cohort.digest(task.fold) != task.data:
        raise ValueError(f"the files of {task.cohort} in {task.folder} have changed, or are others on this machine.")
    train, test = cohort.split(task.fold)
    began = _cpu_seconds()
    model = task.estimator.fit(cohort.X.iloc[train], cohort.y[train])
    if getattr(model, "training_summary_", {}).get("stopped_by") == "interrupt":
        raise KeyboardInterrupt  # a model cut short must not be kept as a result
    seconds = _cpu_seconds() - began
    row = {
        "cohort": task.cohort,
        "fold": task.fold,
        "model": task.model,
        "rows": len(cohort.y),
        "events": int(cohort.y["event"].sum()),
        "n_train": len(train),
        "n_test": len(test),
        "cpu_seconds": round(seconds, 3),
        "not_comparable": why_not_comparable(cohort, task.fold) if task.model == REFERENCE else "",
        "scores": scores_of(held_out_curves(model, cohort.X.iloc[test]), cohort, task.fold),
        "settings": task.settings,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}},
    }
    return row, None


def scores_of(curves: SurvivalCurves, cohort: NeutralCohort, fold: int) -> dict[str, float | None]:
    """Return ``harrell_c`` and ``isbs`` of the curves of a fold's test rows, and metrics of ours for information."""
    train, test = cohort.split(fold)
    y, y_train = cohort.y[test], cohort.y[train]
    out: dict[str, float | None] = {"harrell_c": harrell(y, predicted_risk(curves)), "isbs": isbs(y, curves, y_train)}
    follow_up = study_follow_up(cohort.X.iloc[test], y)  # the same for all learners
    for metric in OWN_METRICS:
        try:
            table = evaluate(y, curves, censoring=follow_up, metrics=[metric], n_null=0)
            value = float(table.loc[table["metric"] == metric, "value"].iloc[0])
            out[metric] = value if np.isfinite(value) else None
        except ValueError:  # too few patients for it
            out[metric] = None
    return out


def random_state(cohort: str, fold: int) -> int:
    """Return the seed of all models on a fold, small enough for models that count on from it."""
    return zlib.crc32(f"{cohort} {fold}".encode()) % 1_000_000


def _estimator(model: str) -> Any:
    if model == REFERENCE:
        return ReferenceCox()
    try:
        return make_model(model)
    except ValueError as error:
        raise PlanError.of(error) from error


def _cpu_seconds() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@lru_cache
def code_digest(own: str | None) -> str:
    """Return a digest of the code that decides what the model of a file predicts, without comments and docstrings."""
    house = Path(__file__).parents[2]
    places = [house / room for room in _ROOMS]
    files = [file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    if own is not None and Path(own) not in files:
        files.append(Path(own))
    out = hashlib.sha256()
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        out.update(f"{file.name} {ast.dump(tree)}".encode())
    return out.hexdigest()
