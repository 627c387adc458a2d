"""Groups of patients who could be followed alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic import Value
from dcsurv.follow_up.association import Influence
from dcsurv.follow_up.score import BENDS, CensoringScore
from dcsurv.plain import Count, Finite, NotNegative, Share, declared
from dcsurv.target import FloatArray, IntArray

# Features, or risks, predict censoring if chance would hardly do so. How well does not matter: one small centre whose
# patients were not followed for long hardly shows in a concordance.
P_VALUE = 0.001
# A feature is named if its concordance is above this, and so many at most.
_NAMED_ABOVE, _MOST_NAMED = 0.55, 3


class _Score(msgspec.Struct):
    columns: list[Count]
    knots: list[list[Finite]]
    slopes: list[list[Finite]]
    cuts: list[Finite]


class _State(msgspec.Struct):
    """What a file has to say of follow-up."""

    depends: bool
    concordance: Share | None
    p_value: Share | None
    features: list[tuple[str, Share]]
    followed_until: list[NotNegative]
    score: _Score | None


class RiskTest(NamedTuple):
    """How well the predicted risk predicts who is censored first.

    Attributes
    ----------
    concordance : float
        Share of pairs of patients that it puts in the right order, whichever way round: 0.5 not at all, 1 perfectly.
    p_value : float
        Of Cox's score test of the risk, as a line that may bend, as if censoring were the event; NaN where there is
        nothing to test, such as when all were censored at the end of the study.

    Examples
    --------
    >>> from dcsurv.follow_up import RiskTest
    >>> print(RiskTest(0.614, 0.00002))
    Predicted risk predicts censoring (concordance 0.61, p < 0.001)
    >>> print(RiskTest(0.523, 0.34))
    Predicted risk hardly predicts censoring (concordance 0.52, p = 0.34)
    """

    concordance: float
    p_value: float

    @property
    def depends(self) -> bool:
        """Whether chance would hardly predict censoring so well."""
        return self.p_value < P_VALUE

    def __str__(self) -> str:
        if np.isnan(self.p_value):
            return "There are too few censorings at different times to say whether predicted risk predicts censoring"
        p = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.{2 if self.p_value >= 0.01 else 3}f}"
        verb = "predicts" if self.depends else "hardly predicts"
        return f"Predicted risk {verb} censoring (concordance {self.concordance:.2f}, {p})"


@dataclass(frozen=True)
class FollowUp:
    """Groups of patients who could be followed alike, and until when.

    Made by :func:`study_follow_up` from features, and by :func:`study_risk` from predicted risks. Where these do not
    predict censoring there is one group.

    Attributes
    ----------
    depends : bool
        Whether the features, or risks, predict censoring, so that there are several groups.
    concordance : float
        Of a score of all features, cross-fitted, with the order in which patients were censored; NaN where there were
        too few to say.
    p_value : float
        Of a test that chance alone would predict censoring so well; NaN where there were too few to say.
    features : tuple of Influence
        The features that predict censoring best, each alone, best first.
    groups : array of int
        Group of each patient that it was made from, 0, 1, ...; empty if it comes from a file.
    followed_until : array of float
        Of each group, the last time by which at least 5 % would not have been censored.
    score : CensoringScore or None, default None
        By which other patients are put into groups; None: there is one group.
    by : {"features", "risk"}, default "features"
        What the groups are made of.
    risk : RiskTest or None, default None
        How predicted risk predicts censoring, where curves were there.

    Examples
    --------
    >>> from dcsurv import study_follow_up
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("staggered", 1000)
    >>> found = study_follow_up(cohort.X, cohort.y)
    >>> found.depends
    True
    >>> found.describe()
    'enrolled (concordance 0.9...) predicts censoring.'
    >>> len(found.groups), len(found.followed_until) > 1
    (1000, True)
    """

    depends: bool
    concordance: float
    p_value: float
    features: tuple[Influence, ...]
    groups: IntArray
    followed_until: FloatArray
    score: CensoringScore | None = field(default=None, repr=False)
    by: Literal["features", "risk"] = "features"
    risk: RiskTest | None = None

    def assign(self, X: npt.NDArray[Any]) -> IntArray:
        """Return the group of other patients.

        Parameters
        ----------
        X : array of float
            Their columns as numbers, as a model's preprocessing makes them.

        Returns
        -------
        array of int
            One group per patient.
        """
        if self.score is None:
            return np.zeros(len(X), dtype=np.int64)
        return np.searchsorted(self.score.cuts, self.score(X))

    def arithmetic(self, X: Value) -> Value:
        """Return what :meth:`assign` computes as arithmetic.

        Parameters
        ----------
        X : Value
            Columns of n patients as numbers.

        Returns
        -------
        Value
            One group per patient, (n, 1).
        """
        if self.score is None:
            return X.take([0]) * 0.0
        return self.score.arithmetic(X).count(self.score.cuts, below=True)

    def followed_to(self, X: npt.NDArray[Any]) -> FloatArray:
        """Return until when patients with such features were followed.

        The last time by which at least 5 % of them would not have been censored. What a model says about later times
        it has learnt from other patients.

        Parameters
        ----------
        X : array of float
            Columns of n patients as numbers, as a model's preprocessing makes them.

        Returns
        -------
        array of float
            One time per patient, (n,).
        """
        return self.followed_until[self.assign(X)]

    def take(self, rows: npt.NDArray[Any]) -> FollowUp:
        """Return the same for some of the patients that it was made from.

        Parameters
        ----------
        rows : array of int or bool
            Which patients.

        Returns
        -------
        FollowUp
            With the groups of these patients.
        """
        return replace(self, groups=self.groups[rows])

    def describe(self) -> str:
        """Say what decides how long a patient could be followed, in one sentence; "" if nothing does."""
        if not self.depends:
            return ""
        if self.by == "risk":
            return f"{self.describe_risk()}."
        named = [one for one in self.features if one.concordance >= _NAMED_ABOVE][:_MOST_NAMED]
        if not named:
            first = f" (most of all {self.features[0].feature})" if self.features else ""
            return f"all features together{first} predict censoring: concordance {self.concordance:.2f}."
        parts = [f"{one.feature} (concordance {one.concordance:.2f})" for one in named]
        listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
        return f"{listed} predict{'s' if len(parts) == 1 else ''} censoring."

    def describe_risk(self) -> str:
        """Say how predicted risk predicts censoring, without a full stop; "" where there is nothing to say."""
        if self.risk is None or np.isnan(self.risk.p_value):
            return ""
        return str(self.risk)

    def get_state(self) -> dict[str, Any]:
        """Return what a model file keeps: plain numbers, no rows of patients.

        Returns
        -------
        dict
            Plain data, for :meth:`from_state`.
        """
        return {
            "depends": self.depends,
            "concordance": None if np.isnan(self.concordance) else self.concordance,
            "p_value": None if np.isnan(self.p_value) else self.p_value,
            "features": [[one.feature, one.concordance] for one in self.features],
            "followed_until": self.followed_until.tolist(),
            "score": None if self.score is None else {k: part.tolist() for k, part in vars(self.score).items()},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], n_columns: int) -> FollowUp:
        """Rebuild from a model file.

        Parameters
        ----------
        state : dict
            What :meth:`get_state` returned.
        n_columns : int
            How many columns of numbers the model has.

        Returns
        -------
        FollowUp
            The same groups, without the patients.
        """
        declared(state, _State)
        until = np.asarray(state["followed_until"], dtype=np.float64)
        score = None
        if state["score"] is not None:
            saved = state["score"]
            parts = {name: np.asarray(saved[name], dtype=np.float64) for name in ("knots", "slopes", "cuts")}
            score = CensoringScore(np.asarray(saved["columns"], dtype=np.int64), **parts)
            used = (len(score.columns),)
            sound = (
                score.columns.shape == used
                and ((score.columns >= 0) & (score.columns < n_columns)).all()
                and score.knots.shape == (*used, len(BENDS))
                and score.slopes.shape == (*used, 1 + len(BENDS))
                and all(np.isfinite(part).all() for part in parts.values())
                and (np.diff(score.cuts) > 0).all()
            )
            if not sound:
                raise ValueError("the score of follow-up does not fit the columns of the model.")
        if until.shape != (1 if score is None else len(score.cuts) + 1,) or not np.isfinite(until).all():
            raise ValueError("every group of follow-up needs a finite time until which it was followed.")
        known = {name: np.nan if state[name] is None else float(state[name]) for name in ("concordance", "p_value")}
        return cls(
            bool(state["depends"]),
            known["concordance"],
            known["p_value"],
            features=tuple(Influence(str(name), float(value)) for name, value in state["features"]),
            groups=np.zeros(0, dtype=np.int64),
            followed_until=until,
            score=score,
        )
