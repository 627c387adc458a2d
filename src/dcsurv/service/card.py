"""What a calculator says of a model: features, horizons, training, evaluation, limits; plain data for page and API."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version as version_of
from typing import Any

import numpy as np

from dcsurv.cohort import ModelCard, describe_time
from dcsurv.cohort.card import levels_of
from dcsurv.kinds import kind_of
from dcsurv.metrics import find_metric
from dcsurv.models import SurvivalModel
from dcsurv.plain import plain
from dcsurv.service.policy import Policy

# The level of bands.
LEVEL = 0.9


def model_card(
    model: SurvivalModel,
    *,
    name: str,
    version: str = "1",
    digest: str = "",
    words: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
) -> dict[str, Any]:
    """Return what a page or a program has to know of a model in order to ask it.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    name : str
        What the service calls it.
    version : str, default "1"
        Which of several models of that name.
    digest : str, default ""
        SHA-256 of its file.
    words : mapping or None, default None
        The owner's: title, notice, labels and units of features.
    policy : Policy or None, default None
        What is done with values unlike training; None: notes.

    Returns
    -------
    dict
        Plain data, without anything of a single patient.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.service import model_card
    >>> X, y = load_metabric()
    >>> card = model_card(dcsurv.CoxPH(time_unit="days").fit(X, y), name="metabric")
    >>> card["model"], len(card["features"]), [one["label"] for one in card["horizons"]]
    ('CoxPH', 9, ['3y', '7y', '10y'])
    """
    card = ModelCard.of(model)
    own = words or {}
    kind = kind_of(model.innermost)
    training = model.innermost.training_summary_
    return {
        "name": name,
        "version": version,
        "digest": digest,
        "title": own.get("title"),
        "notice": own.get("notice"),
        "event": own.get("event"),
        "event_free": own.get("event_free"),
        "languages": own.get("languages", {}),
        "kind": type(model.innermost).__name__ if kind is None else kind.name,
        "model": model.display_name,
        "meaning": "" if kind is None else kind.meaning,
        "time_unit": card.unit,
        "features": _features(model, card, own.get("features", {})),
        "horizons": [horizon.to_dict() for horizon in card.horizons],
        "last_time": float(model.nodes[-1]),
        "has_band": model.has_band,
        "has_interval": model.time_bounds_ is not None,
        "level": LEVEL,
        "made_of": [
            {"name": one.name, "meaning": one.meaning, "weight": one.weight}
            for one in getattr(model.innermost, "families_", [])
            if one.weight > 0
        ],
        "training": {
            "text": card.trained_on,
            "patients": int(training["patients"]),
            "events": int(training["events"]),
            "created": card.created or None,
            "file": card.data.get("file"),
        },
        "recalibrated_on": [
            {name: value for name, value in asdict(one).items() if name != "digest"} for one in card.recalibrated_on
        ],
        "evaluation": _evaluation(card),
        "limits": _limits(model, card),
        "remarks": list(training.get("remarks", [])),
        "policy": (policy or Policy()).to_dict(),
        "versions": {"python": platform.python_version(), "dcsurv": version_of("dcsurv"), "torch": version_of("torch")},
    }


def _features(model: SurvivalModel, card: ModelCard, words: Mapping[str, Any]) -> list[dict[str, Any]]:
    levels = levels_of(model)
    ranges = model.training_ranges
    place = {} if ranges is None else {name: k for k, name in enumerate(ranges.names)}
    known = {} if model.population_ is None else {one.name: one for one in model.population_.features}
    out = []
    for column in card.columns:
        if column.kind == "left out":
            continue
        said = words.get(column.name, {})
        one: dict[str, Any] = {
            "name": column.name,
            "kind": column.kind,
            "label": said.get("label"),
            "unit": said.get("unit"),
            "help": said.get("help"),
            "missing": column.missing,
        }
        if column.kind == "number":
            k = place.get(column.name)
            one |= dict.fromkeys(("low", "high", "middle", "far_low", "far_high"))
            one["whole"] = column.name in known and known[column.name].whole
            if ranges is not None and k is not None:
                low, high = (float(limit[k]) for limit in ranges.limits)
                one |= {"low": float(ranges.low[k]), "high": float(ranges.high[k]), "middle": float(ranges.middle[k])}
                one |= {"far_low": low, "far_high": high} if np.isfinite(low) else {}
        else:
            own = levels[column.name]
            one |= {"levels": list(own), "level_labels": said.get("levels", {})}
        out.append(one)
    return out


def _evaluation(card: ModelCard) -> dict[str, Any] | None:
    if card.evaluation is None:
        return None
    labels = {horizon.time: horizon.label for horizon in card.horizons}
    kept = ("metric", "horizon", "value", "lower", "upper", "floor", "null_95", "p_value")
    metrics = []
    for row in card.evaluation["metrics"]:
        one = {key: row.get(key) for key in kept}
        one["label"] = labels.get(row["horizon"])
        try:
            one["meaning"] = find_metric(row["metric"]).meaning
        except ValueError:
            one["meaning"] = ""  # a metric of an extension that is not installed here
        metrics.append(one)
    found = {key: card.evaluation[key] for key in ("how", "patients", "events", "notes")}
    return dict(plain({**found, "metrics": metrics}, finite=True))


def _limits(model: SurvivalModel, card: ModelCard) -> list[str]:
    """Say in sentences what the model does not know."""
    last = describe_time(float(model.nodes[-1]), card.unit)
    out = [
        f"Training patients were followed for at most {last}. Nothing is known of later times.",
        "It describes groups of patients with such features. It does not say what will happen to one of them, and not "
        "what a treatment would change.",
        "It was developed on the patients described here. For patients of another place or time it has to be validated "
        "first.",
    ]
    followed = model.follow_up_
    if followed is not None and followed.depends:
        out.append(followed.describe())
    if model.training_ranges is None:
        out.append("Its file is of an older version and does not know the ranges of its training patients.")
    return out
