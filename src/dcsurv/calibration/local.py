"""Recalibration for another cohort: a model keeps what it has learnt about ranking, its probabilities are refitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dcsurv.calibration.ensemble import CalibratedEnsemble, make_maps, with_map
from dcsurv.curves import SurvivalCurves
from dcsurv.follow_up import FollowUp
from dcsurv.metrics import default_horizons
from dcsurv.metrics.calibration import IntegratedCalibration
from dcsurv.metrics.censoring import CensoringModel, resolve_follow_up
from dcsurv.metrics.inputs import SortedCohort
from dcsurv.models.base import SurvivalEstimator
from dcsurv.target import FloatArray, check_outcome


@dataclass(frozen=True)
class Recalibration:
    """A recalibrated model, and how far it moved.

    Attributes
    ----------
    model
        Ready to predict and to save.
    patients, events
        Size of the local cohort.
    horizons
        Quartiles of the local event times, (h,).
    mean_change
        Mean over the local patients of ``|S'(t) - S(t)|`` at each horizon.
    ratio_before, ratio_after
        Observed (Kaplan-Meier, within groups of alike follow-up) over expected risk at each horizon; 1 is perfect. The
        one after is in-sample: the map was fitted to these very patients.
    """

    model: CalibratedEnsemble
    patients: int
    events: int
    horizons: FloatArray
    mean_change: FloatArray
    ratio_before: FloatArray
    ratio_after: FloatArray

    def __str__(self) -> str:
        lines = [f"Recalibrated on {self.patients} patients with {self.events} events."]
        for t, change, before, after in zip(
            self.horizons, self.mean_change, self.ratio_before, self.ratio_after, strict=True
        ):
            lines.append(
                f"By t = {t:g}: survival moved by {change:.3f} on average, observed / expected from {before:.2f} to "
                f"{after:.2f} (on the same patients)."
            )
        return "\n".join(lines)


def recalibrate(
    model: SurvivalEstimator, X_local: Any, y_local: Any, *, maps: Sequence[str] = ("horizon", "rank")
) -> Recalibration:
    """Refit only the maps of a fitted model on a new cohort, such as another hospital's patients.

    The new maps come after those that the model has, and are drawn to the identity in a small cohort: with few
    events the model stays close to what it was, with many it follows them.

    Parameters
    ----------
    model
        A fitted model or ensemble. It is not changed.
    X_local, y_local
        Features and outcomes of patients that the model was not trained on.
    maps
        Names of the maps; see :class:`CalibratedEnsemble`. ``("rank",)`` leaves every ranking exactly as it was.
    """
    if not isinstance(model, SurvivalEstimator):
        raise ValueError(
            f"model is a {type(model).__name__}, but a fitted model of dcsurv is expected. Curves of other models can "
            "be recalibrated with HorizonMap and RankPreservingMap."
        )
    check_is_fitted(model)
    before = model.predict_survival_function(X_local)
    y = check_outcome(y_local, n_rows=len(before), min_events=1)
    follow_up = resolve_follow_up("auto", X_local, y)
    fitted = make_maps(maps).fit(y, before, censoring=follow_up or "marginal")
    moved = with_map(model, fitted)
    after = moved.predict_survival_function(X_local)
    horizons = default_horizons(y)
    survival, mapped = before.evaluate(horizons), after.evaluate(horizons)
    ratios = [_ratios(y, curves, horizons, follow_up) for curves in (before, after)]
    return Recalibration(
        model=moved,
        patients=len(y),
        events=int(y["event"].sum()),
        horizons=horizons,
        mean_change=np.abs(mapped - survival).mean(axis=0),
        ratio_before=ratios[0],
        ratio_after=ratios[1],
    )


def _ratios(y: Any, curves: SurvivalCurves, horizons: FloatArray, follow_up: FollowUp | None) -> FloatArray:
    """Return observed over expected risk at each horizon; infinite where nothing was expected, NaN where unknown."""
    cohort = SortedCohort(y)
    model = CensoringModel(cohort, None, "before", follow_up)
    weight = cohort.weights(None)
    out = []
    for t in horizons:
        observed, expected = IntegratedCalibration(curves, float(t), model).shares(weight, model.estimate(weight))
        out.append(observed[0] / expected[0] if expected[0] > 0 else np.where(np.isnan(expected[0]), np.nan, np.inf))
    return np.array(out, dtype=np.float64)
