"""A model that a service answers with: its card, what may be asked of it, and its predictions as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.cohort import ModelCard, Predictor
from dcsurv.cohort.card import levels_of
from dcsurv.cohort.predictions import DECIMALS
from dcsurv.models import SurvivalModel
from dcsurv.service.asking import Asked, Asking, How
from dcsurv.service.card import LEVEL, model_card
from dcsurv.service.policy import Policy
from dcsurv.service.reading import note
from dcsurv.target import FloatArray

# Patients that are predicted at once, points of their curves, and different questions that are remembered.
PIECE: Final = 1024
_POINTS, _QUESTIONS = 100_000, 64

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Predicted:
    """Predictions of some patients: one row per number, one column per patient; curves have a row per patient."""

    numbers: FloatArray
    curve: tuple[FloatArray, ...] | None

    def part(self, start: int, stop: int) -> Predicted:
        """Return the predictions of some of the patients."""
        curve = None if self.curve is None else tuple(one[start:stop] for one in self.curve)
        return Predicted(self.numbers[:, start:stop], curve)

    @staticmethod
    def joined(parts: list[Predicted]) -> Predicted:
        """Return the predictions of patients that were predicted in parts."""
        if len(parts) == 1:
            return parts[0]
        curve = None
        if parts[0].curve is not None:
            curve = tuple(np.concatenate(same) for same in zip(*(one.curve or () for one in parts), strict=True))
        return Predicted(np.concatenate([one.numbers for one in parts], axis=1), curve)


class ServedModel:
    """A model under a name and a version, ready to be asked.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    name : str
        What the service calls it.
    version : str
        Which of several models of that name.
    digest : str
        SHA-256 of its file.
    words : mapping or None, default None
        The owner's title, notice and labels.
    policy : Policy or None, default None
        What is done with values unlike training.
    """

    def __init__(
        self,
        model: SurvivalModel,
        name: str,
        version: str,
        digest: str,
        words: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.model, self.name, self.version, self.digest = model, name, version, digest
        self.policy, self.words = policy or Policy(), words or {}
        self.card = model_card(model, name=name, version=version, digest=digest, words=words, policy=self.policy)
        self.facts = ModelCard.of(model)
        self.identity = {"name": name, "version": version, "digest": digest}
        self.asking = Asking(
            self.facts.columns,
            levels_of(model),
            self.facts.horizons,
            self.facts.unit,
            level=LEVEL,
            has_band=model.has_band,
            has_interval=model.time_bounds_ is not None,
            policy=self.policy,
            ranges=model.training_ranges,
        )
        self.last = float(model.nodes[-1])
        self.predictor = lru_cache(_QUESTIONS)(self._predictor)

    def _predictor(self, how: How) -> Predictor:
        return Predictor(self.model, self.facts, how.horizons, bands=how.level, interval=how.interval)

    def predict(self, values: Columns, how: How) -> Predicted:
        """Predict patients by the values of their features; each as if it were the only one."""
        features = pd.DataFrame(values, copy=False)
        numbers = self.predictor(how).numbers_of(features)
        if how.times is None:
            return Predicted(numbers, None)
        prepared, times = self.model.prepare(features), np.array(how.times)
        parts = []
        step = max(1, min(PIECE, _POINTS // len(times)))
        for start in range(0, len(prepared), step):
            chunk = prepared[start : start + step]
            if how.level is None:
                parts.append([self.model.curves_of(chunk).evaluate(times)])
            else:
                _, band = self.model.curves_with_band(chunk, times, how.level)
                parts.append([band.survival, band.lower, band.upper])
        curve = tuple(np.round(np.concatenate(same), DECIMALS) for same in zip(*parts, strict=True))
        return Predicted(numbers, curve)

    def warm_up(self) -> None:
        """Predict a patient of whom nothing is known, so that a model that cannot predict is found out."""
        names = [one["name"] for one in self.card["features"]]
        asked = self.asking.predict({"patients": [dict.fromkeys(names)]}, 1) if self.policy.missing == "note" else None
        values: Columns = asked.values if asked is not None else self._nothing()
        how = How(tuple(self.facts.horizons), (0.0, self.last), LEVEL if self.model.has_band else None, None)
        self.predict(values, how)

    def _nothing(self) -> Columns:
        number = np.array([np.nan])
        word = np.array([None], dtype=object)
        return {one["name"]: number if one["kind"] == "number" else word for one in self.card["features"]}

    def answer(self, asked: Asked, found: Predicted) -> dict[str, Any]:
        """Return the answer to a request for predictions."""
        return {
            "model": self.identity,
            "time_unit": self.facts.unit,
            "level": asked.how.level or asked.how.interval,
            "horizons": [one.to_dict() for one in asked.how.horizons],
            "times": asked.how.times,
            "patients": self.patients(asked, found),
        }

    def patients(self, asked: Asked, found: Predicted) -> list[dict[str, Any]]:
        """Return what is predicted for each patient, and what is said of it."""
        how = asked.how
        labels = [one.label for one in how.horizons]
        count, wide = len(labels), 1 if how.level is None else 3
        late = [one.label for one in how.horizons if one.time > self.last]
        times = np.array([one.time for one in how.horizons])
        beyond = (found.numbers[-1][:, None] < times).sum(axis=1).tolist()
        after = self._times_notes(how)
        out = []
        for row, numbers in enumerate(found.numbers.T.tolist()):
            risks = numbers[wide * count : (wide + 1) * count]
            if how.level is None:
                horizons = [
                    {"label": label, "survival": survival, "risk": risk, "lower": None, "upper": None}
                    for label, survival, risk in zip(labels, numbers, risks, strict=False)
                ]
            else:
                ends = zip(labels, risks, numbers[0::3], numbers[1::3], numbers[2::3], strict=False)
                horizons = [
                    {"label": label, "survival": survival, "risk": risk, "lower": lower, "upper": upper}
                    for label, risk, survival, lower, upper in ends
                ]
            notes = asked.notes.get(row, [])
            if late or beyond[row] or after:
                notes = [*notes, *_follow_up_notes(labels, late, beyond[row]), *after]
            out.append(
                {
                    "horizons": horizons,
                    "median": numbers[-3],
                    "mean": numbers[-2],
                    "followed_to": numbers[-1],
                    "time_lower": None if how.interval is None else numbers[-4],
                    "curve": None if found.curve is None else _curve(found.curve, row),
                    "usable": row not in asked.unusable,
                    "notes": notes,
                }
            )
        return out

    def _times_notes(self, how: How) -> list[dict[str, Any]]:
        """Say that times of a curve lie beyond the follow-up of all patients."""
        if how.times is None or how.times[-1] <= self.last:
            return []
        text = f"beyond all follow-up, curves held constant: times after {self.last:.6g}"
        return [note("beyond_all_follow_up", text)]


def _curve(curve: tuple[FloatArray, ...], row: int) -> dict[str, Any]:
    parts = [one[row].tolist() for one in curve]
    return {"survival": parts[0], "lower": parts[1] if parts[1:] else None, "upper": parts[2] if parts[1:] else None}


def _follow_up_notes(labels: list[str], late: list[str], beyond: int) -> list[dict[str, Any]]:
    """Say which horizons lie beyond the follow-up of such patients, and which beyond that of all."""
    out = []
    such = labels[: len(labels) - len(late)][len(labels) - beyond :]
    if such:
        text = f"beyond the follow-up of such patients: {' '.join(such)}"
        out.append(note("beyond_follow_up", text, horizons=such))
    if late:
        text = f"beyond all follow-up, curves held constant: {' '.join(late)}"
        out.append(note("beyond_all_follow_up", text, horizons=late))
    return out
