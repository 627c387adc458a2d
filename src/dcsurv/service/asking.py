"""What is asked of a model: records and options of a request, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dcsurv.cohort import parse_duration
from dcsurv.cohort.columns import Column
from dcsurv.durations import Horizon
from dcsurv.messages import InputError, did_you_mean, listed, shortened
from dcsurv.preprocessing import Ranges
from dcsurv.service.policy import Policy
from dcsurv.service.problems import Problem, field_error
from dcsurv.service.reading import LONGEST_TEXT, FeatureReader, FieldFault, Said, SaidNote, escaped

MOST_HORIZONS, MOST_TIMES, LATEST = 50, 1000, 1e12
# Points of all curves of one answer.
MOST_POINTS = 1_000_000
# Errors that one answer lists.
_SHOWN = 20
_PREDICT: Final = ("patients", "horizons", "times", "bands", "level", "interval")
_EXPLAIN: Final = ("patient", "horizon")
_ASSESS: Final = ("patient", "horizon", "subject")


@dataclass(frozen=True)
class How:
    """What is to be predicted; requests that agree in it are predicted together."""

    horizons: tuple[Horizon, ...]
    times: tuple[float, ...] | None
    level: float | None
    interval: float | None


@dataclass(frozen=True)
class Asked:
    """Patients of a request: their values by feature, what is said of each, and what is to be predicted."""

    values: dict[str, npt.NDArray[Any]]
    notes: dict[int, list[SaidNote]]
    unusable: set[int]
    how: How
    patients: int

    def __len__(self) -> int:
        return self.patients


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
    level : float
        Of bands and bounds, unless a request names another.
    has_band : bool
        Whether it has bands.
    has_interval : bool
        Whether it can bound a time.
    policy : Policy
        What is done with values unlike training.
    ranges : Ranges or None
        Of the training patients.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        levels: Mapping[str, Sequence[str]],
        horizons: Sequence[Horizon],
        unit: str | None,
        *,
        level: float,
        has_band: bool,
        has_interval: bool,
        policy: Policy,
        ranges: Ranges | None,
    ) -> None:
        used = [one for one in columns if one.kind != "left out"]
        self._readers = [FeatureReader(one, levels.get(one.name), policy, ranges, len(used)) for one in used]
        self._names = [one.name for one in self._readers]
        self._horizons, self._unit, self._level = tuple(horizons), unit, level
        self._has_band, self._has_interval = has_band, has_interval

    def predict(self, document: Any, most: int) -> Asked:
        """Read a request for predictions of at most so many patients."""
        asked = _record(document, _PREDICT, ("patients",))
        patients = asked["patients"]
        if not isinstance(patients, list) or not 0 < len(patients) <= most:
            detail = f"patients has to be a list of 1 to {most:,} records. Send more of them in several requests."
            raise Problem(422, detail, [field_error("/patients", "rows", detail)])
        errors: list[FieldFault] = []
        how = self.how(asked, errors)
        if how.times is not None and len(how.times) * len(patients) > MOST_POINTS:
            detail = f"curves of all patients together may have {MOST_POINTS:,} points. Ask for fewer."
            errors.append(field_error("/times", "points", detail))
        return self._patients(patients, [f"/patients/{k}" for k in range(len(patients))], how, errors)

    def explain(self, document: Any) -> tuple[Asked, Horizon]:
        """Read a request for an explanation; return the patient and the horizon."""
        return self._one_patient(_record(document, _EXPLAIN, ("patient",)), [])

    def assess(self, document: Any) -> tuple[Asked, Horizon, str | None]:
        """Read a request for a risk assessment; return the patient, the horizon and the subject."""
        asked = _record(document, _ASSESS, ("patient",))
        errors: list[FieldFault] = []
        subject = asked.get("subject")
        if subject is not None and not (isinstance(subject, str) and 0 < len(subject.strip()) <= LONGEST_TEXT):
            errors.append(field_error("/subject", "type", "subject has to be a reference such as Patient/123."))
        return *self._one_patient(asked, errors), subject

    def _one_patient(self, asked: Mapping[str, Any], errors: list[FieldFault]) -> tuple[Asked, Horizon]:
        horizon = asked.get("horizon")
        chosen = None if horizon is None else self._horizon(horizon, "/horizon", errors)
        at = chosen or self._horizons[-1]
        how = How((at,), None, self._level if self._has_band else None, None)
        return self._patients([asked["patient"]], ["/patient"], how, errors), at

    def how(self, asked: Mapping[str, Any], errors: list[FieldFault]) -> How:
        """Return what is to be predicted."""
        level, bands = self._asked_level(asked, errors)
        return How(
            self._asked_horizons(asked.get("horizons"), errors),
            self._asked_times(asked.get("times"), errors),
            level if bands else None,
            level if self._asked_interval(asked.get("interval"), errors) else None,
        )

    def _patients(self, patients: list[Any], pointers: list[str], how: How, errors: list[FieldFault]) -> Asked:
        said = Said(pointers)
        said.errors = errors
        count = len(self._names)
        whole = all(type(one) is dict and len(one) == count for one in patients)
        try:
            lists = {name: [one[name] for one in patients] for name in self._names} if whole else {}
        except KeyError:
            whole = False
        if not whole:
            self._find_faults(patients, pointers, errors)
            refuse(errors)
        values = {}
        for reader in self._readers:
            values[reader.name] = reader.read(lists[reader.name], said)
            if len(errors) > _SHOWN:
                break
        refuse(errors)
        return Asked(values, said.notes, said.unusable, how, len(patients))

    def _find_faults(self, patients: list[Any], pointers: list[str], errors: list[FieldFault]) -> None:
        """Name features that are not there, and what is no feature."""
        for patient, pointer in zip(patients, pointers, strict=True):
            if not isinstance(patient, dict):
                errors.append(field_error(pointer, "type", "a patient has to be a record of features and values."))
                continue
            for name in self._names:
                if name not in patient:
                    detail = f"{name} is not there; send null if it is not known."
                    errors.append(field_error(f"{pointer}/{escaped(name)}", "absent", detail, name))
            for name in patient:
                if name not in self._names:
                    shown = shortened(str(name))
                    detail = f"{shown!r} is no feature of the model. {did_you_mean(shown, self._names)}".strip()
                    errors.append(field_error(f"{pointer}/{escaped(shown)}", "unknown", detail))
            if len(errors) > _SHOWN:
                break

    def _asked_horizons(self, given: Any, errors: list[FieldFault]) -> tuple[Horizon, ...]:
        if given is None:
            return self._horizons
        if not isinstance(given, list) or not 0 < len(given) <= MOST_HORIZONS:
            text = f"horizons has to be a list of 1 to {MOST_HORIZONS} durations, such as 5y."
            errors.append(field_error("/horizons", "type", text))
            return self._horizons
        found = [self._horizon(one, f"/horizons/{k}", errors) for k, one in enumerate(given)]
        # 5y and 60m are one time under two names, and both are answered.
        return tuple(sorted(dict.fromkeys(one for one in found if one is not None), key=lambda one: one.time))

    def _horizon(self, text: Any, pointer: str, errors: list[FieldFault]) -> Horizon | None:
        try:
            if not isinstance(text, str) or len(text) > LONGEST_TEXT:
                raise InputError("a horizon has to be a text such as 5y or 365.")
            own = next((one for one in self._horizons if one.label == text), None)
            found = own or parse_duration(text, self._unit)  # a label of the model means its horizon to the last bit
            if found.time > LATEST:
                raise InputError(f"a horizon can be at most {LATEST:g} in the model's unit.")
            return found
        except InputError as error:
            errors.append(field_error(pointer, "horizon", error.say(lambda parameter: str(parameter.name))))
            return None

    def _asked_times(self, given: Any, errors: list[FieldFault]) -> tuple[float, ...] | None:
        if given is None:
            return None
        fine = isinstance(given, list) and 0 < len(given) <= MOST_TIMES
        fine = fine and all(type(t) in (int, float) and 0 <= t <= LATEST for t in given)
        if not fine:
            text = f"times has to be a list of 1 to {MOST_TIMES:,} numbers from 0 to {LATEST:g}, in the model's unit."
            errors.append(field_error("/times", "type", text))
            return None
        return tuple(np.unique(np.array(given, dtype=np.float64)).tolist())

    def _asked_level(self, asked: Mapping[str, Any], errors: list[FieldFault]) -> tuple[float, bool]:
        level, bands = asked.get("level"), asked.get("bands")
        if not isinstance(bands, bool | None):
            errors.append(field_error("/bands", "type", "bands has to be true or false."))
        if level is not None and (type(level) not in (int, float) or not 0.01 <= level <= 0.99):
            errors.append(field_error("/level", "type", "level has to be a number from 0.01 to 0.99."))
            level = None
        return self._level if level is None else float(level), self._has_band and bands is not False

    def _asked_interval(self, given: Any, errors: list[FieldFault]) -> bool:
        if not isinstance(given, bool | None):
            errors.append(field_error("/interval", "type", "interval has to be true or false."))
            return False
        if given and not self._has_interval:
            text = "this model cannot bound a time; leave interval out. A calibrated ensemble can."
            errors.append(field_error("/interval", "interval", text))
        return bool(given)


def refuse(errors: Sequence[FieldFault]) -> None:
    """Refuse a request with errors; the answer lists the first of them."""
    if errors:
        first = str(errors[0]["detail"])
        more = f" And {len(errors) - 1} more." if 1 < len(errors) <= _SHOWN else " And others." if errors[1:] else ""
        raise Problem(422, f"{first}{more}", errors[:_SHOWN])


def _record(document: Any, names: Sequence[str], needed: Sequence[str]) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise Problem(422, f"the body has to be a JSON object with {listed(needed)}.", [])
    errors = [
        field_error(f"/{escaped(shortened(str(name)))}", "unknown", f"known are {listed(names, 12)}.")
        for name in document
        if name not in names
    ]
    errors += [field_error(f"/{name}", "absent", f"{name} is needed.") for name in needed if name not in document]
    refuse(errors)
    return document
