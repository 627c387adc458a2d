"""Recalibration for another cohort: a model keeps what it has learnt about ranking, its probabilities are refitted."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.calibration.maps import make_maps
from dcsurv.calibration.recalibrated import Recalibrated
from dcsurv.curves import SurvivalCurves
from dcsurv.follow_up import FollowUp
from dcsurv.metrics import default_horizons, evaluate
from dcsurv.metrics.censoring import Censoring, study_censoring
from dcsurv.metrics.null import N_NULL
from dcsurv.models import SurvivalModel
from dcsurv.models.baseline import thinned
from dcsurv.models.time_units import other_time_unit
from dcsurv.plain import plain
from dcsurv.preprocessing import OutsideTrainingWarning
from dcsurv.target import FloatArray, IntArray, Outcome, check_outcome, fold_indices

_FOLDS = 5
# What is measured before and after.
_METRICS = ("C-td", "IBS", "DDC", "ICI", "O/E")


@dataclass(frozen=True)
class Recalibration:
    """A recalibrated model, and how far it moved.

    Attributes
    ----------
    model : Recalibrated
        Ready to predict and to save.
    patients : int
        Size of the local cohort.
    events : int
        Events in it.
    horizons : array
        Times at which the change is measured, (h,).
    mean_change : array
        Mean over the local patients of the distance between S(t) before and after, at each horizon.
    ratio_before : array
        Observed (Kaplan-Meier, within groups of alike follow-up) over expected risk at each horizon; 1 is perfect.
    ratio_after : array
        The same after. It is in-sample: the map was fitted to these very patients.
    follow_up : FollowUp
        What censoring among the local patients depends on, which the weights of maps and metrics follow.
    y : structured array
        Outcomes of the local patients.
    curves : SurvivalCurves
        Their curves by the model as it was.
    cross_fitted : SurvivalCurves or None
        The same after recalibration, honestly: each patient's curve was mapped by maps fitted to the patients of other
        folds. None where there are too few events for folds.
    before : DataFrame
        Metrics of the model on the local patients, as :func:`dcsurv.metrics.evaluate` gives them.
    after : DataFrame or None
        Those of ``cross_fitted``.

    Examples
    --------
    >>> from dcsurv import CoxPH, recalibrate
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 600)
    >>> model = CoxPH().fit(cohort.X[:300], cohort.y[:300])
    >>> y = cohort.y[300:].copy()
    >>> y["time"] /= 2  # a hospital with worse outcomes
    >>> result = recalibrate(model, cohort.X[300:], y)
    >>> bool((result.ratio_before > 1.3).all()), bool((result.ratio_after < result.ratio_before).all())
    (True, True)
    """

    model: Recalibrated
    patients: int
    events: int
    horizons: FloatArray
    mean_change: FloatArray
    ratio_before: FloatArray
    ratio_after: FloatArray
    follow_up: FollowUp
    y: Outcome
    curves: SurvivalCurves
    cross_fitted: SurvivalCurves | None

    # What a perfect model would score takes longest, so that the tables are made for those who look at them.
    @cached_property
    def before(self) -> pd.DataFrame:
        """Metrics of the model on the local patients."""
        return _measured(self.y, self.horizons, self.follow_up, self.curves)

    @cached_property
    def after(self) -> pd.DataFrame | None:
        """The same after recalibration, honestly; None where there are too few events."""
        if self.cross_fitted is None:
            return None
        return _measured(self.y, self.horizons, self.follow_up, self.cross_fitted)

    def __str__(self) -> str:
        size = f"{self.patients} patient{'' if self.patients == 1 else 's'}"
        lines = [f"Recalibrated on {size} with {self.events} event{'' if self.events == 1 else 's'}."]
        for t, change, before, after in zip(
            self.horizons, self.mean_change, self.ratio_before, self.ratio_after, strict=True
        ):
            lines.append(
                f"By t = {t:g}: survival moved by {change:.3f} on average, observed / expected from {before:.2f} to "
                f"{after:.2f} (on the same patients)."
            )
        return "\n".join(lines)


def recalibrate(
    model: SurvivalModel,
    X_local: Any,
    y_local: Any,
    *,
    maps: Sequence[str] = ("horizon", "rank"),
    name: str | None = None,
    digest: str | None = None,
    horizons: npt.ArrayLike | None = None,
) -> Recalibration:
    """Refit only the maps of a fitted model on a new cohort, such as another hospital's patients.

    The new maps come after those that the model has, and are drawn to the identity in a small cohort: with few
    events the model stays close to what it was, with many it follows them.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model or ensemble. It is not changed.
    X_local : DataFrame or array-like
        Features of patients that the model was not trained on.
    y_local : outcome
        Their outcomes; see :func:`dcsurv.make_outcome`.
    maps : sequence of str, default ("horizon", "rank")
        Names of the maps; see :class:`CalibratedEnsemble`. ``("rank",)`` leaves every ranking exactly as it was.
    name : str or None, default None
        What the patients are called in the model and its file, such as the name of their table.
    digest : str or None, default None
        SHA-256 of their file, by which it is recognised later.
    horizons : array-like or None, default None
        Times at which the change is measured; None: the quartiles of the local event times.

    Returns
    -------
    Recalibration
        The recalibrated model, and what changed.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> model = dcsurv.CoxPH().fit(X[:1000], y[:1000])
    >>> dcsurv.recalibrate(model, X[1000:], y[1000:], name="hospital B").patients
    904
    """
    moved = Recalibrated(model, maps).fit(X_local, y_local)
    # The name belongs to these patients: whoever fits the maps again, to others, gives another one.
    moved.fitted_on_ = replace(moved.fitted_on_, name=name, digest=digest)
    y = check_outcome(y_local)
    before = model.predict_survival_function(X_local)
    if unit := other_time_unit(model, y, before):
        warnings.warn(unit, OutsideTrainingWarning, stacklevel=2)
    found = study_censoring(y, [before], X_local)
    follow_up = found if found.depends else None
    after = moved.curves_for(X_local)
    when = default_horizons(y) if horizons is None else np.unique(np.asarray(horizons, dtype=np.float64))
    survival, mapped = before.evaluate(when), after.evaluate(when)
    crossed = _cross_fitted(y, before, maps, follow_up)
    tables = [
        None if curves is None else _measured(y, when, found, curves, n_null=0) for curves in (before, after, crossed)
    ]
    change = np.abs(mapped - survival).mean(axis=0)
    moved.evaluation_ = {
        "horizons": when.tolist(),
        "mean_change": change.tolist(),
        "before": _rows(tables[0]),
        "after": _rows(tables[2]),
    }
    return Recalibration(
        model=moved,
        patients=len(y),
        events=int(y["event"].sum()),
        horizons=when,
        mean_change=change,
        ratio_before=_ratios(tables[0], when),
        ratio_after=_ratios(tables[1], when),
        follow_up=found,
        y=y,
        curves=before,
        cross_fitted=crossed,
    )


def _measured(
    y: Outcome, horizons: FloatArray, follow_up: FollowUp, curves: SurvivalCurves, n_null: int = N_NULL
) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what cannot be measured is missing from the table
        censoring: Censoring = follow_up if follow_up.depends else "marginal"
        return evaluate(y, curves, censoring=censoring, horizons=horizons, metrics=_METRICS, n_null=n_null)


def _ratios(table: pd.DataFrame | None, horizons: FloatArray) -> FloatArray:
    """Return observed over expected risk at each horizon; NaN where it is not known."""
    assert table is not None
    rows = table[table["metric"] == "O/E"].set_index("horizon")["value"]
    return rows.reindex(horizons).to_numpy(dtype=np.float64)


def _rows(table: pd.DataFrame | None) -> list[dict[str, Any]] | None:
    """Return metrics as plain data; None if there are none."""
    if table is None:
        return None
    rows: list[dict[str, Any]] = plain(table[["metric", "horizon", "value"]].to_dict("records"), finite=True)
    return rows


def _cross_fitted(
    y: Outcome, curves: SurvivalCurves, maps: Sequence[str], follow_up: FollowUp | None
) -> SurvivalCurves | None:
    """Return curves, each mapped by maps that were fitted to the patients of other folds; None with too few events."""
    n_folds = min(_FOLDS, int(y["event"].sum()))
    if n_folds < 2:
        return None
    mapped: list[tuple[IntArray, SurvivalCurves]] = []
    for train, left_out in fold_indices(y, n_folds=n_folds, random_state=0):
        censoring: Censoring = "marginal" if follow_up is None else follow_up.take(train)
        fitted = make_maps(maps).fit(y[train], curves[train], censoring=censoring)
        mapped.append((left_out, fitted.transform(curves[left_out])))
    nodes = np.unique(np.concatenate([part.times for _, part in mapped]))
    nodes = nodes[thinned(len(nodes))]
    values = np.empty((len(y), len(nodes)))
    for rows, part in mapped:
        values[rows] = part.evaluate(nodes)
    return SurvivalCurves(nodes, values, interpolation=curves.interpolation)
