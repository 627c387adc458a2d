"""Patients who have some features of one patient and the others of another, and what a model says about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.durations import describe_time
from dcsurv.models import SurvivalModel
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import FloatArray, IntArray

Scale: TypeAlias = Literal["survival", "log-hazard"]
# What an explanation may be of: S itself, or log(-log S), on which hazards are proportional where they are.
SCALES: tuple[Scale, ...] = ("survival", "log-hazard")
# From a row of the table for each player, (n, players), to what the model says at the times, (n, T).
Mixed: TypeAlias = Callable[[IntArray], FloatArray]

_CHUNK_NUMBERS = 16_000_000
_LEAST = 1e-12


def feature_names(model: SurvivalModel) -> list[str]:
    """Return the names of the features that a model was fitted with; x0, x1, ... if it saw none."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{k}" for k in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def said_time(t: float, unit: str | None, *, brief: bool = False) -> str:
    """Write a time with its unit, or say that it is one."""
    text = describe_time(t, unit, brief=brief)
    return text if unit else f"time {text}"


def grouped(names: Sequence[str], groups: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
    """Return the features of every player: those of a group move together, the others each by itself.

    Parameters
    ----------
    names
        All features.
    groups
        Features by the name of their group.
    """
    out: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for group, members in (groups or {}).items():
        unknown = [name for name in members if name not in names]
        if unknown or not members or isinstance(members, str):
            raise ValueError(
                f"groups has {group!r}: {members!r}, but a list of features is expected; they are {list(names)}."
            )
        for name in members:
            if name in owner:
                raise ValueError(f"groups has {name!r} in {owner[name]!r} and in {group!r}; a feature is in one group.")
            owner[name] = group
    for name in names:
        out.setdefault(owner.get(name, name), []).append(name)
    return out


def survival_of(model: SurvivalModel, times: FloatArray, scale: Scale = "survival") -> Callable[[Any], FloatArray]:
    """Return the function from prepared features, (n, columns), to what is explained, (n, T), in small chunks."""
    size = max(1, _CHUNK_NUMBERS // model.numbers_per_row())

    def predict(prepared: Any) -> FloatArray:
        out = np.empty((len(prepared), len(times)))
        for start in range(0, len(prepared), size):
            out[start : start + size] = model.curves_of(prepared[start : start + size]).evaluate(times)
        return on_scale(out, scale)

    return predict


def on_scale(survival: FloatArray, scale: Scale) -> FloatArray:
    """Return survival on the scale of the explanation."""
    if scale == "survival":
        return survival
    out: FloatArray = np.log(-np.log(np.clip(survival, _LEAST, 1 - _LEAST)))
    return out


class Mixture:
    """A table of patients whose features can be mixed, player by player, and predicted; the same mixture only once.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    tables : sequence of DataFrame or array
        Patients; their rows are counted through.
    players : mapping of str to list of str
        Which features move together.
    times : array
        When to predict.
    scale : {"survival", "log-hazard"}
        What to return.
    """

    def __init__(
        self,
        model: SurvivalModel,
        tables: Sequence[Any],
        players: Mapping[str, Sequence[str]],
        times: FloatArray,
        scale: Scale,
    ) -> None:
        names = feature_names(model)
        player_of = {name: k for k, members in enumerate(players.values()) for name in members}
        self.predict = survival_of(model, times, scale)
        self._model = model
        self._raw: Any = None
        if isinstance(model.preprocessor_, Preprocessor | None):
            table: Any = np.concatenate([model.prepare(one) for one in tables])
            known = model.preprocessor_
            columns = names if known is None else _positional(known, names)
            self._player = np.array([player_of[name] for name in columns])
            codes = [_codes(table[:, self._player == k]) for k in range(len(players))]
        else:  # what a transformer of the user's makes of a feature is not known: the features themselves are mixed
            parts = [_frame(model.check_features(one), names) for one in tables]
            table = pd.concat(parts, ignore_index=True)
            self._raw = isinstance(model.check_features(tables[0]), pd.DataFrame)
            self._player = np.array([player_of[name] for name in names])
            factorised = np.stack([pd.factorize(table[name])[0] for name in names], axis=1)
            codes = [_codes(factorised[:, self._player == k]) for k in range(len(players))]
        self._table: Any = table
        self._codes = np.stack(codes, axis=1)

    def __call__(self, rows: IntArray) -> FloatArray:
        """Return what the model says about mixtures: of each, the row of the table for every player."""
        key = np.ascontiguousarray(np.take_along_axis(self._codes, rows, axis=0))
        whole = key.view(np.dtype((np.void, key.dtype.itemsize * key.shape[1]))).ravel()
        _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
        found: FloatArray = self.predict(self._mixed(rows[first]))[inverse]
        return found

    def _mixed(self, rows: IntArray) -> Any:
        place = rows[:, self._player]
        if self._raw is None:
            return self._table[place, np.arange(len(self._player))]
        frame = pd.DataFrame({name: self._table[name].array[place[:, k]] for k, name in enumerate(self._table.columns)})
        return self._model.prepare(frame if self._raw else frame.to_numpy())


def _positional(preprocessor: Preprocessor, names: Sequence[str]) -> list[str]:
    """Return the feature of every prepared column by the names of the model."""
    own = [column["name"] for column in preprocessor.get_state()["columns"]]
    names_of = dict(zip(own, names, strict=True))
    return [names_of[name] for name in preprocessor.feature_of_each_column()]


def _frame(features: Any, names: Sequence[str]) -> pd.DataFrame:
    return features if isinstance(features, pd.DataFrame) else pd.DataFrame(features, columns=list(names))


def _codes(columns: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return a number for each row that is the same for equal rows."""
    _, codes = np.unique(columns, axis=0, return_inverse=True)
    out: npt.NDArray[np.int32] = codes.reshape(-1).astype(np.int32)
    return out
