"""The folder of the neutral benchmark: cohorts, folds and published scores, read where they lie and never copied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from dcsurv.experiments.plan import PlanError
from dcsurv.target import IntArray, make_outcome

Score: TypeAlias = Literal["harrell_c", "isbs"]
FeatureKind: TypeAlias = Literal["number", "category"]
SCORES: Final[tuple[Score, ...]] = get_args(Score)
_PUBLISHED_COLUMNS: Final = ("cohort", "learner", "iteration", "tuned_for", *SCORES)
# What R and pandas write where a value is missing; a level may well be called "None" or "null".
_MISSING: Final = ["", "NA", "NaN"]


@dataclass(frozen=True)
class NeutralCohort:
    """A cohort with the folds of others.

    Attributes
    ----------
    name : str
        What it is called.
    X : DataFrame
        Features; categories are text.
    y : outcome
        Outcome of the patients.
    kinds : dict
        Whether each feature is a ``"number"`` or a ``"category"``.
    folds : dict
        The test rows of each fold.
    """

    name: str
    X: pd.DataFrame
    y: Any
    kinds: dict[str, FeatureKind]
    folds: dict[int, IntArray]

    def split(self, fold: int) -> tuple[IntArray, IntArray]:
        """Return the rows of a fold.

        Parameters
        ----------
        fold : int
            Its number.

        Returns
        -------
        training : array of int
            The rows to train on.
        test : array of int
            The rows to score.
        """
        test = self.folds[fold]
        return np.setdiff1d(np.arange(len(self.y)), test), test

    @cached_property
    def categories(self) -> list[str]:
        """The features that are categories."""
        return [name for name, kind in self.kinds.items() if kind == "category"]

    def digest(self, fold: int) -> str:
        """Return a digest of the data and of who is in which part.

        Parameters
        ----------
        fold : int
            Its number.

        Returns
        -------
        str
            The same for the same data.
        """
        out = hashlib.sha256(json.dumps([self.name, self.kinds]).encode())
        for part in (pd.util.hash_pandas_object(self.X).to_numpy(), self.y["time"], self.y["event"], self.folds[fold]):
            out.update(np.ascontiguousarray(part).tobytes())
        return out.hexdigest()


class NeutralFolder:
    """A folder with ``cohorts.json``, ``cohorts/NAME.csv``, ``cohorts/NAME.folds.json`` and ``published_scores.csv``.

    Parameters
    ----------
    path : str or path-like
        Where it is.

    Attributes
    ----------
    names : list of str
        The cohorts that ``cohorts.json`` lists.
    published : DataFrame
        The published scores: ``cohort, learner, fold, tuned_for, harrell_c, isbs``.
    """

    def __init__(self, path: Any) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise PlanError(f"there is no folder {self.path}. Name the folder that has cohorts.json in it.")
        self._cohorts = _read_json(self.path / "cohorts.json")
        self.names = list(self._cohorts)
        if not self.names:
            raise PlanError(f"{self.path / 'cohorts.json'} lists no cohorts.")
        self.published = _read_published(self.path / "published_scores.csv")
        for score in SCORES:
            self.published_scores(score)  # refuses what is there twice

    def cohort(self, name: str) -> NeutralCohort:
        """Read a cohort.

        Parameters
        ----------
        name : str
            One of ``names``.

        Returns
        -------
        NeutralCohort
            Its features, outcome and folds.

        Raises
        ------
        PlanError
            Its files are not what they should be; the message says why.
        """
        if name not in self._cohorts:
            raise PlanError(f"there is no cohort {name!r} in {self.path}; there are {', '.join(self.names)}.")
        kinds = _feature_kinds(name, self._cohorts[name])
        path = self.path / "cohorts" / f"{name}.csv"
        try:
            text: dict[Any, Any] = dict.fromkeys((one for one in kinds if kinds[one] == "category"), str)
            table = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=_MISSING, low_memory=False)
        except (OSError, ValueError) as error:
            raise PlanError(f"the cohort {name!r} cannot be read from {path}: {error}.") from error
        missing = [column for column in ("time", "status", *kinds) if column not in table]
        if missing:
            raise PlanError(f"{path} lacks the columns {missing}; it has {list(table.columns)}.")
        rows = self._cohorts[name].get("rows", len(table))
        if rows != len(table):
            raise PlanError(f"{path} has {len(table)} rows, but cohorts.json says {rows}. Folds would not fit.")
        for column in ("time", "status", *(one for one in kinds if kinds[one] == "number")):
            table[column] = _numbers(table[column], path)
        if not table["status"].isin([0, 1]).all():
            raise PlanError(f"the column 'status' of {path} must be 1 (event) or 0 (censored) in every row.")
        try:
            y = make_outcome(table["time"], table["status"])
        except ValueError as error:
            raise PlanError(f"the outcome of {path} cannot be used: {error}") from error
        folds = _read_folds(self.path / "cohorts" / f"{name}.folds.json", len(table))
        return NeutralCohort(name, table[list(kinds)], y, kinds, folds)

    def published_scores(self, score: Score) -> pd.DataFrame:
        """Return the scores of the learners that were tuned for a score, or not tuned at all.

        Parameters
        ----------
        score : {"harrell_c", "isbs"}
            Which score.

        Returns
        -------
        DataFrame
            ``cohort, learner, fold, value``.
        """
        rows = self.published
        wanted = [score in str(text).split(",") for text in rows["tuned_for"]]
        out = rows.loc[wanted, ["cohort", "learner", "fold", score]].rename(columns={score: "value"}).dropna()
        twice = out[out.duplicated(["cohort", "learner", "fold"])]
        if len(twice):
            cohort, learner, fold = twice.iloc[0][["cohort", "learner", "fold"]]
            raise PlanError(
                f"published_scores.csv has more than one {score} of {learner} on {cohort}, fold {fold}. Keep one."
            )
        return out.reset_index(drop=True)


def chosen_folds(text: str, there: Sequence[int]) -> list[int]:
    """Return which of the folds of a cohort are meant by ``all`` or by numbers and ranges such as ``1-3,5``."""
    if text == "all":
        return sorted(there)
    wanted: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        try:
            numbers = range(int(first), int(last or first) + 1)
        except ValueError:
            numbers = range(0)
        if not numbers:
            raise PlanError(f"folds is {text!r}, but 'all' or numbers such as '1-3' or '1,4' are expected.")
        wanted |= set(numbers)
    return sorted(wanted & set(there))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        out = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise PlanError(f"{path} is not JSON: {error}.") from error
    if not isinstance(out, dict):
        raise PlanError(f"{path} holds a {type(out).__name__}, but an object with one entry per name is expected.")
    return out


def _feature_kinds(name: str, entry: Any) -> dict[str, FeatureKind]:
    kinds = entry.get("columns") if isinstance(entry, dict) else None
    if not isinstance(kinds, dict) or not kinds:
        raise PlanError(f"cohorts.json must give {name!r} an entry 'columns': the kind of each feature by its name.")
    wrong = {column: kind for column, kind in kinds.items() if kind not in get_args(FeatureKind)}
    if wrong:
        raise PlanError(f"cohorts.json gives features of {name!r} the kinds {wrong}; use 'number' or 'category'.")
    if {"time", "status"} & set(kinds):
        raise PlanError(f"cohorts.json lists 'time' or 'status' among the features of {name!r}: they are the outcome.")
    return kinds


def _numbers(column: pd.Series, path: Path) -> pd.Series:
    out = pd.to_numeric(column, errors="coerce").astype(float)
    wrong = column[out.isna() & column.notna()]
    if len(wrong):
        raise PlanError(
            f"the column {str(column.name)!r} of {path} should hold numbers, but row {wrong.index[0]} has "
            f"{str(wrong.iloc[0])!r}. Correct it, or make the feature a category in cohorts.json."
        )
    return out


def _read_folds(path: Path, n: int) -> dict[int, IntArray]:
    out = {}
    for name, rows in _read_json(path).items():
        try:
            fold, test = int(name), np.asarray(rows)
        except ValueError as error:
            raise PlanError(f"{path} has the fold {name!r}, but whole numbers are expected.") from error
        if test.ndim != 1 or not np.issubdtype(test.dtype, np.integer):
            raise PlanError(f"fold {fold} of {path} should be a list of row numbers.")
        if test.min() < 0 or test.max() >= n or len(np.unique(test)) < len(test) or len(test) == n:
            raise PlanError(
                f"fold {fold} of {path} should name each test row once, from 0 to {n - 1}, and leave rows to train on."
            )
        out[fold] = test.astype(np.int64)
    if not out:
        raise PlanError(f"{path} has no folds.")
    return out


def _read_published(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, dtype={"cohort": str, "learner": str, "tuned_for": str})
    except (OSError, ValueError) as error:
        raise PlanError(f"the published scores cannot be read from {path}: {error}.") from error
    missing = [column for column in _PUBLISHED_COLUMNS if column not in table]
    if missing:
        raise PlanError(f"{path} lacks the columns {missing}; it has {list(table.columns)}.")
    for column in ("iteration", *SCORES):
        table[column] = _numbers(table[column], path)
    return table.rename(columns={"iteration": "fold"}).astype({"fold": int})
