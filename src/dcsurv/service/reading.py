"""The values of one feature as a request has them, read all at once: what a model takes, and what is to be said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.cohort import apply_columns
from dcsurv.cohort.columns import Column
from dcsurv.messages import listed
from dcsurv.preprocessing import Ranges
from dcsurv.service.policy import Policy
from dcsurv.service.problems import field_error

LONGEST_TEXT = 200
# Beyond this no measurement is, and sums would overflow. Where it is known what training patients had, a
# far value is predicted as the edge of their range; where it is not, models have to compute with the value itself.
LARGEST_NUMBER, LARGEST_WITHOUT_RANGE = 1e300, 1e15
# Spellings of levels that are remembered.
_REMEMBERED = 4096
_NUMBERS: Final = {int, float, type(None)}

SaidNote = dict[str, Any]
FieldFault = dict[str, Any]


def note(
    code: str,
    text: str,
    feature: str | None = None,
    value: Any = None,
    low: float | None = None,
    high: float | None = None,
    horizons: Sequence[str] | None = None,
) -> SaidNote:
    """Return something that is to be said of a patient, as data."""
    return {
        "code": code, "feature": feature, "value": value, "low": low, "high": high,
        "horizons": None if horizons is None else list(horizons), "text": text,
    }  # fmt: skip


class Said:
    """What is said of the patients of a request while their values are read.

    Parameters
    ----------
    pointers : sequence of str
        Where each patient stands in the request, as a JSON pointer.
    """

    def __init__(self, pointers: Sequence[str]) -> None:
        self.pointers = pointers
        self.notes: dict[int, list[SaidNote]] = {}
        self.errors: list[FieldFault] = []
        self.unusable: set[int] = set()
        self._unknown: dict[int, int] = {}

    def add(self, row: int, one: SaidNote) -> None:
        """Say something of a patient."""
        self.notes.setdefault(row, []).append(one)

    def fault(self, row: int, code: str, detail: str, feature: str) -> None:
        """Name a field that cannot be used."""
        self.errors.append(field_error(f"{self.pointers[row]}/{escaped(feature)}", code, detail, feature))

    def nothing(self, row: int, features: int) -> None:
        """Count a value that is not known; a patient of whom nothing is known cannot be predicted in earnest."""
        self._unknown[row] = self._unknown.get(row, 0) + 1
        if self._unknown[row] == features:
            self.unusable.add(row)


class FeatureReader:
    """Reads the values of one feature.

    Parameters
    ----------
    column : Column
        What the column holds.
    levels : sequence of str or None
        Known levels; None for numbers.
    policy : Policy
        What is done with values that are not known.
    ranges : Ranges or None
        Of the training patients.
    features : int
        How many features the model has.
    """

    def __init__(
        self, column: Column, levels: Sequence[str] | None, policy: Policy, ranges: Ranges | None, features: int
    ) -> None:
        self.name, self._column, self._levels, self._policy = column.name, column, levels, policy
        self._features, self._ranges = features, ranges
        self._spelt: dict[str, Any] = {}
        self._place = -1
        self._largest = LARGEST_WITHOUT_RANGE
        self._low, self._high = -self._largest, self._largest
        if ranges is not None and column.name in ranges.names:
            self._largest = LARGEST_NUMBER
            self._place = ranges.names.index(column.name)
            self._low, self._high = float(ranges.low[self._place]), float(ranges.high[self._place])
        self._is_number = column.kind == "number"
        self._known: dict[Any, Any] = {} if levels is None else self._known_words(levels)

    def read(self, values: list[Any], said: Said) -> npt.NDArray[Any]:
        """Return values as the model takes them; what is to be said of them goes to notes and errors."""
        return self._numbers(values, said) if self._is_number else self._words(values, said)

    # --- numbers ------------------------------------------------------------------------------------------

    def _numbers(self, values: list[Any], said: Said) -> npt.NDArray[np.float64]:
        if set(map(type, values)) <= _NUMBERS:
            try:
                found = np.array(values, dtype=np.float64)
            except OverflowError:
                found = np.array([self._one_number(value) for value in values])
        else:
            found = np.array([self._one_number(value) for value in values])
        meant = found
        if self._column.missing_values:
            finite = np.isfinite(found)  # what is no number is no code either
            typed, _ = apply_columns(pd.DataFrame({self.name: found[finite]}), [self._column])
            meant = found.copy()
            meant[finite] = typed[self.name].to_numpy(np.float64)
        odd = ~((meant >= self._low) & (meant <= self._high))
        if odd.any():
            for row in np.flatnonzero(odd).tolist():
                self._say_of_number(row, values[row], float(found[row]), float(meant[row]), said)
        return meant

    def _one_number(self, value: Any) -> float:
        """Return a number, NaN for null, and infinity for what is no number."""
        if value is None:
            return math.nan
        if isinstance(value, bool | str) or not isinstance(value, int | float):
            return math.inf
        try:
            return float(value)
        except OverflowError:
            return math.inf

    def _say_of_number(self, row: int, value: Any, found: float, meant: float, said: Said) -> None:
        if value is None:
            self._say_missing(row, said)
        elif math.isinf(found):
            text = f"{self.name} has to be a finite number, or null if it is not known."
            said.fault(row, "type", text, self.name)
        elif math.isnan(meant):
            self._say_missing(row, said)
        elif abs(found) > self._largest:
            limits = f"from -{self._largest:g} to {self._largest:g}"
            said.fault(row, "type", f"{self.name} has to be a number {limits}, or null if it is not known.", self.name)
        else:
            assert self._ranges is not None  # without ranges nothing else is odd
            cell = self._ranges.cell(self._place, meant)
            far = bool(self._ranges.are_far(np.array([self._place]), np.array([meant]))[0])
            if self._policy.out_of_range == "refuse":
                said.fault(row, "far_outside" if far else "outside", f"outside training range: {cell}.", self.name)
                return
            text = f"outside training range: {cell}"
            if far:
                edge = min(max(meant, self._low), self._high)
                text += f"; not to be used, predicted as {self.name} {edge:.6g}"
                said.unusable.add(row)
            said.add(row, note("far_outside" if far else "outside", text, self.name, value, self._low, self._high))

    # --- words --------------------------------------------------------------------------------------------

    def _words(self, values: list[Any], said: Said) -> npt.NDArray[np.object_]:
        out = np.empty(len(values), dtype=object)
        kinds = set(map(type, values))
        if kinds == {str} or (kinds == {bool} and self._column.kind == "yes/no"):
            try:
                out[:] = [self._known[value] for value in values]
                return out
            except KeyError:
                pass
        meanings: dict[str, tuple[Any, bool]] = {}
        out[:] = [self._word(row, value, said, meanings) for row, value in enumerate(values)]
        return out

    def _known_words(self, levels: Sequence[str]) -> dict[Any, Any]:
        """Return what the words mean that most requests hold."""
        words: list[Any] = [level for level in levels if isinstance(level, str)]
        out = {word: self._look_up(word)[0] for word in words}
        if self._column.kind == "yes/no":
            out |= {True: self._look_up("yes")[0], False: self._look_up("no")[0]}
        return {word: level for word, level in out.items() if level is not None}

    def _word(self, row: int, value: Any, said: Said, meanings: dict[str, tuple[Any, bool]]) -> Any:
        if value is None:
            return self._say_missing(row, said)
        if self._column.kind == "yes/no" and isinstance(value, bool):
            value = "yes" if value else "no"
        if not isinstance(value, str) or len(value) > LONGEST_TEXT:
            wanted = "true, false or one of" if self._column.kind == "yes/no" else "one of"
            text = f"{self.name} has to be {wanted} {listed(self._levels or (), 12)}, or null if it is not known."
            said.fault(row, "type", text, self.name)
            return None
        if value not in meanings:
            meanings[value] = self._meaning(value)
        level, known = meanings[value]
        if known:
            return self._say_missing(row, said) if level is None else level
        text = f"{self.name} {value!r} is unknown to the model"
        if self._policy.unknown_level == "refuse":
            detail = f"{text}. Known are {listed(self._levels or (), 12)}."
            said.fault(row, "unknown_level", detail, self.name)
        else:
            said.add(row, note("unknown_level", f"{text}, taken as missing", self.name, value))
            said.nothing(row, self._features)
        return None

    def _say_missing(self, row: int, said: Said) -> None:
        if self._policy.missing == "refuse":
            said.fault(row, "missing", f"{self.name} is needed for a prediction.", self.name)
        else:
            text = f"{self.name} is not known; the model goes by patients of whom nothing is said about it"
            said.add(row, note("missing", text, self.name))
            said.nothing(row, self._features)

    def _meaning(self, value: str) -> tuple[Any, bool]:
        """Return what a text means; only texts that the model knows are remembered, so that no other one is kept."""
        if value in self._spelt:
            return self._spelt[value], True
        level, known = self._look_up(value)
        if known and len(self._spelt) < _REMEMBERED:
            self._spelt[value] = level
        return level, known

    def _look_up(self, value: str) -> tuple[Any, bool]:
        """Return what a cell of a table with this text means, None if nothing, and whether the model knows it."""
        levels = None if self._levels is None else {self.name: self._levels}
        features, odd = apply_columns(pd.DataFrame({self.name: [value]}), [self._column], levels)
        found = features[self.name].tolist()[0]
        return (None if pd.isna(found) else found), not odd


def escaped(name: str) -> str:
    """Return a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
