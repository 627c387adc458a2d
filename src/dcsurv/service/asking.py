"""What is asked of a model: records and options of a request, checked field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pandas as pd

from dcsurv.cohort import apply_columns, parse_duration
from dcsurv.cohort.columns import Column
from dcsurv.durations import Horizon
from dcsurv.messages import InputError, did_you_mean, listed
from dcsurv.service.policy import Policy
from dcsurv.service.problems import Problem, field_error

MOST_HORIZONS, MOST_TIMES, LONGEST_TEXT = 50, 1000, 200
# Errors that one answer lists, and different texts of a column whose meaning is remembered.
_SHOWN, _REMEMBERED = 20, 4096
_PREDICT: Final = ("patients", "horizons", "times", "bands", "level", "interval")
_EXPLAIN: Final = ("patient", "horizon")
_ASSESS: Final = ("patient", "horizon", "subject")

Note = dict[str, Any]
Error = dict[str, Any]


@dataclass(frozen=True)
class How:
    """What is to be predicted; requests that agree in it are predicted together."""

    horizons: tuple[Horizon, ...]
    times: tuple[float, ...] | None
    level: float | None
    interval: bool


@dataclass(frozen=True)
class Asked:
    """Patients of a request: their values by feature, what is said of each, and what is to be predicted."""

    values: dict[str, list[Any]]
    notes: list[list[Note]]
    how: How

    def __len__(self) -> int:
        return len(self.notes)


class FeatureReader:
    """Reads the values of one feature as a request has them.

    Parameters
    ----------
    column : Column
        What the column holds.
    levels : sequence of str or None
        Known levels; None for numbers.
    policy : Policy
        What is done with values that are not known.
    """

    def __init__(self, column: Column, levels: Sequence[str] | None, policy: Policy) -> None:
        self.name, self._column, self._levels, self._policy = column.name, column, levels, policy
        self._meaning = lru_cache(_REMEMBERED)(self._look_up)
        self._nothing = None if column.kind != "number" else math.nan

    def read(self, value: Any, pointer: str, notes: list[Note], errors: list[Error]) -> Any:
        """Return a value as the model takes it; what is to be said of it goes to the notes or the errors."""
        if value is None:
            return self._missing(pointer, notes, errors)
        if self._column.kind == "number":
            return self._number(value, pointer, notes, errors)
        if self._column.kind == "yes/no" and isinstance(value, bool):
            value = "yes" if value else "no"
        if not isinstance(value, str) or len(value) > LONGEST_TEXT:
            wanted = "true, false or one of" if self._column.kind == "yes/no" else "one of"
            text = f"{self.name} has to be {wanted} {listed(self._levels or (), 12)}, or null if it is not known."
            errors.append(field_error(pointer, "type", text, self.name))
            return self._nothing
        level, known = self._meaning(value)
        if not known:
            text = f"{self.name} {value!r} is unknown to the model"
            if self._policy.unknown_level == "refuse":
                detail = f"{text}. Known are {listed(self._levels or (), 12)}."
                errors.append(field_error(pointer, "unknown_level", detail, self.name))
            else:
                said = f"{text}, taken as missing"
                notes.append({"code": "unknown_level", "feature": self.name, "value": value, "text": said})
            return self._nothing
        return self._missing(pointer, notes, errors) if level is None else level

    def _number(self, value: Any, pointer: str, notes: list[Note], errors: list[Error]) -> float:
        try:
            number = math.nan if isinstance(value, bool | str) else float(value)
        except (TypeError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            text = f"{self.name} has to be a finite number, or null if it is not known."
            errors.append(field_error(pointer, "type", text, self.name))
            return math.nan
        if self._column.missing_values:
            meant, _ = self._meaning(number)
            return self._missing(pointer, notes, errors) if meant is None else number
        return number

    def _missing(self, pointer: str, notes: list[Note], errors: list[Error]) -> Any:
        text = f"{self.name} is not known; the model goes by patients of whom nothing is said about it"
        if self._policy.missing == "refuse":
            errors.append(field_error(pointer, "missing", f"{self.name} is needed for a prediction.", self.name))
        else:
            notes.append({"code": "missing", "feature": self.name, "text": text})
        return self._nothing

    def _look_up(self, value: str | float) -> tuple[Any, bool]:
        """Return what a cell of a table with this value means, None if nothing, and whether the model knows it."""
        levels = None if self._levels is None else {self.name: self._levels}
        features, odd = apply_columns(pd.DataFrame({self.name: [value]}), [self._column], levels)
        found = features.iloc[0, 0]
        return (None if pd.isna(found) else found), not odd


class Asking:
    """Reads the requests to one model.

    Parameters
    ----------
    columns : sequence of Column
        The features of the model.
    levels : mapping of str to sequence of str
        Known levels of its categories.
    horizons : sequence of Horizon
        Its horizons.
    unit : str or None
        What its times are measured in.
    level : float or None
        Of its band; None if it has none.
    has_interval : bool
        Whether it can bound a time.
    policy : Policy
        What is done with values unlike training.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        levels: Mapping[str, Sequence[str]],
        horizons: Sequence[Horizon],
        unit: str | None,
        level: float | None,
        has_interval: bool,
        policy: Policy,
    ) -> None:
        self._readers = [FeatureReader(one, levels.get(one.name), policy) for one in columns]
        self._names = [one.name for one in self._readers]
        self._horizons, self._unit, self._level, self._has_interval = tuple(horizons), unit, level, has_interval

    def predict(self, document: Any, most: int) -> Asked:
        """Read a request for predictions of at most so many patients."""
        asked = _record(document, _PREDICT, ("patients",))
        patients = asked["patients"]
        if not isinstance(patients, list) or not 0 < len(patients) <= most:
            detail = f"patients has to be a list of 1 to {most:,} records. Send more of them in several requests."
            raise Problem(422, detail, [field_error("/patients", "rows", detail)])
        errors: list[Error] = []
        how = How(
            self._asked_horizons(asked.get("horizons"), errors),
            self._asked_times(asked.get("times"), errors),
            self._asked_level(asked, errors),
            self._asked_interval(asked.get("interval", False), errors),
        )
        return self._patients(patients, [f"/patients/{k}" for k in range(len(patients))], how, errors)

    def explain(self, document: Any, *, assess: bool = False) -> tuple[Asked, Horizon | None, str | None]:
        """Read a request about one patient; return the patient, the horizon, and the subject of an assessment."""
        asked = _record(document, _ASSESS if assess else _EXPLAIN, ("patient",))
        errors: list[Error] = []
        horizon = asked.get("horizon")
        chosen = None if horizon is None else self._horizon(horizon, "/horizon", errors)
        subject = asked.get("subject")
        if subject is not None and not (isinstance(subject, str) and 0 < len(subject) <= LONGEST_TEXT):
            errors.append(field_error("/subject", "type", "subject has to be a reference such as Patient/123."))
        how = How(self._horizons, None, self._level, False)
        return self._patients([asked["patient"]], ["/patient"], how, errors), chosen, subject

    def _patients(self, patients: list[Any], pointers: list[str], how: How, errors: list[Error]) -> Asked:
        values: dict[str, list[Any]] = {name: [] for name in self._names}
        notes: list[list[Note]] = []
        for patient, pointer in zip(patients, pointers, strict=True):
            said: list[Note] = []
            notes.append(said)
            if not isinstance(patient, dict):
                errors.append(field_error(pointer, "type", "a patient has to be a record of features and values."))
                continue
            for reader in self._readers:
                name = reader.name
                if name not in patient:
                    detail = f"{name} is not there; send null if it is not known."
                    errors.append(field_error(f"{pointer}/{_escaped(name)}", "absent", detail, name))
                else:
                    at = f"{pointer}/{_escaped(name)}"
                    values[name].append(reader.read(patient[name], at, said, errors))
            if len(patient) > len(self._names):
                for name in patient:
                    if name not in values:
                        shown = str(name)[:LONGEST_TEXT]
                        detail = f"{shown!r} is no feature of the model. {did_you_mean(shown, self._names)}".strip()
                        errors.append(field_error(f"{pointer}/{_escaped(shown)}", "unknown", detail))
            if len(errors) > _SHOWN:
                break
        refuse(errors)
        return Asked(values, notes, how)

    def _asked_horizons(self, given: Any, errors: list[Error]) -> tuple[Horizon, ...]:
        if given is None:
            return self._horizons
        if not isinstance(given, list) or not 0 < len(given) <= MOST_HORIZONS:
            text = f"horizons has to be a list of 1 to {MOST_HORIZONS} durations, such as 5y."
            errors.append(field_error("/horizons", "type", text))
            return self._horizons
        found = [self._horizon(one, f"/horizons/{k}", errors) for k, one in enumerate(given)]
        return tuple(sorted({one.time: one for one in found if one is not None}.values(), key=lambda one: one.time))

    def _horizon(self, text: Any, pointer: str, errors: list[Error]) -> Horizon | None:
        try:
            if not isinstance(text, str) or len(text) > LONGEST_TEXT:
                raise InputError("a horizon has to be a text such as 5y or 365.")
            return parse_duration(text, self._unit)
        except InputError as error:
            errors.append(field_error(pointer, "horizon", error.say(lambda parameter: str(parameter))))
            return None

    def _asked_times(self, given: Any, errors: list[Error]) -> tuple[float, ...] | None:
        if given is None:
            return None
        fine = isinstance(given, list) and 0 < len(given) <= MOST_TIMES
        fine = fine and all(isinstance(t, int | float) and not isinstance(t, bool) for t in given)
        fine = fine and all(0 <= t <= 1e12 for t in given)
        if not fine or any(a >= b for a, b in zip(given, given[1:], strict=False)):
            text = f"times has to be a list of 1 to {MOST_TIMES:,} ascending numbers from 0 on, in the model's unit."
            errors.append(field_error("/times", "type", text))
            return None
        return tuple(float(t) for t in given)

    def _asked_level(self, asked: dict[str, Any], errors: list[Error]) -> float | None:
        level, bands = asked.get("level"), asked.get("bands", True)
        if not isinstance(bands, bool):
            errors.append(field_error("/bands", "type", "bands has to be true or false."))
        if level is not None and (
            isinstance(level, bool) or not isinstance(level, int | float) or not 0.01 <= level <= 0.99
        ):
            errors.append(field_error("/level", "type", "level has to be a number from 0.01 to 0.99."))
            return None
        if self._level is None or bands is not True:
            return None
        return self._level if level is None else float(level)

    def _asked_interval(self, given: Any, errors: list[Error]) -> bool:
        if not isinstance(given, bool):
            errors.append(field_error("/interval", "type", "interval has to be true or false."))
            return False
        if given and not self._has_interval:
            text = "this model cannot bound a time; leave interval out. A calibrated ensemble can."
            errors.append(field_error("/interval", "interval", text))
        return given


def refuse(errors: list[Error]) -> None:
    """Refuse a request with errors; the answer lists the first of them."""
    if errors:
        more = " and others" if len(errors) > _SHOWN else ""
        raise Problem(422, f"{errors[0]['detail']}{more}" if more else errors[0]["detail"], errors[:_SHOWN])


def _record(document: Any, names: Sequence[str], needed: Sequence[str]) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise Problem(422, f"the body has to be a JSON object with {listed(needed)}.", [])
    errors = [
        field_error(f"/{_escaped(str(name)[:LONGEST_TEXT])}", "unknown", f"known are {listed(names, 12)}.")
        for name in document
        if name not in names
    ]
    errors += [field_error(f"/{name}", "absent", f"{name} is needed.") for name in needed if name not in document]
    refuse(errors)
    return document


def _escaped(name: str) -> str:
    """Return a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
