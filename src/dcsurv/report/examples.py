"""What the model says about typical patients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dcsurv.calibration import Band
from dcsurv.curves import SurvivalCurves
from dcsurv.explanation import explain
from dcsurv.figures import patients as draw
from dcsurv.messages import short
from dcsurv.plain import level_text
from dcsurv.report.blocks import NOT_COMPUTED, Picture, Section, percent
from dcsurv.report.levels import is_number
from dcsurv.report.study import Study

_RISK_GROUPS = ("low risk", "lower middle", "upper middle", "high risk")
_MIN_GROUP = 10
_FEATURES_SHOWN = 12
_N_TIMES = 101
_BAND = 0.9
# Made-up patients to compare with, and the most features whose coalitions are all tried.
_COMPARED, _ENUMERATED = 30, 6


def examples(study: Study, important: list[str]) -> Section:
    """Predicted curves of typical patients, or of those that were asked for."""
    section = Section("examples", "Example predictions")
    frame, labels = _chosen(section, study)
    end = float(min(study.curves.times[-1], study.y["time"].max()))
    times = np.linspace(end / _N_TIMES, end, _N_TIMES)
    band = None
    if hasattr(study.model, "predict_band"):
        with section.trying("The band"):
            band = study.model.predict_band(study.features(frame), times, level=_BAND)
    curves = study.predict(frame, times)
    section.show(_picture(study, curves, labels, band))
    if study.patients is None:
        shown = [name for name in important if name in frame.columns][:_FEATURES_SHOWN]
        section.table(
            "Features of the made-up patients"
            + (f", the {len(shown)} that matter most" if len(shown) < frame.shape[1] else ""),
            ["", *labels],
            [[str(name), *(_value(value) for value in frame[name])] for name in shown],
        )
    at = {t: study.predict(frame, [t]).values[:, 0] for t in study.horizons if t <= end}
    medians = study.predict(frame).median()
    until = curves.followed_to
    section.table(
        "Predicted survival",
        ["", *labels],
        [
            *([f"at {study.when(t)}", *(percent(float(v)) for v in values)] for t, values in at.items()),
            ["median survival", *("not reached" if np.isnan(m) else study.when(float(m)) for m in medians)],
            *(
                [["such patients were followed to", *(study.when(float(t)) for t in until)]]
                if until is not None and np.isfinite(until).all()
                else []
            ),
        ],
    )
    section.convention(
        f"Bands: {_BAND:.0%} confidence bands of the survival probability of patients with such features, time by "
        "time, from models that each left out a part of the patients, the differences between kinds of models and the "
        "number of patients. They are not about when one patient has the event, and do not know of patients unlike "
        "those of the cohort."
        if band is not None
        else "This model gives no bands; an ensemble (CalibratedEnsemble) does."
    )
    _why(section, study, frame, labels)
    section.numbers |= {
        "real_patients": study.patients is not None,
        "labels": labels,
        "survival_at_horizons": {str(t): [float(v) for v in values] for t, values in at.items()},
        "median": [None if np.isnan(m) else float(m) for m in medians],
        "followed_to": None if until is None else until.tolist(),
    }
    return section


def _why(section: Section, study: Study, frame: pd.DataFrame, labels: list[str]) -> None:
    """Say what makes the risks of these patients differ from the average."""
    at = study.middle_horizon
    if at is None or study.model.population_ is None:
        return
    with section.trying("Why these patients differ"):
        found = explain(study.model, study.features(frame), times=[at], n_background=_COMPARED, **_how(frame))
        risk = found.at(at)
        section.say(
            f"Why: what each feature makes of the predicted risk by {study.when(at)}, from the average of made-up "
            f"patients like those of training ({percent(risk.base)}) to that of the patient."
        )
        pictures = []
        for place in sorted({0, len(labels) - 1}):
            strongest = int(np.abs(risk.values[place]).argmax())
            pictures.append(
                Picture(
                    f"why-{place + 1}",
                    found.plot("waterfall", patient=place, time=at),
                    f"From the average risk {percent(risk.base)} to {percent(float(risk.predicted[place]))} of "
                    f"{labels[place]}; the most by {found.features[strongest]}.",
                    f"{labels[place]}: risk by {study.when(at)}. This describes the model, not what would happen if "
                    "a feature were changed.",
                )
            )
        section.show(*pictures)
        order = np.argsort(-np.abs(risk.values).max(axis=0), kind="stable")[:_FEATURES_SHOWN]
        rows = [[found.features[k], *(_points(value) for value in risk.values[:, k])] for k in order]
        with section.folded("The numbers"):
            section.table(f"Change of the risk by {study.when(at)}, percentage points", ["", *labels], rows)
        section.convention(
            f"Shapley values of the risk, {found.method}; compared with {found.background}. A feature is replaced "
            "without regard to the others (marginal): features that go together do not share what the model makes of "
            "each."
        )
        section.numbers["why"] = {
            "base": risk.base,
            "changes": {name: risk.values[:, k].tolist() for k, name in enumerate(found.features)},
        }


def _how(frame: pd.DataFrame) -> dict[str, Any]:
    """Return how to explain: all coalitions of few features, otherwise two orders with everybody compared with."""
    few = frame.shape[1] <= _ENUMERATED
    return {"method": "exact"} if few else {"method": "sampled", "n_pairs": 2 * _COMPARED}


def _points(change: float) -> str:
    return f"{100 * change:+.1f}".replace("-", "−")


def _chosen(section: Section, study: Study) -> tuple[pd.DataFrame, list[str]]:
    """Return the patients to predict for and what to call them, and say who they are."""
    if study.patients is not None:
        section.warn(
            "These are predictions for real patients, drawn because they were asked for. Handle this file as you "
            "handle their records."
        )
        return study.X.iloc[[row for _, row in study.patients]], [label for label, _ in study.patients]
    frame, labels = _typical(study)
    source = "training" if study.X_train is not None else study.kind
    section.say(
        f"The {source} patients were sorted by predicted risk and cut into {len(labels)} groups of equal size; "
        "each curve belongs to a made-up patient, who does not exist, with the medians and the most frequent "
        "levels of one group."
        if len(labels) > 1
        else "The curve belongs to a made-up patient, who does not exist, with the medians and the most frequent "
        f"levels of the {source} patients."
    )
    return frame, labels


def _picture(study: Study, curves: SurvivalCurves, labels: list[str], band: Band | None) -> Picture:
    figure = draw.patient_curves(
        curves.times,
        curves.values,
        labels,
        unit=study.unit,
        step=curves.interpolation == "step",
        followed_to=curves.followed_to,
        lower=None if band is None else band.lower,
        upper=None if band is None else band.upper,
    )
    ends = zip(labels, curves.values[:, -1], strict=True)
    words = "; ".join(f"{label} {percent(float(value), 0)}" for label, value in ends)
    return Picture(
        "examples",
        figure,
        f"Predicted survival curves; at the end of follow-up: {words}.",
        "Predicted survival" + (f" with {_BAND:.0%} confidence bands." if band is not None else "."),
    )


def _typical(study: Study) -> tuple[pd.DataFrame, list[str]]:
    """Make up a patient for each group of predicted risk: medians and most frequent levels."""
    source = study.X if study.X_train is None else study.X_train
    risk = -study.predict(source).rmst()
    n_groups = max(1, min(len(_RISK_GROUPS), len(source) // _MIN_GROUP))
    labels = {1: ["typical"], 2: ["low risk", "high risk"], 3: ["low risk", "middle", "high risk"]}.get(
        n_groups, list(_RISK_GROUPS)
    )
    place = np.argsort(np.argsort(risk, kind="stable"), kind="stable") * n_groups // len(risk)
    rows = []
    for k in range(n_groups):
        group = source[place == k]
        rows.append({name: _middle(group[name], source[name]) for name in source.columns})
    frame = pd.DataFrame(rows, columns=source.columns)
    for name in source.columns:
        if not is_number(source[name]):
            frame[name] = frame[name].astype(source[name].dtype)
    return frame, labels


def _middle(group: pd.Series, everybody: pd.Series) -> object:
    known = group.dropna() if group.notna().any() else everybody.dropna()
    if known.empty:
        return np.nan
    return float(known.median()) if is_number(everybody) else known.mode().iloc[0]


def _value(value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return NOT_COMPUTED
    return short(float(value)) if isinstance(value, float | np.floating) else level_text(value)
