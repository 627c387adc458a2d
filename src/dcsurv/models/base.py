"""What everything that predicts survival curves has in common, whatever it was made from."""

from __future__ import annotations

from abc import abstractmethod
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from dcsurv._learn import check_is_fitted
from dcsurv.arithmetic import Arithmetic, Value
from dcsurv.curves import SurvivalCurves
from dcsurv.curves.checks import check_times
from dcsurv.models.as_arithmetic import arithmetic_of
from dcsurv.models.bands import Band, BandArithmetic, BandSources, band_around, sound_band
from dcsurv.models.curve_model import CurveModel, warn_of_late
from dcsurv.models.curve_model import Features as Features
from dcsurv.models.documentation import document_parameters
from dcsurv.models.time_bounds import TimeBounds, TimeInterval
from dcsurv.persistence import Arrays, Header, save
from dcsurv.preprocessing import Population, Ranges
from dcsurv.target import FloatArray, IntArray, Outcome, check_outcome, check_sample_weight


class SurvivalModel(CurveModel):
    """Base of all models: a scikit-learn estimator whose predictions are survival curves.

    Attributes
    ----------
    card_ : dict
        What else should travel with a fitted model and its file, if anybody has set it: plain data for JSON, such as
        the names of the outcome's columns. Never rows of patients.
    follow_up_ : FollowUp or None
        How long the training patients could be followed and which features decide it; None for a model from a file of
        version 0.1.
    population_ : Population or None
        What the features of the training patients look like, in a few numbers and nobody's row: the background of
        :func:`dcsurv.explain`. None for a model from an older file.

    Examples
    --------
    >>> from dcsurv import CoxPH
    >>> from dcsurv.models import SurvivalModel
    >>> isinstance(CoxPH(), SurvivalModel)
    True
    """

    training_summary_: dict[str, Any]
    # How curves meet patients that the model was not trained on, if it has seen any; see predict_interval.
    time_bounds_: TimeBounds | None = None
    population_: Population | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        document_parameters(cls)

    # --- what a model adds --------------------------------------------------------------------------------

    @abstractmethod
    def to_saved(self) -> tuple[Header, Arrays]:
        """Return the whole fitted model for its file.

        Returns
        -------
        header : dict
            Plain data.
        arrays : dict
            Arrays by name.
        """

    def band_sources(self, prepared: Features) -> BandSources:
        """Return what the bands of a chunk of patients are made from, if :attr:`has_band`.

        Parameters
        ----------
        prepared : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        BandSources
            Curves that differ by what they were fitted to.
        """
        raise ValueError(self._no_band())

    def band_arithmetic(self, prepared: Value) -> BandArithmetic:
        """Return what :meth:`band_sources` returns as arithmetic.

        Parameters
        ----------
        prepared : Value
            Prepared features, (n, columns).

        Returns
        -------
        BandArithmetic
            Curves that differ by what they were fitted to.
        """
        raise ValueError(self._no_band())

    def _no_band(self) -> str:
        return (
            f"{type(self).__name__} is one model, and a band needs the spread of several. Fit an ensemble: "
            "dcsurv.CalibratedEnsemble()."
        )

    def arithmetic(self) -> Arithmetic:
        """Return the fitted model as plain arithmetic, from features to curves, to be computed elsewhere.

        Returns
        -------
        Arithmetic
            A graph of few operations; :func:`dcsurv.arithmetic.to_onnx` writes it to a file, and
            :func:`dcsurv.arithmetic.packed` packs it for a browser.
        """
        check_is_fitted(self)
        return arithmetic_of(self)

    @property
    def training_ranges(self) -> Ranges | None:
        """Between which values the features of the training patients lay; None if that is not known."""
        return None if self.population_ is None else self.population_.ranges

    @property
    def has_band(self) -> bool:
        """Whether :meth:`predict_band` can be asked."""
        return False

    @property
    def display_name(self) -> str:
        """What to call the model in a sentence."""
        return type(self).__name__

    @property
    def innermost(self) -> SurvivalModel:
        """The model that was trained, without any later recalibration."""
        return self

    @property
    def recalibrations(self) -> list[Any]:
        """All later recalibrations of the model, oldest first; see :class:`dcsurv.Recalibrated`."""
        return []

    def before_recalibration(self) -> SurvivalModel | None:
        """Return the model as it was before its latest recalibration.

        Returns
        -------
        SurvivalModel or None
            None if it was never recalibrated.
        """
        return None

    def predict_band(self, X: Any, times: npt.ArrayLike | None = None, *, level: float = 0.9) -> Band:
        r"""Predict survival with a confidence band for the true S(t | x), time by time.

        With :math:`H = -\log S`, the two ends at each time are

        .. math:: \sqrt{H_\pm} = \sqrt{H} \pm \sqrt{\left(\sqrt{H}\,(e^{\pm r / 2} - 1)\right)^2
            + \frac{z^2 c}{4 n(t)}}, \qquad r^2 = t_{K-1}^2 \frac{(K-1)^2}{K} s^2 + z^2 v,

        s² the variance of log H over the K models that each left out one fold (the grouped jackknife), v that between
        the families, n(t) the patients behind the risk by t, z and t quantiles of the normal and of Student's
        distribution.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.
        times : array-like or None, default None
            Strictly ascending times; None: the nodes of the curves.
        level : float, default 0.9
            How often, over cohorts and patients, the band is to hold the true survival at a time.

        Returns
        -------
        Band
            Survival, and the two ends of the band.

        Notes
        -----
        The band is about the probability S(t | x) of patients with such features, not about when one of them has the
        event: that is :meth:`predict_interval`. It holds at each time, not for the whole curve at once. The number c
        was chosen in simulations; docs/results/bands has how often the truth was held in others. No band knows of
        patients unlike those of the cohort, or of features that were not measured.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but a share between 0 and 1 is expected, such as 0.9.")
        asked = None if times is None else check_times(times)
        nodes: list[FloatArray] = []

        def ends(chunk: Features) -> FloatArray:
            _, (own, *three) = self.curves_with_band(chunk, asked, level)
            nodes[:] = [own]
            return np.stack(three, axis=1)

        lower, survival, upper = np.moveaxis(self._in_chunks(X, ends, look=3), 1, 0)
        if nodes[0][-1] > self.nodes[-1]:
            warn_of_late(nodes[0][-1], self.nodes[-1])
        return Band(nodes[0], lower, survival, upper)

    def curves_with_band(
        self, prepared: Features, times: FloatArray | None, level: float
    ) -> tuple[SurvivalCurves, Band]:
        """Return the curves of a chunk of patients and the band around them, from one pass over the members.

        Parameters
        ----------
        prepared : array of shape (n, columns)
            Prepared features.
        times : array of shape (T,) or None
            Ascending times of the band; None: the nodes of the curves.
        level : float
            Of the band.
        """
        sources = self.band_sources(prepared)
        curves = sources.center
        asked = curves.times if times is None else times
        reach = sources.relative_reach(asked, level), sources.absolute_reach(asked, level)
        with self.blaming_its_file():
            return curves, sound_band(band_around(asked, curves.evaluate(asked), *reach))

    def predict_interval(
        self, X: Any, confidence: float = 0.9, *, side: Literal["lower", "both"] = "lower"
    ) -> TimeInterval:
        """Predict a time that the patient outlives with a confidence, or two times that hold the event between them.

        Unlike a quantile of the curve, the bound is corrected by how often patients whom the model was not trained on
        had the event before it (conformal risk control, with censoring weights): those left out of each fold of an
        ensemble, those of a recalibration, or those of :meth:`calibrate_interval`.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.
        confidence : float, default 0.9
            Share of patients, averaged over cohorts and patients, whose event lies inside.
        side : {"lower", "both"}, default "lower"
            ``"lower"``: a lower bound only. ``"both"``: half of the rest on either side; an upper bound is infinite
            where patients were not followed long enough to give one.

        Returns
        -------
        TimeInterval
            The bounds; ``lower`` never lies beyond the time by which fewer than a fifth of such patients were followed.

        Notes
        -----
        With patients whom the model never saw, drawn as the new ones are, and known probabilities of being followed,
        the confidence holds in any finite sample. Here the probabilities are estimated, and in an ensemble each curve
        is averaged over all folds while those that are compared leave one out, and the maps saw them: it holds about,
        as the simulations of docs/results/bands show. It holds for patients on average, not for each kind of them.
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence is {confidence}, but a share between 0 and 1 is expected, such as 0.9.")
        if side not in ("lower", "both"):
            raise ValueError(f"side is {side!r}, but 'lower' or 'both' is expected.")
        check_is_fitted(self)
        if self.time_bounds_ is None:
            raise ValueError(
                f"this {type(self).__name__} has not seen how its curves meet patients that it was not trained on. "
                "Show it some, model.calibrate_interval(X, y), or fit a CalibratedEnsemble, which leaves out its own."
            )

        def ends(chunk: Features) -> FloatArray:
            return np.stack(self.interval_of(chunk, confidence, both=side == "both"), axis=1)

        lower, upper = self._in_chunks(X, ends, look=3).T
        return TimeInterval(lower, upper)

    def interval_of(self, prepared: Features, confidence: float, *, both: bool) -> tuple[FloatArray, FloatArray]:
        """Return the bounds of :meth:`predict_interval` for a chunk of patients.

        Parameters
        ----------
        prepared : array of shape (n, columns)
            Prepared features.
        confidence : float
            Of the interval.
        both : bool
            Whether there is an upper bound, too.
        """
        assert self.time_bounds_ is not None
        curves, groups = self.curves_of(prepared), self.groups_of(prepared)
        return self.time_bounds_.interval(curves, groups, 1 - confidence, both=both)

    def calibrate_interval(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Learn the bounds of :meth:`predict_interval` from patients whom the model was not trained on.

        The curves stay as they are. A file keeps 199 levels of survival for either side, and no patients.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.
        y : outcome
            Outcomes of the same patients; see :func:`dcsurv.make_outcome`.
        sample_weight : array-like or None, default None
            One non-negative weight per patient.

        Returns
        -------
        SurvivalModel
            The model itself.
        """
        curves = self.curves_for(X)
        outcome = check_outcome(y, n_rows=len(curves), min_events=1)
        weight = None if sample_weight is None else check_sample_weight(sample_weight, len(outcome))
        self.time_bounds_ = self.bounds_from(outcome, curves, self._in_chunks(X, self.groups_of), weight)
        return self

    def bounds_from(
        self, y: Outcome, curves: SurvivalCurves, groups: IntArray, weight: FloatArray | None
    ) -> TimeBounds:
        """Return bounds of times from curves of patients whom the model was not trained on.

        Parameters
        ----------
        y : structured array
            Checked outcomes.
        curves : SurvivalCurves
            One per patient.
        groups : array of int
            Which patients were followed alike.
        weight : array or None
            One weight per patient.
        """
        return TimeBounds.fit(y, curves.at_own(y["time"]), groups, self.n_groups, weight)

    @property
    def n_groups(self) -> int:
        """How many groups of alike follow-up there are."""
        return 1 if self.follow_up_ is None else len(self.follow_up_.followed_until)

    def score(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the time-dependent concordance index C-td of the curves predicted for X.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.
        y : outcome
            Outcomes of the same patients; see :func:`dcsurv.make_outcome`.
        sample_weight : array-like or None, default None
            One non-negative weight per patient.

        Returns
        -------
        float
            Higher is better; one half is guessing.
        """
        from dcsurv.metrics import concordance_index_td

        return concordance_index_td(y, self.curves_for(X), sample_weight=sample_weight)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file without pickle and without rows of patients; see :func:`dcsurv.load`.

        Parameters
        ----------
        path : str or path-like
            File to write, such as ``model.safetensors``.
        """
        check_is_fitted(self)
        header, arrays = self.to_saved()
        card = getattr(self, "card_", None)
        save(path, type(self).__name__, header if card is None else {**header, "card": card}, arrays)
