"""A Cox model as a sheet of paper: points for every feature, their sum, and the risk that goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.explanation.background import background_for
from dcsurv.explanation.mixing import feature_names
from dcsurv.messages import short
from dcsurv.models import CoxPH
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RANGE = 0.025, 0.975
_MARKS = 6
_POINTS = 100.0


@dataclass(frozen=True)
class Nomogram:
    """Points of every feature's values, and the risk by some times for a sum of points; from :func:`nomogram`.

    Attributes
    ----------
    points : DataFrame
        Columns ``feature, value, points``: marks on the line of each feature; the most influential feature spans 100
        points. Between two marks of a number, points lie on the straight line.
    risks : DataFrame
        Columns ``time, total, risk``: the risk by each time for a sum of points.
    per_unit : dict of str to float
        Log-hazard of one unit of each number.
    points_per_log_hazard : float
        How many points a log-hazard of one is.
    unit : str or None
        What times are measured in.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.explanation import nomogram
    >>> X, y = load_metabric(labels="measured")
    >>> model = dcsurv.CoxPH().fit(X[["age", "chemotherapy"]], y)
    >>> sheet = nomogram(model, [1826])
    >>> sheet.points.groupby("feature")["points"].max().round().to_dict()
    {'age': 100.0, 'chemotherapy': 44.0}
    """

    points: pd.DataFrame
    risks: pd.DataFrame
    per_unit: dict[str, float]
    points_per_log_hazard: float
    unit: str | None

    def plot(self) -> Figure:
        """Draw it.

        Returns
        -------
        matplotlib.figure.Figure
            One line per feature, the sum of points, and the risk by each time.
        """
        from dcsurv.figures import explanation as draw

        return draw.nomogram(self.points, self.risks, unit=self.unit)


def nomogram(model: CoxPH, times: npt.ArrayLike, *, background: Any = None) -> Nomogram:
    """Turn a Cox model into points per feature and risks per sum of points.

    Parameters
    ----------
    model : CoxPH
        A fitted Cox model, with dcsurv's preprocessing or none.
    times : array-like
        By when the risks are.
    background : DataFrame, array or None, default None
        Patients whose middle 95 % each line spans; None: made-up patients from the summary that travels with the model.

    Returns
    -------
    Nomogram
        Points and risks.
    """
    if not isinstance(model, CoxPH):
        raise ValueError(
            f"model is a {type(model).__name__}, but a nomogram needs a model whose features add up: a CoxPH."
        )
    when = np.unique(np.atleast_1d(np.asarray(times, dtype=np.float64)))
    names = feature_names(model)
    summary = model.summary_
    table = model.check_features(background_for(model, background, 200, 0).table)
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(table, columns=names)
    lines: dict[str, tuple[list[Any], FloatArray]] = {}
    per_unit: dict[str, float] = {}
    for name, part in summary.groupby("feature", sort=False):
        beta = part["coef"].to_numpy()
        if part["level"].notna().any():
            levels = [part["reference"].iloc[0], *part["level"]]
            lines[str(name)] = levels, np.append(0.0, beta)
        else:
            per_unit[str(name)] = float(beta[0])
            marks = _marks(frame[str(name)].to_numpy(np.float64, na_value=np.nan))
            lines[str(name)] = [short(value) for value in marks], marks * beta[0]
    widest = max((float(np.ptp(effect)) for _, effect in lines.values()), default=0.0)
    if widest <= 0:
        raise ValueError("all coefficients of the model are 0: there is nothing to draw.")
    per_log = _POINTS / widest
    rows = [
        {"feature": name, "value": value, "points": (effect - values[1].min()) * per_log}
        for name, values in lines.items()
        for value, effect in zip(*values, strict=True)
    ]
    least = sum(float(effect.min()) for _, effect in lines.values())
    return Nomogram(
        pd.DataFrame(rows), _risks(model, frame, summary, when, least, per_log, rows), per_unit, per_log,
        getattr(model, "time_unit", None),
    )  # fmt: skip


def _marks(values: FloatArray) -> FloatArray:
    """Return round numbers over the middle of the values."""
    known = values[~np.isnan(values)]
    distinct = np.unique(known)
    if len(distinct) <= _MARKS:
        return distinct
    low, high = np.quantile(known, _RANGE)
    step = (high - low) / (_MARKS - 1)
    size = 10.0 ** np.floor(np.log10(step))
    step = size * next(k for k in (1, 2, 5, 10) if k * size >= step)
    return np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step


def _risks(
    model: CoxPH,
    frame: pd.DataFrame,
    summary: pd.DataFrame,
    when: FloatArray,
    least: float,
    per_log: float,
    rows: list[dict[str, Any]],
) -> pd.DataFrame:
    """Return the risk for sums of points, through the model's own prediction of one patient in the middle."""
    one, log_hazard = frame.iloc[[0]].copy(), 0.0
    for name in one.columns:
        part = summary[summary["feature"] == str(name)]
        if len(part) == 0:
            continue
        if part["level"].notna().any():
            one[name] = part["reference"].iloc[0]
        else:
            one[name] = float(frame[name].astype(np.float64).median())
            log_hazard += float(part["coef"].iloc[0] * one[name].iloc[0])
    named = getattr(model, "feature_names_in_", None) is not None
    survival = model.curves_for(one if named else one.to_numpy(), when).values[0]
    top = sum(max(row["points"] for row in rows if row["feature"] == name) for name in {row["feature"] for row in rows})
    totals = np.linspace(0, top, 101)
    hazard = -np.log(np.clip(survival, 1e-300, 1.0))
    out = [
        pd.DataFrame(
            {"time": t, "total": totals, "risk": 1 - np.exp(-h * np.exp(least + totals / per_log - log_hazard))}
        )
        for t, h in zip(when, hazard, strict=True)
    ]
    return pd.concat(out, ignore_index=True)
