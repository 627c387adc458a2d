"""The model and its settings, what it is not for, and what made this report."""

from __future__ import annotations

import hashlib
import json
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.calibration import CalibratedEnsemble
from dcsurv.cohort.sample_size import size_for
from dcsurv.messages import plural
from dcsurv.report.blocks import Bullets, Section
from dcsurv.report.study import Study

_PACKAGES = ("dcsurv", "torch", "numpy", "scipy", "pandas", "scikit-learn", "lifelines", "matplotlib")
_NAMES_SHOWN = 60
# Parameters that say where and how loudly a model was trained, not what it is.
_NO_MATTER = ("device", "verbose", "n_jobs")


def model(study: Study) -> Section:
    """Kind, features, settings and training of the model."""
    section = Section("model", "The model")
    estimator = study.model.innermost
    trained = dict(getattr(estimator, "training_summary_", {}))
    curves = study.curves
    words = {"linear": "straight", "step": "in steps", "constant_hazard": "with a constant hazard"}[
        curves.interpolation
    ]
    section.say(
        f"{study.full_name}, trained on {plural(trained.get('patients', 0), 'patient')} with "
        f"{plural(trained.get('events', 0), 'event')}. "
        f"It predicts survival at {len(curves.times):,} times up to {study.when(float(curves.times[-1]))}; between "
        f"them curves run {words}."
    )
    if isinstance(estimator, CalibratedEnsemble):
        _made_of(section, estimator)
    for later in study.model.recalibrations:
        section.say(
            f"Then its probabilities were refitted, with {later.map_.describe()}, to {later.fitted_on_}; nothing was "
            "trained anew." + _before_and_after(later.evaluation_)
        )
    names = [str(name) for name in study.X.columns]
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    section.say(f"Features ({len(names)}): {', '.join(names[:_NAMES_SHOWN])}{more}.")
    section.say(which_model(study))
    _enough(section, study)
    settings = _settings(estimator)
    with section.folded("All settings"):
        section.pairs("Settings", list(settings.items()))
    section.numbers |= {"name": study.full_name, "settings": settings, "training": trained}
    return section


def _enough(section: Section, study: Study) -> None:
    """Say how many patients Riley's criteria ask for, and how many the model was fitted to."""
    if study.X_train is None or study.y_train is None:
        return
    found = size_for(study.X_train, study.y_train, study.horizons)
    if found is not None:
        section.say(found.describe(len(study.y_train), int(study.y_train["event"].sum()), study.unit))
        section.numbers["sample_size"] = found.needed.to_dict()


def which_model(study: Study) -> str:
    """Say which model this page describes, and which one the file holds."""
    return study.file_holds or "This page describes the model that was passed, as it is."


def _made_of(section: Section, estimator: CalibratedEnsemble) -> None:
    """Say what an ensemble is made of: its families with their weights, and the maps after them."""
    maps = [type(part).__name__ for part in estimator.map_.maps]
    several = len(estimator.families_) > 1
    section.say(
        "Each member was trained without one fold of the training patients; the curves are the "
        + ("weighted mean of the families, then " if several else "mean of the members, then ")
        + (
            f"passed through {' and '.join(maps)}, fitted on the folds that were left out."
            if maps
            else "used as they are."
        )
    )
    if several:
        rows = [
            (
                f"{family.name}: {family.meaning}" if family.meaning else family.name,
                f"{100 * family.weight:.0f} %",
                str(len(family.members)),
            )
            for family in estimator.families_
        ]
        section.table("What the model is made of", ("family", "weight", "members"), rows)
        section.convention(
            "Weights sum to 100 %. They make the Brier score of the mean smallest on the folds that were left out, and "
            "are drawn to fixed ones where events are few; a family with 0 % did not help and was not kept."
        )
        section.numbers |= {"weights": estimator.weights_}
    for remark in estimator.remarks_:
        section.note(remark)


def limits(study: Study) -> Section:
    """Say what the model is for, and what it must not be taken for."""
    section = Section("limits", "Limits and intended use")
    section.warn(
        "This is research software. Nothing here has been tested in care; a prediction is no diagnosis and no reason "
        "by itself to give or withhold a treatment. Before use, the model must be evaluated with patients of the "
        "place where it is to be used, and what the law asks of medical software must be met."
    )
    lines = [
        "Predictions hold for patients like those in the table above, measured in the same way, from the same "
        "starting point in time. For others (another hospital, another period, another treatment) evaluate first, "
        "and recalibrate if observed and expected differ.",
        "Censoring is taken to be independent of the event, given the features. If patients left because they were "
        "doing badly or well, all numbers here are biased.",
        "There is one kind of event. Death from other causes, if it was counted as censoring, makes risks too high: "
        "they are then risks in a world without the other causes.",
        "The predictions say what happens to patients under the care that they got. They do not say what another "
        "treatment would change.",
    ]
    last = float(study.curves.times[-1])
    lines.append(f"Nothing is known beyond {study.when(last)}, the model’s last time; curves are held constant there.")
    if study.y_train is None:
        lines.append(
            "The training patients were not passed: censoring weights and the Kaplan-Meier comparison come from the "
            "evaluated patients themselves, and the table of patients has no training column."
        )
    lines.append(
        "The patients here are among those that the model was made with: how good it is for others is not known from "
        "this page."
        if study.seen
        else "The held-out patients come from the same source as the training patients unless you made sure of "
        "another; performance elsewhere is usually worse."
    )
    section.blocks.append(Bullets(lines))
    for remark in study.remarks:
        section.note(remark)
    return section


def provenance(study: Study) -> Section:
    """Versions, seeds and fingerprints."""
    section = Section("provenance", "Where these numbers come from")
    section.say(
        "All numbers of this page were computed from the model and the patients named here; with the same versions and "
        "tables they come out again. For machines, the report’s numbers are there as plain data (Report.numbers)."
    )
    prints = {"evaluated patients": fingerprint(study.X, study.y)}
    if study.X_train is not None and study.y_train is not None:
        prints["training patients"] = fingerprint(study.X_train, study.y_train)
    versions = {"Python": platform.python_version()} | {name: v for name in _PACKAGES if (v := _version(name))}
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    rows = [
        ("made on", made),
        ("data", study.data_name or "not named"),
        *((f"fingerprint of the {key}", value) for key, value in prints.items()),
        ("seed of this report", str(study.random_state)),
        ("bootstrap samples", str(study.n_bootstrap)),
        ("versions", ", ".join(f"{name} {v}" for name, v in versions.items())),
    ]
    with section.folded("Versions and fingerprints"):
        section.pairs("Provenance", rows, long=True)
    section.convention(
        "Fingerprint: SHA-256 over number of rows, column names, types, values and outcomes, in their order. The "
        "same table gives the same fingerprint; it does not contain the data."
    )
    section.numbers |= {"made": made, "fingerprints": prints, "versions": versions, "random_state": study.random_state}
    return section


def fingerprint(X: pd.DataFrame, y: npt.NDArray[np.void]) -> str:
    """Return a digest of a table and its outcomes."""
    digest = hashlib.sha256()
    digest.update(json.dumps([list(X.shape), [str(c) for c in X.columns], [str(t) for t in X.dtypes]]).encode())
    for name in X.columns:
        column = X[name]
        if not pd.api.types.is_numeric_dtype(column.dtype):
            column = column.astype(object).where(column.notna(), None).map(repr)
        digest.update(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())
    digest.update(np.ascontiguousarray(y["time"]).tobytes())
    digest.update(np.ascontiguousarray(y["event"]).tobytes())
    return digest.hexdigest()


def _before_and_after(evaluation: dict[str, Any] | None) -> str:
    """Say how good the curves were on the patients of a recalibration, before it and, cross-fitted, after it."""
    if evaluation is None or evaluation["after"] is None:
        return ""
    before, after = (
        {row["metric"]: row["value"] for row in evaluation[when] if row["horizon"] is None}
        for when in ("before", "after")
    )
    words = [
        f"{name} {before[name]:.4f} before, {after[name]:.4f} after" for name in ("IBS", "DDC") if before.get(name)
    ]
    return f" On these patients, each mapped by maps fitted to the others: {'; '.join(words)}."


def _settings(estimator: Any) -> dict[str, str]:
    """Return the parameters of a model, those of an ensemble's members behind them."""
    out = {name: _text(v) for name, v in estimator.get_params(deep=False).items() if name not in _NO_MATTER}
    if isinstance(estimator, CalibratedEnsemble):
        out["estimator"] = ", ".join(family.name for family in estimator.families_)
        out.pop("companions")
        of_ensemble = (*_NO_MATTER, "preprocess", "time_unit", "random_state")
        for family in estimator.families_:
            for name, value in family.members[0].get_params(deep=False).items() if family.members else ():
                if name not in of_ensemble:
                    out[f"{family.name}: {name}" if len(estimator.families_) > 1 else f"member {name}"] = _text(value)
    return out


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple) and len(value) > 8:
        return f"{', '.join(_text(v) for v in value[:4])}, … ({len(value)} values)"
    if isinstance(value, list | tuple):
        return ", ".join(_text(v) for v in value) or "none"
    if isinstance(value, np.ndarray):
        return _text(value.tolist())
    return "not set" if value is None else str(value)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
