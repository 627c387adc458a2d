"""What a metric is prepared for, and what comes of it: values under any number of weightings of the patients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves
from dcsurv.follow_up import FollowUp
from dcsurv.grid import Convention
from dcsurv.metrics.censoring import CensoringEstimate, CensoringModel, WeightsFrom, keep_usable
from dcsurv.metrics.inputs import SortedCohort, check_times, default_horizons, paper_nodes, warn
from dcsurv.nonparametric import last_usable_time, least_at_risk
from dcsurv.target import FloatArray

_AT_A_HORIZON = "calibration at a horizon"


@dataclass(frozen=True)
class Setting:
    """Whose predictions a metric is prepared for: patients, their outcome, their curves.

    Attributes
    ----------
    y : array
        Outcome of the n patients, as :func:`dcsurv.make_outcome` makes it.
    curves : SurvivalCurves
        Their predicted curves, in the same order.
    y_train : outcome or None, default None
        Outcome of the training part; the paper's convention projects curves on its times.
    convention : {"default", "paper"}, default "default"
        How the metrics are to be computed.
    follow_up : FollowUp or None, default None
        Groups within which censoring is estimated; None: one censoring curve for all.
    asked : array-like of float or None, default None
        Horizons that were asked for; None: the quartiles of the event times.
    weights_from : {"test", "train"}, default "test"
        Whose one censoring curve weights the patients where these have no groups: their own, or that of ``y_train``.
    drawn_from : Setting or None, default None
        The setting of the patients' own outcome, if ``y`` was drawn from the curves; see :meth:`redrawn`.
    of_curves : dict, default {}
        What metrics have computed from the curves alone, kept for outcomes that are drawn anew.
    kept : dict, default {}
        What several metrics share.

    Examples
    --------
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import Setting
    >>> cohort = simulate("independent", 200)
    >>> setting = Setting(cohort.y, cohort.truth, asked=[2, 5])
    >>> setting.horizons
    array([2., 5.])
    >>> bool((setting.cohort.time[1:] >= setting.cohort.time[:-1]).all())  # sorted
    True
    """

    y: npt.NDArray[np.void]
    curves: SurvivalCurves
    y_train: Any | None = None
    convention: Convention = "default"
    follow_up: FollowUp | None = None
    asked: npt.ArrayLike | None = None
    weights_from: WeightsFrom = "test"
    drawn_from: Setting | None = field(default=None, repr=False)
    of_curves: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def redrawn(self, y: npt.NDArray[np.void]) -> Setting:
        """Return the same patients, curves and horizons with an outcome that was drawn from the curves.

        Parameters
        ----------
        y : array
            The outcome, in the same order.

        Returns
        -------
        Setting
            For which metrics are prepared as for the patients' own outcome.
        """
        return replace(self, y=y, drawn_from=self, kept={})

    @cached_property
    def cohort(self) -> SortedCohort:
        """The patients sorted by time."""
        return SortedCohort(self.y, min_events=0 if self.drawn_from else 1)

    @cached_property
    def nodes(self) -> FloatArray | None:
        """The times that the paper projects all curves on; None in the default convention."""
        return paper_nodes(self.convention, self.y_train)

    @property
    def paper(self) -> bool:
        """Whether the paper's convention is asked for."""
        return self.convention == "paper"

    @cached_property
    def censoring(self) -> CensoringModel:
        """The censoring weights of the sorted patients."""
        trained = self.y_train if self.weights_from == "train" and not self.paper else None
        return CensoringModel(self.cohort, trained, "at" if self.paper else "before", self.follow_up)

    @cached_property
    def horizons(self) -> FloatArray:
        """The horizons at which these patients allow a calibration; the others are left out with a warning."""
        if self.drawn_from is not None:
            return self.drawn_from.horizons
        asked = default_horizons(self.y) if self.asked is None else check_times(self.asked, "horizons")
        usable = keep_usable(asked, self.censoring, what=_AT_A_HORIZON)
        last = last_usable_time(self.y["time"], self.y["event"])
        if late := [f"{t:g}" for t in usable if t > last]:
            warn(
                f"{_AT_A_HORIZON}: fewer than {least_at_risk(len(self.y))} of these patients are under observation, or "
                f"nearly all of them would have been censored, after {last:g}. What is said of {', '.join(late)} rests "
                "on a few patients; a report and the command line leave such horizons out."
            )
        return usable


@dataclass(frozen=True)
class Weighting:
    """B weightings of the patients of a setting.

    Attributes
    ----------
    setting : Setting
        Whose patients are weighted.
    weight : array of float
        The weights, (B, n), the patients sorted by time as in ``setting.cohort``.
    resampled : bool
        Whether weights count how often a patient was drawn.
    kept : dict, default {}
        What several metrics share.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import Setting, Weighting, find_metric
    >>> cohort = simulate("independent", 200)
    >>> setting = Setting(cohort.y, cohort.truth)
    >>> prepared = find_metric("IBS").prepare(setting)
    >>> prepared.values(Weighting(setting, np.ones((3, 200)), resampled=False)).shape
    (3,)
    """

    setting: Setting
    weight: FloatArray
    resampled: bool
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def censoring(self) -> CensoringEstimate:
        """The censoring probabilities under each weighting."""
        return self.setting.censoring.estimate(self.weight)


@dataclass(frozen=True)
class Prepared:
    """A metric that was prepared for one setting, for any number of weightings of the patients.

    Attributes
    ----------
    values : callable
        Takes a :class:`Weighting` and returns the metric under each weighting, of shape (B,); of a metric with
        horizons, of shape (horizons, B). NaN where it is undefined.
    times : array of float or None, default None
        Times that a metric with censoring weights averages over; None: every patient counts.
    horizons : tuple of float, default ()
        The horizons of a metric that has some, in the order of the values.

    Examples
    --------
    The share of patients with the event, which needs nothing to be prepared but who has had it:

    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import Metric, Prepared, evaluate
    >>> def prepare(setting):
    ...     event = setting.cohort.event
    ...     return Prepared(lambda weighting: weighting.weight @ event / weighting.weight.sum(axis=1))
    >>> own = Metric("Events", "error", "lower", "Share with the event.", "weights count", prepare)
    >>> cohort = simulate("independent", 200)
    >>> bool(evaluate(cohort.y, cohort.truth, metrics=[own])["value"][0] == cohort.y["event"].mean())
    True
    """

    values: Callable[[Weighting], FloatArray]
    times: FloatArray | None = None
    horizons: tuple[float, ...] = ()
