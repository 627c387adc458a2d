"""Models that are fitted to a table of patients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.follow_up import FollowUp, study_follow_up
from dcsurv.kinds import missing_methods
from dcsurv.models.base import Features
from dcsurv.models.curve_parts import CurveParts
from dcsurv.models.saved_model import SavedModel
from dcsurv.preprocessing import Population
from dcsurv.target import FloatArray, IntArray, Outcome, check_groups, check_outcome, check_sample_weight


@dataclass(kw_only=True, repr=False, eq=False)
class SurvivalEstimator(SavedModel):
    """Base of the models that are fitted to features and outcomes.

    A model of one's own is a dataclass that derives from this class and adds :meth:`fit_prepared`, :attr:`nodes`,
    :meth:`survival_at_nodes`, :meth:`get_state` and :meth:`set_state`.

    Examples
    --------
    >>> from dcsurv import DCS
    >>> from dcsurv.models import SurvivalEstimator
    >>> issubclass(DCS, SurvivalEstimator)
    True
    """

    # --- what a model adds --------------------------------------------------------------------------------

    @abstractmethod
    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        """Fit to checked and preprocessed data.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        y : structured array
            Checked outcomes.
        weight : array or None
            One weight per patient, of mean 1; None is 1 for everybody.

        Returns
        -------
        dict
            A summary of training in plain data; ``training_summary_`` keeps it.
        """

    @abstractmethod
    def survival_at_nodes(self, X: Features) -> npt.NDArray[Any]:
        """Return S at the nodes for a chunk of patients.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        array of shape (n, T)
            S at :attr:`nodes`.
        """

    # --- fitting ------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient.
        y : outcome
            Outcomes of the same patients; see :func:`dcsurv.make_outcome`.
        sample_weight : array-like or None, default None
            One non-negative weight per patient.
        groups : array-like or None, default None
            A label per row that rows of one patient, or family, share: they stay together where a model divides the
            rows, into folds or for early stopping. Without labels, every row is a patient of its own.

        Returns
        -------
        SurvivalEstimator
            The model itself.
        """
        self._begin()
        features = self._check_new_features(X)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Build it with "
                "dcsurv.make_outcome(time, event)."
            )
        if len(features) < 2:
            raise ValueError("X has 1 sample (n_samples=1), but a model needs at least two patients.")
        outcome = check_outcome(y, n_rows=len(features), min_events=1)
        weight = None if sample_weight is None else check_sample_weight(sample_weight, len(features))
        if weight is not None and not weight[outcome["event"]].any():
            raise ValueError("sample_weight is zero for every patient with an event; at least one must count.")
        together = check_groups(groups, len(features))
        prepared = self._fit_preprocessing(features, outcome)
        names = self._feature_of_each_column(prepared.shape[1])
        follow_up = study_follow_up(prepared, outcome, names=names, sample_weight=weight)
        self.follow_up_ = follow_up
        self._train(prepared, outcome, weight, together)
        # Which patients were followed alike is of no use any more, and would be a number for every one of them.
        self.follow_up_ = follow_up.take(np.zeros(0, dtype=np.int64))
        self.population_ = Population.of(features)
        return self

    def fit_member(
        self,
        X: Features,
        y: Outcome,
        weight: FloatArray | None = None,
        follow_up: FollowUp | None = None,
        groups: IntArray | None = None,
    ) -> Self:
        """Fit to checked and prepared data as a part of another model, which knows preprocessing and follow-up.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        y : structured array
            Checked outcomes.
        weight : array or None, default None
            One weight per patient.
        follow_up : FollowUp or None, default None
            How long these patients could be followed, if it is to matter.
        groups : array of int or None, default None
            Rows that belong together.
        """
        self.begin_member(X.shape[1])
        self.follow_up_ = follow_up
        self._train(X, y, weight, groups)
        self.follow_up_ = None
        return self

    def begin_member(self, n_columns: int) -> None:
        """Forget an earlier fit, before a fit as a part of another model.

        Parameters
        ----------
        n_columns : int
            Of the prepared features.
        """
        self._begin()
        self.n_features_in_ = n_columns
        self.preprocessor_ = None
        self.follow_up_ = None

    def end_training(self, y: Outcome, summary: dict[str, Any], *, weighted: bool) -> None:
        """Keep what there is to say of a training that has ended.

        Parameters
        ----------
        y : structured array
            Outcomes that the model was trained on.
        summary : dict
            What :meth:`fit_prepared` returns.
        weighted : bool
            Whether the patients had weights.
        """
        self.training_summary_ = {
            "patients": len(y),
            "events": int(y["event"].sum()),
            "last_time": float(y["time"].max()),
            "median_time": float(np.median(y["time"])),
            "weighted": weighted,
            **summary,
        }
        self.fitted_parameters_ = self._parameter_texts()

    def fit_encoding(self, X: Any, y: Outcome) -> Features:
        """Fit the preprocessing alone, for searches that share it.

        Parameters
        ----------
        X : DataFrame or array-like
            Features.
        y : structured array
            Checked outcomes.

        Returns
        -------
        array of shape (n, columns)
            The prepared features.
        """
        return self._fit_preprocessing(self._check_new_features(X), y)

    def _begin(self) -> None:
        if missing := missing_methods(type(self)):
            raise ValueError(f"{type(self).__name__} cannot be fitted: its class lacks {' and '.join(missing)}.")
        self.check_parameters()
        self.check_types()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # a fit that fails must not leave a mixture of two models

    def _train(self, X: Features, y: Outcome, weight: FloatArray | None, groups: IntArray | None) -> None:
        if weight is not None:
            weight = weight / weight.mean()  # only ratios matter, also to penalties and to sums over pairs
        # Rows of one patient, for models that divide the rows; of no use afterwards, like the patients' follow-up.
        self.row_groups_: IntArray | None = groups
        self.end_training(y, self.fit_prepared(X, y, weight), weighted=weight is not None)
        self.row_groups_ = None

    def survival_at(self, X: Features, times: FloatArray) -> FloatArray:
        """Return S at any times for a chunk of patients, as an ensemble asks for it.

        A model that can do so without the curves at all of its nodes overrides this.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        times : array of shape (T,)
            Ascending times.

        Returns
        -------
        array of shape (n, T)
            Survival.
        """
        return self.curves_of(X).evaluate(times)

    @classmethod
    def survival_of(cls, members: Sequence[Any], X: Features, times: FloatArray) -> Iterator[FloatArray]:
        """Yield S of each of some fitted models of this class, as an ensemble asks for it.

        A class whose models can share some of the work overrides this.

        Parameters
        ----------
        members : sequence of SurvivalEstimator
            The models.
        X : array of shape (n, columns)
            Prepared features.
        times : array of shape (T,)
            Ascending times.

        Yields
        ------
        array of shape (T, n)
            Survival by one model, one row per time.
        """
        for member in members:
            yield np.ascontiguousarray(member.survival_at(X, times).T)

    def curve_parts(self, prepared: Features) -> CurveParts:
        """Return what the curves of a chunk of patients are made of."""
        return CurveParts(self.nodes, self.survival_at_nodes(prepared), self.interpolation)

    # --- the same as arithmetic ---------------------------------------------------------------------------

    def survival_arithmetic(self, prepared: Value) -> Value:
        """Return S at the nodes as arithmetic: the operations of :meth:`survival_at_nodes` on values of a graph.

        A model that has it can be computed by other programs; see :meth:`arithmetic`.

        Parameters
        ----------
        prepared : Value
            Prepared features, (n, columns).

        Returns
        -------
        Value
            S at :attr:`nodes`, (n, T).
        """
        return super().curve_arithmetic(prepared).survival  # refuses, in words

    def survival_arithmetic_at(self, prepared: Value, times: FloatArray) -> Value:
        """Return S at known times as arithmetic: the operations of :meth:`survival_at`.

        Parameters
        ----------
        prepared : Value
            Prepared features, (n, columns).
        times : array of shape (T,)
            Ascending times.

        Returns
        -------
        Value
            Survival, (n, T).
        """
        return self.curve_arithmetic(prepared).read(times)

    def curve_arithmetic(self, prepared: Value) -> ReadableCurves:
        """Return the curves of patients as arithmetic."""
        return ReadableCurves(self.nodes, self.survival_arithmetic(prepared), self.interpolation)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "training_summary_")  # set when a fit has ended well
