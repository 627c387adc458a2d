"""A prediction as a FHIR RiskAssessment (R5, also valid as R4): plain data, one horizon."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from dcsurv.durations import DAYS_IN, Horizon, find_unit
from dcsurv.service.served import ServedModel


def risk_assessment(
    served: ServedModel, patient: Mapping[str, Any], horizon: Horizon, subject: str | None
) -> dict[str, Any]:
    """Return a RiskAssessment of what was predicted for a patient by a horizon.

    A prediction that is not to be used is not in it: its status is ``cancelled``, and notes say why.

    Parameters
    ----------
    served : ServedModel
        The model.
    patient : mapping
        What the service predicts for the patient.
    horizon : Horizon
        By when the event comes, or not.
    subject : str or None
        Reference to the patient; None: nobody is named.

    Returns
    -------
    dict
        Plain data.
    """
    now = datetime.datetime.now(datetime.UTC)
    at = patient["horizons"][0]
    event = served.card["event"] or "the event"
    usable = patient["usable"]
    out: dict[str, Any] = {
        "resourceType": "RiskAssessment",
        "status": "final" if usable else "cancelled",
        "method": {"text": _method(served)},
        "subject": {"display": "not named"} if subject is None else {"reference": subject.strip()},
        "occurrenceDateTime": now.isoformat(timespec="seconds"),
    }
    if usable:
        prediction: dict[str, Any] = {"outcome": {"text": f"{event} within {horizon.label}"}}
        prediction["probabilityDecimal"] = at["risk"]
        if at["lower"] is not None:
            level = f"{100 * served.card['level']:g}"
            low, high = 1 - at["upper"], 1 - at["lower"]
            prediction["rationale"] = f"{level} % confidence band of the probability: {low:.6f} to {high:.6f}."
        if (period := _period(horizon, served.facts.unit, now.date())) is not None:
            prediction["whenPeriod"] = period
        out["prediction"] = [prediction]
    texts = [one["text"] for one in patient["notes"]]
    texts += [served.card["notice"]] if served.card["notice"] else []
    if texts:
        out["note"] = [{"text": text} for text in texts]
    return out


def _method(served: ServedModel) -> str:
    title = f"{served.card['title']}; " if served.card["title"] else ""
    return f"{title}{served.card['model']}, model {served.name}, version {served.version}, SHA-256 {served.digest}"


def _period(horizon: Horizon, unit: str | None, today: datetime.date) -> dict[str, str] | None:
    """Return from when to when the probability holds; None where the unit is not known, or beyond the calendar."""
    known = find_unit(unit)
    if known is None:
        return None
    try:
        end = today + datetime.timedelta(days=horizon.time * DAYS_IN[known])
    except OverflowError:
        return None
    return {"start": today.isoformat(), "end": end.isoformat()}
