"""What a cohort looks like, in so few numbers that nobody can be recognised: enough to make up patients like these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv.plain import Finite, Share, declared, level_text
from dcsurv.preprocessing.ranges import Ranges, edges_of
from dcsurv.preprocessing.rules import is_number
from dcsurv.target import FloatArray

# Fewer patients than this never stand for themselves: their level is pooled, and a range ends before them.
_FEW = 5
# A number with at most this many values is kept by its values, such as 0 and 1.
_FEW_VALUES = 10
_MOST_QUANTILES, _TAIL = 25, 0.02
_DIGITS = 4
# More rows add nothing to quantiles that are rounded anyway.
_MOST_ROWS = 20_000
# Above this the correlations would be the largest part of a model file.
_MOST_CORRELATED = 200


class _Feature(msgspec.Struct):
    name: str
    values: list[Finite | str]
    at: list[Share]
    levels: bool
    whole: bool = False
    missing: Share = 0.0
    edges: tuple[Finite, Finite] | None = None

    def __post_init__(self) -> None:
        if len(self.values) != len(self.at) or not self.values or sorted(self.at) != self.at:
            raise ValueError("the summary of a feature needs values, and one ascending share for each")
        if len({type(value) for value in self.values}) > 1 or not (self.levels or isinstance(self.values[0], float)):
            raise ValueError("the values of a feature are all numbers, or all levels")
        if self.edges is not None and (isinstance(self.values[0], str) or self.edges[0] > self.edges[1]):
            raise ValueError("a feature has a range, but no numbers, or one that ends before it begins")


class _State(msgspec.Struct):
    """What a file has to say of a population."""

    features: list[_Feature]
    correlation: list[Annotated[float, msgspec.Meta(ge=-1, le=1)]] | None


@dataclass(frozen=True)
class FeatureSummary:
    """One feature: its values by the share of patients below them.

    Parameters
    ----------
    name : str
        The column.
    values : tuple
        Levels, or numbers at quantiles, ascending.
    at : tuple of float
        The shares: up to and including each level, or those of the quantiles.
    levels : bool
        Whether only these values occur; otherwise a number may lie between two of them.
    whole : bool, default False
        Whether all numbers are whole.
    missing : float, default 0.0
        Share of patients without a value.
    edges : tuple of float or None, default None
        Between which round numbers all of its numbers lie; None for levels, and where a file does not know.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.preprocessing import FeatureSummary
    >>> stage = FeatureSummary("stage", ("I", "II"), (0.7, 1.0), levels=True)
    >>> stage.drawn(np.array([0.2, 0.9])).tolist()
    ['I', 'II']
    """

    name: str
    values: tuple[Any, ...]
    at: tuple[float, ...]
    levels: bool
    whole: bool = False
    missing: float = 0.0
    edges: tuple[float, float] | None = None

    def drawn(self, shares: FloatArray) -> npt.NDArray[Any]:
        """Return the values at shares.

        Parameters
        ----------
        shares : array of float
            Between 0 and 1.

        Returns
        -------
        array
            One value for each.
        """
        if self.levels:
            place = np.minimum(np.searchsorted(self.at, shares), len(self.values) - 1)
            return np.array(self.values, dtype=object)[place]
        found = np.interp(shares, self.at, self.values)
        return np.rint(found) if self.whole else found

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


@dataclass(frozen=True)
class Population:
    """A cohort in summary: quantiles or pooled levels of every feature, and how features go together.

    No extreme value of a patient is in it: quantiles end where fewer than five patients lie beyond, edges are round
    numbers further out, and levels with fewer than five patients are pooled with others. Numbers are rounded.

    Parameters
    ----------
    features : tuple of FeatureSummary
        One per column.
    correlation : array of shape (p, p) or None
        Of the features' normal scores; None if there are too many features.

    Examples
    --------
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.preprocessing import Population
    >>> X, y = load_metabric(labels="measured")
    >>> population = Population.of(X)
    >>> made_up = population.draw(100)
    >>> bool(abs(made_up["age"].median() - X["age"].median()) < 2)
    True
    """

    features: tuple[FeatureSummary, ...]
    correlation: FloatArray | None

    @classmethod
    def of(cls, X: Any) -> Population:
        """Sum up a table of patients.

        Parameters
        ----------
        X : DataFrame or array
            Features, one row per patient.

        Returns
        -------
        Population
            The summary.
        """
        table = as_pandas(X)
        if not isinstance(table, pd.DataFrame):
            array = np.asarray(table)
            table = pd.DataFrame(array, columns=[f"x{k}" for k in range(array.shape[1])])
        whole = table
        if len(table) > _MOST_ROWS:
            table = table.iloc[np.linspace(0, len(table) - 1, _MOST_ROWS).astype(np.int64)]
        features, scores = [], []
        for name in table.columns:
            column = table[name].infer_objects()
            numeric = is_number(column)
            summary, score = _numbers(str(name), column) if numeric else _levels(str(name), column)
            features.append(replace(summary, edges=_edges(whole[name])) if numeric else summary)
            scores.append(score)
        return cls(tuple(features), _correlation(scores) if len(features) <= _MOST_CORRELATED else None)

    def draw(self, n_patients: int, random_state: int = 0) -> pd.DataFrame:
        """Make up patients like these: the same features and pairwise dependence, nobody's row.

        Parameters
        ----------
        n_patients : int
            How many.
        random_state : int, default 0
            Seed.

        Returns
        -------
        DataFrame
            One row per made-up patient.
        """
        shares = self._spread_out(n_patients, np.random.default_rng(random_state))
        rng = np.random.default_rng([random_state, 1])
        out: dict[str, Any] = {}
        for k, feature in enumerate(self.features):
            column = pd.Series(feature.drawn(shares[:, k]))
            if feature.is_number:
                column = column.astype(np.float64)
            gaps = rng.random(n_patients) < feature.missing
            out[feature.name] = column.mask(gaps) if gaps.any() and not gaps.all() else column
        return pd.DataFrame(out)

    @cached_property
    def ranges(self) -> Ranges | None:
        """Between which values its numbers lay; None if an older file does not know."""
        numbers = [(k, one, one.edges) for k, one in enumerate(self.features) if one.edges is not None]
        if not numbers and any(one.is_number for one in self.features):
            return None
        return Ranges(
            np.array([k for k, _, _ in numbers], dtype=np.int64),
            tuple(one.name for _, one, _ in numbers),
            np.array([edges[0] for _, _, edges in numbers]),
            np.array([edges[1] for _, _, edges in numbers]),
            np.array([float(one.drawn(np.array([0.5]))[0]) for _, one, _ in numbers]),
        )

    def _spread_out(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return shares of every feature for made-up patients, evenly spread and dependent as the features are."""
        from scipy.special import ndtr, ndtri
        from scipy.stats import qmc

        width = len(self.features)
        even = qmc.LatinHypercube(width, rng=rng).random(n) if width else np.empty((n, 0))
        if self.correlation is None or width == 0:
            return even
        values, vectors = np.linalg.eigh(self.correlation)
        root = vectors * np.sqrt(np.maximum(values, 0))
        root /= np.sqrt((root**2).sum(axis=1, keepdims=True))
        shares = ndtr(ndtri(even) @ root.T)
        # Evenly spread again, each feature by itself: dependence is in the ranks.
        ranks = np.argsort(np.argsort(shares, axis=0, kind="stable"), axis=0, kind="stable")
        spread: FloatArray = (ranks + 0.5) / n
        return spread

    def get_state(self) -> dict[str, Any]:
        """Return it as plain data.

        Returns
        -------
        dict
            For :meth:`from_state`.
        """
        correlation = None
        if self.correlation is not None:
            correlation = self.correlation[np.triu_indices(len(self.features), 1)].tolist()
        return {"features": [asdict(one) for one in self.features], "correlation": correlation}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Population:
        """Rebuild it from plain data.

        Parameters
        ----------
        state : mapping
            What :meth:`get_state` returned.
        """
        known = declared(state, _State)
        features = tuple(
            FeatureSummary(
                name=one.name,
                values=tuple(one.values),
                at=tuple(one.at),
                levels=one.levels,
                whole=one.whole,
                missing=one.missing,
                edges=one.edges,
            )
            for one in known.features
        )
        correlation = None
        if state["correlation"] is not None:
            correlation = np.eye(len(features))
            above = np.triu_indices(len(features), 1)
            correlation[above] = state["correlation"]
            correlation.T[above] = state["correlation"]
        return cls(features, correlation)


def _numbers(name: str, column: pd.Series) -> tuple[FeatureSummary, FloatArray]:
    given = column.to_numpy(np.float64, na_value=np.nan)
    values: FloatArray = np.where(np.isfinite(given), given, np.nan).astype(np.float64)
    known = values[~np.isnan(values)]
    missing = _share_missing(len(values), len(known))
    if len(known) == 0:
        return FeatureSummary(name, (0.0,), (1.0,), True, missing=missing), np.zeros(len(values))
    distinct, counts = np.unique(known, return_counts=True)
    whole = bool((distinct == np.rint(distinct)).all())
    if len(distinct) <= _FEW_VALUES:
        frequent = counts >= _FEW
        kept = distinct[frequent] if frequent.any() else np.array([_rounded(float(np.median(known)))])
        nearest = np.abs(distinct[:, None] - kept).argmin(axis=1)
        shares = np.cumsum(np.bincount(nearest, counts, minlength=len(kept))) / len(known)
        summary = FeatureSummary(name, tuple(kept.tolist()), _shares(shares), True, whole, missing)
    else:
        tail = min(0.25, max(_TAIL, _FEW / len(known)))
        at = np.linspace(tail, 1 - tail, int(np.clip(len(known) // 10, 3, _MOST_QUANTILES)))
        quantiles = tuple(_rounded(float(value)) for value in np.quantile(known, at))
        summary = FeatureSummary(name, quantiles, _shares(at), False, whole, missing)
    return summary, _normal_scores(values)


def _edges(column: pd.Series) -> tuple[float, float] | None:
    values = column.infer_objects().to_numpy(np.float64, na_value=np.nan)
    known = values[np.isfinite(values)]
    return edges_of(known) if len(known) else None


def _levels(name: str, column: pd.Series) -> tuple[FeatureSummary, FloatArray]:
    texts = column.astype(object).map(level_text, na_action="ignore")
    counts = texts.value_counts(sort=False)
    missing = _share_missing(len(column), int(counts.sum()))
    frequent = counts[counts >= _FEW]
    kept = frequent if len(frequent) else counts.sort_values(ascending=False, kind="stable").head(1)
    order = sorted(str(level) for level in kept.index)
    if isinstance(column.dtype, pd.CategoricalDtype):
        known = [level_text(level) for level in column.cat.categories]
        order = [level for level in dict.fromkeys(known) if level in kept.index]
    if not order:
        return FeatureSummary(name, ("",), (1.0,), True, missing=missing), np.zeros(len(column))
    shares = np.cumsum([float(kept[level]) for level in order]) / float(kept.sum())
    places = {level: float(place) for place, level in enumerate(order)}
    scores = _normal_scores(texts.map(places).to_numpy(np.float64, na_value=np.nan))
    return FeatureSummary(name, tuple(order), _shares(shares), True, missing=missing), scores


def _share_missing(n: int, known: int) -> float:
    return round((n - known) / n, 3) if n - known >= _FEW else 0.0


def _shares(shares: FloatArray) -> tuple[float, ...]:
    return tuple(round(float(share), 4) for share in shares)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _normal_scores(values: npt.NDArray[Any]) -> FloatArray:
    """Return the normal quantiles of the ranks, the same for ties; 0 where a value is missing."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    out = np.zeros(len(values))
    known = ~np.isnan(values)
    if known.any():
        out[known] = ndtri((rankdata(values[known]) - 0.5) / known.sum())
    return out


def _correlation(scores: Sequence[FloatArray]) -> FloatArray:
    matrix = np.stack(scores, axis=1) if scores else np.empty((0, 0))
    centred = matrix - matrix.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    unit = centred / np.where(length > 0, length, 1.0)
    out: FloatArray = np.round(unit.T @ unit, 3)
    np.fill_diagonal(out, 1.0)
    return out
