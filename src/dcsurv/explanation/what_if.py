"""What the model would say if one or two features had other values: curves for patients, their mean, local effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dcsurv.explanation.background import background_for
from dcsurv.explanation.mixing import feature_names, said_time, survival_of
from dcsurv.models import SurvivalModel
from dcsurv.plain import level_text
from dcsurv.preprocessing.rules import is_number
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRID, _GRID_OF_TWO = 21, 9
# Ends of the range that is varied: beyond them hardly any patient has taught the model anything.
_RANGE = 0.025, 0.975
_FEW_VALUES = 10
_MOST_ROWS = 2_000
_N_TIMES = 40
# Patients behind each local effect.
_FEWEST = 5


@dataclass(frozen=True)
class WhatIf:
    """Predicted survival with one or two features varied; from :func:`what_if`.

    Attributes
    ----------
    features : list of str
        The one or two features.
    grid : list of array
        The values of each that were tried.
    times : array of shape (T,)
        The times.
    curves : array of shape (n, G, T)
        Survival of each patient with each value (individual conditional expectation); of two features, the values of
        the first are the slower index.
    own : array of shape (n, T)
        Survival of the patients as they are.
    mean : array of shape (G, T)
        Partial dependence: the mean over the patients.
    local : array of shape (G, T) or None
        Accumulated local effects: changes between neighbouring values, each over the patients who are near, added up,
        and shifted to the mean of the patients' predictions. None for categories and for two features.
    density : list of array
        Of each feature, the share of all comparison patients near each value; they sum to one.
    values : DataFrame
        The patients' own values of the features.
    unit : str or None
        What times are measured in.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.explanation import what_if
    >>> X, y = load_metabric(labels="measured")
    >>> X = X[["age", "chemotherapy"]]
    >>> found = what_if(dcsurv.CoxPH().fit(X, y), X.head(4), "age")
    >>> found.curves.shape, bool((found.mean[0] >= found.mean[-1]).all())  # the young live longer
    ((4, 21, 40), True)
    """

    features: list[str]
    grid: list[npt.NDArray[Any]]
    times: FloatArray
    curves: FloatArray
    own: FloatArray
    mean: FloatArray
    local: FloatArray | None
    density: list[FloatArray]
    values: pd.DataFrame = field(repr=False)
    unit: str | None

    def to_frame(self) -> pd.DataFrame:
        """Return a row per value (or pair of values) and time: partial dependence, local effects, density.

        Returns
        -------
        DataFrame
            The features, ``time``, ``mean`` and, where there are any, ``local``; of one feature also ``density``.
        """
        pairs = pd.MultiIndex.from_product(self.grid, names=self.features).to_frame(index=False)
        out = pairs.loc[pairs.index.repeat(len(self.times))].reset_index(drop=True)
        out["time"] = np.tile(self.times, len(pairs))
        out["mean"] = self.mean.ravel()
        if self.local is not None:
            out["local"] = self.local.ravel()
        if len(self.features) == 1:
            out["density"] = np.repeat(self.density[0], len(self.times))
        return out

    def nearest(self, time: float, survival: float, patient: int = 0, least_density: float = 0.01) -> dict[str, Any]:
        """Return the smallest change of the features with which the model predicts at least some survival.

        Only values that comparison patients have are looked at. The change is counted in ranks of these patients: the
        share of them whom it passes. It says what the model would predict for a patient who had been like that, not
        what would happen if the feature were changed.

        Parameters
        ----------
        time : float
            When.
        survival : float
            What survival is asked for, between 0 and 1.
        patient : int, default 0
            Which patient, by position.
        least_density : float, default 0.01
            Share of the comparison patients who must have about such a value.

        Returns
        -------
        dict
            The features with their values, the ``survival`` that is predicted with them and the ``change``; empty if no
            realistic value is enough.
        """
        at = int(np.abs(self.times - time).argmin())
        reached = self.curves[patient, :, at] >= survival
        sizes = [len(one) for one in self.grid]
        moved, realistic = np.zeros(sizes), np.ones(sizes, dtype=bool)
        for k, (name, grid, density) in enumerate(zip(self.features, self.grid, self.density, strict=True)):
            shape = [-1 if j == k else 1 for j in range(len(sizes))]
            moved = moved + _passed(self.values[name].iloc[patient], grid, density).reshape(shape)
            realistic = realistic & (density >= least_density).reshape(shape)
        candidates = np.flatnonzero(reached & realistic.ravel())
        if len(candidates) == 0:
            return {}
        best = int(candidates[moved.ravel()[candidates].argmin()])
        places = np.unravel_index(best, sizes)
        chosen = {name: grid[place] for name, grid, place in zip(self.features, self.grid, places, strict=True)}
        found = {"survival": float(self.curves[patient, best, at]), "change": float(moved.ravel()[best])}
        return {**{name: _plain(value) for name, value in chosen.items()}, **found}

    def plot(self, time: float | None = None) -> Figure:
        """Draw survival at one time against the feature, or the two features, with their density beneath.

        Parameters
        ----------
        time : float or None, default None
            When; None: the middle of the times.

        Returns
        -------
        matplotlib.figure.Figure
            Lines of patients, their mean and local effects; of two features a map.
        """
        from dcsurv.figures import explanation as draw

        at = len(self.times) // 2 if time is None else int(np.abs(self.times - time).argmin())
        when = said_time(float(self.times[at]), self.unit)
        if len(self.features) == 2:
            sizes = [len(one) for one in self.grid]
            return draw.what_if_map(self.grid, self.mean[:, at].reshape(sizes), self.density, self.features, when=when)
        local = None if self.local is None else self.local[:, at]
        return draw.what_if_curves(
            self.grid[0], self.curves[:, :, at], self.mean[:, at], local, self.density[0], self.features[0],
            own=self._own(at), when=when,
        )  # fmt: skip

    def _own(self, at: int) -> tuple[float, float] | None:
        """Return where a single patient is in the figure; None if outside of what was tried."""
        value, grid = self.values[self.features[0]].iloc[0], self.grid[0]
        if len(self.curves) > 1 or pd.isna(value):
            return None
        if grid.dtype.kind == "f":
            return (float(value), float(self.own[0, at])) if grid[0] <= float(value) <= grid[-1] else None
        place = np.flatnonzero(grid == level_text(value))
        return (float(place[0]), float(self.own[0, at])) if len(place) else None


def what_if(
    model: SurvivalModel,
    X: Any,
    features: str | Sequence[str],
    *,
    times: npt.ArrayLike | None = None,
    values: Any = None,
    background: Any = None,
    random_state: int = 0,
) -> WhatIf:
    """Predict patients again with one or two features varied over the range that is usual for them.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    X : DataFrame or array-like
        Patients, such as one of them, or a cohort for partial dependence.
    features : str or sequence of str
        One feature, or two.
    times : array-like or None, default None
        When; None: 40 times up to the last node of the model.
    values : sequence or None, default None
        Values of the (one) feature to try. None: 21 quantiles of the middle 95 % of the comparison patients, 9 of each
        of two features, or all levels.
    background : DataFrame, array or None, default None
        Comparison patients, whose values are usual. None: X itself from 50 patients on, else made-up patients from the
        summary of the training patients that travels with the model.
    random_state : int, default 0
        Seed of made-up patients.

    Returns
    -------
    WhatIf
        Curves of every patient, their mean, accumulated local effects and density.

    Notes
    -----
    Other features stay as they are, so that with strongly correlated features some of these patients are unlikely;
    accumulated local effects move each patient only to the neighbouring values, and do not have this problem. None of
    this says what would happen if somebody changed the feature of a patient.

    References
    ----------
    D. W. Apley and J. Zhu: Visualizing the effects of predictor variables in black box supervised learning models.
    Journal of the Royal Statistical Society B 82 (2020).
    """
    check_is_fitted(model)
    names = [features] if isinstance(features, str) else [str(name) for name in features]
    known = feature_names(model)
    if not 1 <= len(names) <= 2 or any(name not in known for name in names) or len(set(names)) < len(names):
        raise ValueError(f"features is {features!r}, but one or two different features are expected, of {known}.")
    if values is not None and len(names) == 2:
        raise ValueError("values goes with one feature; of two features, both are varied over their usual range.")
    checked = model.check_features(X)
    as_array = not isinstance(checked, pd.DataFrame)
    table = pd.DataFrame(checked, columns=known) if as_array else checked.reset_index(drop=True)
    compared = _compared(model, table, background, random_state, known)
    end = float(model.nodes[-1])
    when = np.linspace(end / _N_TIMES, end, _N_TIMES) if times is None else np.atleast_1d(np.asarray(times, np.float64))
    said = survival_of(model, when)

    def survival(frame: pd.DataFrame) -> FloatArray:
        return said(model.prepare(frame.to_numpy() if as_array else frame))

    size = _GRID if len(names) == 1 else _GRID_OF_TWO
    grid = [_grid(compared[name], size) for name in names] if values is None else [_given(values, compared[names[0]])]
    pairs = list(pd.MultiIndex.from_product(grid))
    curves = np.stack([survival(_with(table, dict(zip(names, pair, strict=True)))) for pair in pairs], axis=1)
    own = survival(table)
    local = None
    if len(names) == 1 and grid[0].dtype.kind == "f" and len(grid[0]) > 1:
        local = _local(compared, names[0], grid[0], survival) + own.mean(axis=0)
    density = [_density(compared[name], one) for name, one in zip(names, grid, strict=True)]
    return WhatIf(
        names, grid, when, curves, own, curves.mean(axis=0), local, density, table[names],
        getattr(model, "time_unit", None),
    )  # fmt: skip


def _compared(model: SurvivalModel, table: pd.DataFrame, given: Any, seed: int, names: list[str]) -> pd.DataFrame:
    if given is None and len(table) >= 50:
        return table.iloc[:_MOST_ROWS]
    found = model.check_features(background_for(model, given, 200, seed).table)
    return pd.DataFrame(found, columns=names) if not isinstance(found, pd.DataFrame) else found.reset_index(drop=True)


def _grid(column: pd.Series, size: int) -> npt.NDArray[Any]:
    """Return the values to try: levels, the few values of a number, or quantiles of the middle."""
    column = column.infer_objects()
    if not is_number(column):
        return np.array(sorted({level_text(value) for value in column.dropna()}), dtype=object)
    known = column.dropna().to_numpy(np.float64)
    distinct = np.unique(known)
    if len(distinct) <= _FEW_VALUES:
        return distinct
    low, high = np.quantile(known, _RANGE)
    return np.linspace(low, high, size)


def _given(values: Any, column: pd.Series) -> npt.NDArray[Any]:
    """Return the values that were asked for; those of a number as numbers, also if all of them are whole."""
    return np.asarray(values, dtype=np.float64 if is_number(column.infer_objects()) else object)


def _with(table: pd.DataFrame, values: dict[str, Any]) -> pd.DataFrame:
    """Return the patients with other values of some features, in columns of the same type."""
    out = table.copy()
    for name, value in values.items():
        own = table[name]
        if isinstance(own.dtype, pd.CategoricalDtype):
            same = [level for level in own.cat.categories if level_text(level) == value]
            out[name] = pd.Categorical([same[0] if same else value] * len(table))
        else:
            out[name] = value
    return out


def _local(table: pd.DataFrame, name: str, grid: FloatArray, survival: Any) -> FloatArray:
    """Return accumulated local effects at the values of a grid, (G, T), of mean 0 over the patients."""
    known = table[table[name].notna()]
    column = known[name].to_numpy(np.float64)
    place = np.clip(np.searchsorted(grid, column), 1, len(grid) - 1) - 1
    near = [np.flatnonzero(place == k) for k in range(len(grid) - 1)]
    count = np.array([len(one) for one in near], dtype=np.float64)[:, None]
    for k in np.flatnonzero(count[:, 0] < _FEWEST):  # a gap in the data is crossed by those next to it
        near[k] = np.argsort(np.abs(column - (grid[k] + grid[k + 1]) / 2), kind="stable")[:_FEWEST]
    rows, cell = np.concatenate(near), np.repeat(np.arange(len(near)), [len(one) for one in near])
    part = known.iloc[rows]
    lower, upper = (survival(part.assign(**{name: grid[cell + shift]})) for shift in (0, 1))
    change = np.zeros((len(near), lower.shape[1]))
    np.add.at(change, cell, upper - lower)
    change /= np.bincount(cell)[:, None]
    effect = np.concatenate([np.zeros((1, lower.shape[1])), np.cumsum(change, axis=0)])
    middle = (effect[1:] + effect[:-1]) / 2
    out: FloatArray = effect - (middle * count).sum(axis=0) / max(float(count.sum()), 1.0)
    return out


def _density(column: pd.Series, grid: npt.NDArray[Any]) -> FloatArray:
    """Return the share of patients near each value."""
    if grid.dtype.kind == "f":
        known = column.dropna().to_numpy(np.float64)
        place = np.searchsorted((grid[1:] + grid[:-1]) / 2, known)
        counts = np.bincount(place, minlength=len(grid)).astype(np.float64)
    else:
        texts = column.dropna().map(level_text)
        counts = np.array([float((texts == level_text(value)).sum()) for value in grid])
    return counts / max(counts.sum(), 1.0)


def _passed(own: Any, grid: npt.NDArray[Any], density: FloatArray) -> FloatArray:
    """Return the share of comparison patients between a patient's value and each value; of categories, 1 if another."""
    if grid.dtype.kind != "f":
        text = level_text(own)
        return np.array([float(level_text(value) != text) for value in grid])
    below = np.cumsum(density) - density / 2
    at = 0.5 if pd.isna(own) else float(np.interp(float(own), grid, below, left=0.0, right=1.0))
    out: FloatArray = np.abs(below - at)
    return out


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, float | np.floating) else value
