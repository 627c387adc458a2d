"""The OpenAPI document of a service: its request schema is made from the card of a model, feature by feature."""

from __future__ import annotations

from typing import Any, Final

from dcsurv import __version__
from dcsurv.durations import find_unit
from dcsurv.service.asking import LATEST, MOST_HORIZONS, MOST_TIMES
from dcsurv.service.limits import Limits
from dcsurv.service.problems import MEDIA_TYPE
from dcsurv.service.reading import LARGEST_NUMBER, LARGEST_WITHOUT_RANGE, LONGEST_TEXT
from dcsurv.service.served import ServedModel

Schema = dict[str, Any]

_EVERYWHERE: Final = (403, 421, 429)
_OF_A_MODEL: Final = (404, 422, 503)
_OF_A_BODY: Final = (400, 408, 413, 415)
_MEANING: Final = {
    400: "The body is no JSON.",
    401: "The token is not there, or another.",
    403: "A page of another site asks.",
    404: "There is no such model or version.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is of another type.",
    421: "The service does not go by this name.",
    422: "A field cannot be used; the errors name it.",
    429: "Too many requests from this address.",
    503: "Too much at once, or no model; try again.",
}
_CODES: Final = (
    "outside", "far_outside", "missing", "unknown_level", "beyond_follow_up", "beyond_all_follow_up",
)  # fmt: skip
_NUMBER: Final[Schema] = {"type": "number"}
_MAYBE: Final[Schema] = {"type": ["number", "null"]}
_TEXT: Final[Schema] = {"type": "string"}
_MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}


def openapi(served: ServedModel, limits: Limits, *, needs_token: bool) -> Schema:
    """Return the OpenAPI document (3.1) of a service as it answers for one model.

    Parameters
    ----------
    served : ServedModel
        The model whose features the requests name.
    limits : Limits
        What the service bears.
    needs_token : bool
        Whether requests have to carry a token.

    Returns
    -------
    dict
        Plain data.
    """
    statuses = (*_EVERYWHERE, 401) if needs_token else _EVERYWHERE
    of_model, of_body = (*statuses, *_OF_A_MODEL), (*statuses, *_OF_A_MODEL, *_OF_A_BODY)
    which = [{"$ref": "#/components/parameters/model"}, {"$ref": "#/components/parameters/version"}]
    paths: Schema = {
        "/v1/predict": {
            "post": _operation("predict", "Predict patients.", of_body, _ref("Prediction"), which, _ref("Question"))
        },
        "/v1/predict/csv": {"post": _csv(of_body, which, served, limits)},
        "/v1/explain": {
            "post": _operation(
                "explain", "Say what each feature makes of the risk.", of_body, _ref("Explanation"), which, _ref("Why")
            )
        },
        "/v1/fhir/RiskAssessment": {
            "post": _operation(
                "assess",
                "Predict one patient as a FHIR RiskAssessment.",
                of_body,
                _ref("RiskAssessment"),
                which,
                _ref("Assess"),
                "application/fhir+json",
            )
        },
        "/v1/model": {"get": _operation("model", "The card of a model.", of_model, _ref("Card"), which)},
        "/v1/models": {"get": _operation("models", "All models.", (*statuses, 422), _ref("Models"))},
        "/health": {"get": _operation("health", "Whether the service answers.", _EVERYWHERE, _ref("Health"))},
        "/metrics": {"get": _operation("metrics", "Counts for Prometheus.", statuses, None, kind="text/plain")},
        "/openapi.json": {
            "get": _operation("openapi", "This document.", of_model, {"type": "object"}, which),
        },
    }
    paths["/health"]["get"]["responses"]["503"] = _response("There is no model.", _ref("Health"), "application/json")
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    out: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": served.card["title"] or f"dcsurv: {served.name}",
            "version": __version__,
            "description": (
                f"Predictions of {served.name}, version {served.version} ({served.card['model']}). Of a name that a "
                "JSON object has twice, the last one counts."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(served, limits),
            "parameters": {
                name: {"name": name, "in": "query", "required": False, "schema": {"enum": [own]}, "description": text}
                for name, own, text in (
                    ("model", served.name, "Which model; this document is of this one."),
                    ("version", served.version, "Which version; by default the newest."),
                )
            },
            **({"securitySchemes": schemes} if needs_token else {}),
        },
    }
    return {**out, "security": [{"token": []}]} if needs_token else out


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _response(text: str, schema: Schema | None, kind: str) -> Schema:
    return {"description": text, "content": {kind: {} if schema is None else {"schema": schema}}}


def _operation(
    name: str,
    summary: str,
    statuses: tuple[int, ...],
    schema: Schema | None,
    parameters: list[Schema] | None = None,
    body: Schema | None = None,
    kind: str = "application/json",
    body_kind: str = "application/json",
) -> Schema:
    out: Schema = {"operationId": name, "summary": summary}
    if parameters:
        out["parameters"] = parameters
    if body is not None:
        out["requestBody"] = {"required": True, "content": {body_kind: {"schema": body}}}
    out["responses"] = {"200": _response("The answer.", schema, kind)}
    out["responses"] |= {str(one): _response(_MEANING[one], _ref("Problem"), MEDIA_TYPE) for one in sorted(statuses)}
    if name == "health":
        out["security"] = []
    return out


def _csv(statuses: tuple[int, ...], which: list[Schema], served: ServedModel, limits: Limits) -> Schema:
    truth: Schema = {"type": "boolean"}
    several: Schema = {"type": "array", "items": _TEXT}
    options = [
        ("horizons", {**several, "items": _horizon(served), "minItems": 1, "maxItems": MOST_HORIZONS}, "Times."),
        ("bands", truth, "Whether bands are added."),
        ("level", {"type": "number", "minimum": 0.01, "maximum": 0.99}, "Of bands and bounds."),
        ("interval", truth, "Whether a bound of the time is added."),
        ("keep", several, "Columns that are copied."),
    ]
    parameters = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
        | ({"style": "form", "explode": name == "keep"} if schema["type"] == "array" else {})
        for name, schema, text in options
    ]
    out = _operation(
        "predict_csv", "Predict a table of patients.", statuses, _TEXT, [*which, *parameters], _TEXT, "text/csv",
        "text/csv",
    )  # fmt: skip
    names = ", ".join(one["name"] for one in served.card["features"])
    out["description"] = (
        f"A table of up to {limits.max_file:,} bytes with the columns {names}; the answer has the columns and the "
        "bytes that the command line writes, and comes while the rest is predicted. If a later part fails, the "
        "connection is ended before the answer is complete: its last chunk is missing."
    )
    return out


def _feature(one: dict[str, Any], served: ServedModel) -> Schema:
    policy = served.policy
    maybe = [] if policy.missing == "refuse" else ["null"]
    about = ", ".join(text for text in (one["label"], one["unit"], one["help"]) if text)
    out: Schema = {"description": about} if about else {}
    if one["kind"] == "number":
        largest = LARGEST_WITHOUT_RANGE if one["low"] is None else LARGEST_NUMBER
        out |= {"type": ["number", *maybe], "minimum": -largest, "maximum": largest}
        if one["low"] is not None:
            if policy.out_of_range == "refuse":
                out |= {"minimum": one["low"], "maximum": one["high"]}
            else:
                said = f"Training patients had {one['low']:g} to {one['high']:g}."
                out["description"] = f"{about}. {said}" if about else said
            out["examples"] = [one["middle"]]
        return out
    yes_or_no = ["boolean"] if one["kind"] == "yes/no" else []
    out |= {"type": ["string", *yes_or_no, *maybe], "maxLength": LONGEST_TEXT, "examples": one["levels"]}
    if policy.unknown_level == "refuse":
        out["enum"] = [*one["levels"], *([True, False] if yes_or_no else []), *([None] if maybe else [])]
    return out


def _horizon(served: ServedModel) -> Schema:
    """Return the schema of a horizon: as many digits as it is written with."""
    units = "[dwmy]?" if find_unit(served.facts.unit) is not None else ""
    return {"type": "string", "pattern": f"^[1-9][0-9]{{0,4}}{units}$", "examples": [served.facts.horizons[-1].label]}


def _object(properties: Schema, required: list[str] | None = None, **more: Any) -> Schema:
    needed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False, **more}


def _schemas(served: ServedModel, limits: Limits) -> Schema:
    card = served.card
    features = {one["name"]: _feature(one, served) for one in card["features"]}
    horizon = _horizon(served)
    truth: Schema = {"type": ["boolean", "null"]}
    times: Schema = {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": LATEST}}
    times |= {"minItems": 1, "maxItems": MOST_TIMES}
    identity = _object({"name": _TEXT, "version": _TEXT, "digest": _TEXT})
    at = _object({"label": _TEXT, "time": _NUMBER})
    note = _object(
        {
            "code": {"enum": list(_CODES)},
            "feature": _MAYBE_TEXT,
            "value": {"type": ["number", "string", "null"]},
            "low": _MAYBE,
            "high": _MAYBE,
            "horizons": {"type": ["array", "null"], "items": _TEXT},
            "text": _TEXT,
        }
    )
    points: Schema = {"type": "array", "items": _NUMBER}
    maybe_points: Schema = {"type": ["array", "null"], "items": _NUMBER}
    curve = _object({"survival": points, "lower": maybe_points, "upper": maybe_points})
    by_horizon = _object({"label": _TEXT, "survival": _NUMBER, "risk": _NUMBER, "lower": _MAYBE, "upper": _MAYBE})
    predicted = _object(
        {
            "horizons": {"type": "array", "items": by_horizon},
            "median": _MAYBE,
            "mean": _NUMBER,
            "followed_to": _MAYBE,
            "time_lower": _MAYBE,
            "curve": {"anyOf": [curve, {"type": "null"}]},
            "usable": {"type": "boolean"},
            "notes": {"type": "array", "items": _ref("Note")},
        }
    )
    fault = _object({"pointer": _TEXT, "feature": _MAYBE_TEXT, "code": _TEXT, "detail": _TEXT})
    effect = _object({"feature": _TEXT, "value": _TEXT, "effect": _NUMBER, "error": _MAYBE})
    return {
        "Patient": _object(features, description="Every feature by its name; null: not known."),
        "Question": _object(
            {
                "patients": {
                    "type": "array", "items": _ref("Patient"), "minItems": 1, "maxItems": limits.max_rows,
                },
                "horizons": {"type": ["array", "null"], "items": horizon, "minItems": 1, "maxItems": MOST_HORIZONS},
                "times": {**times, "type": ["array", "null"]},
                "bands": truth,
                "level": {"type": ["number", "null"], "minimum": 0.01, "maximum": 0.99},
                "interval": truth if card["has_interval"] else {"enum": [False, None]},
            },
            ["patients"],
        ),
        "Why": _object({"patient": _ref("Patient"), "horizon": {**horizon, "type": ["string", "null"]}}, ["patient"]),
        "Assess": _object(
            {
                "patient": _ref("Patient"),
                "horizon": {**horizon, "type": ["string", "null"]},
                "subject": {
                    "type": ["string", "null"], "maxLength": LONGEST_TEXT, "pattern": "^[A-Za-z]+/[A-Za-z0-9.-]{1,64}$",
                },
            },
            ["patient"],
        ),
        "Prediction": _object(
            {
                "model": identity,
                "time_unit": _MAYBE_TEXT,
                "level": _MAYBE,
                "horizons": {"type": "array", "items": at},
                "times": {"type": ["array", "null"], "items": _NUMBER},
                "patients": {"type": "array", "items": predicted},
            }
        ),
        "Explanation": _object(
            {
                "model": identity,
                "horizon": at,
                "base": _NUMBER,
                "risk": _NUMBER,
                "contributions": {"type": "array", "items": effect},
                "background": _TEXT,
                "method": _TEXT,
                "usable": {"type": "boolean"},
                "notes": {"type": "array", "items": _ref("Note")},
            }
        ),
        "RiskAssessment": {
            "type": "object",
            "properties": {"resourceType": {"const": "RiskAssessment"}, "status": {"enum": ["final", "cancelled"]}},
            "required": ["resourceType", "status", "subject", "method"],
        },
        "Note": note,
        "Card": {"type": "object", "required": list(card)},
        "Models": _object(
            {
                "models": {
                    "type": "array",
                    "items": _object(
                        {**identity["properties"], "title": _MAYBE_TEXT, "kind": _TEXT, "default": {"type": "boolean"}}
                    ),
                }
            }
        ),
        "Health": {
            "type": "object",
            "properties": {"status": {"enum": ["ok", "degraded", "down"]}},
            "required": ["status"],
        },
        "Problem": {
            "type": "object",
            "properties": {
                "type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT,
                "errors": {"type": "array", "items": fault},
            },
            "required": ["type", "title", "status", "detail"],
        },
    }  # fmt: skip
