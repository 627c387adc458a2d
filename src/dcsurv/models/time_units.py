"""Whether times of new patients are in another unit than those that a model learned."""

from __future__ import annotations

import math

import numpy as np

from dcsurv.curves import SurvivalCurves
from dcsurv.durations import DAYS_IN, find_unit
from dcsurv.messages import short
from dcsurv.models.base import SurvivalModel
from dcsurv.nonparametric import kaplan_meier
from dcsurv.target import Outcome

# How far from a factor between two units both the median and the longest time may lie.
_TOLERANCE = math.log(2.0)


def other_time_unit(model: SurvivalModel, y: Outcome, curves: SurvivalCurves) -> str:
    """Say whether times look like another unit than that of the model.

    Median and longest time differ from those of training by a factor that lies between two units, and in the other unit
    the predictions agree better with what was observed; patients who were only followed for less time do not.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    y : structured array
        Outcomes of the new patients.
    curves : SurvivalCurves
        What the model predicts for them.

    Returns
    -------
    str
        A sentence, or nothing.
    """
    trained = model.training_summary_
    last, middle = trained.get("last_time"), trained.get("median_time")  # older files have no median
    if not last or not y["event"].any():
        return ""
    ratios = [float(y["time"].max()) / last] + ([float(np.median(y["time"])) / middle] if middle else [])
    if min(ratios) <= 0:
        return ""
    unit = find_unit(model.time_unit)
    pairs = [
        (DAYS_IN[learnt] / DAYS_IN[given], given, learnt)
        for learnt in DAYS_IN
        for given in DAYS_IN
        if given != learnt and unit in (None, learnt)
    ]
    distance, factor, given, learnt = min(
        (max(abs(math.log(ratio / factor)) for ratio in ratios), factor, given, learnt)
        for factor, given, learnt in pairs
    )
    # Where half of the events have happened, so that survival is neither 0 nor 1.
    t = float(np.median(y["time"][y["event"]]))
    observed = float(kaplan_meier(y)(np.array([t]))[0])
    as_given, converted = (abs(float(curves.evaluate(np.array([at])).mean()) - observed) for at in (t, t / factor))
    if distance > _TOLERANCE or converted >= as_given:
        return ""
    size = f"{short(factor)} times larger" if factor > 1 else f"{short(1 / factor)} times smaller"
    words = f"they look like {given}, the model learned {learnt}" if unit else "they look like another unit"
    return (
        f"The times are about {size} than those of training (longest {short(float(y['time'].max()))} against "
        f"{short(float(last))}): {words}. Convert them first, or what is found here means nothing."
    )
