"""What models have in common whose patients differ by a sum of effects, one per column, that may bend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import pandas as pd

from dcsurv._learn import check_is_fitted
from dcsurv.arithmetic import Value
from dcsurv.models.base import Features
from dcsurv.models.bends import Bends, bends_arithmetic, find_bends, from_arrays, place_knots, to_arrays
from dcsurv.models.cox_summary import model_columns
from dcsurv.models.drawn import representatives
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.penalised import PenalisedFit, Penalties
from dcsurv.models.ranges import NoneOr, Number, Range, WholeNumber
from dcsurv.nonparametric import StepFunction, breslow
from dcsurv.persistence import Arrays, Header, read_array
from dcsurv.plain import Finite, declared
from dcsurv.target import BoolArray, FloatArray, IntArray, Outcome

# Three knots, one more for every so many events, and no more than six.
_EVENTS_PER_KNOT, _MOST_KNOTS = 50, 6
# With more columns than this, or than half the patients, effects are straight; there are so many bends in all.
_MOST_BENT, _MOST_BENDS = 150, 200
# With more straight effects than this, or than patients, those along the longest principal axes are found: as many.
# Newton's steps take the cube of their number.
_MOST_AXES = 1000
# Beyond the training patients' values an effect goes on for this share of their range, and is held then.
_MARGIN = 0.25
# Where an effect is held is kept to a multiple of this, in the units of prepared columns: standard deviations.
_COARSE = 0.25
# Penalties from a prior standard deviation of 10 to coefficients of a hundredth (bends: a thousandth) of their size
# without a penalty, for which a penalty of one per event is a half.
_LEAST_PENALTY, _MOST_PENALTY = 0.01, (100.0, 1000.0)
# Few events cannot tell a bend from chance. With fewer than the first number, bends are penalised more than straight
# effects; how much at least where straight effects are penalised away fades around the second.
_EVENTS_TO_BEND, _EVENTS_TO_BEND_FREELY = 300.0, 150.0

# A few hundred coefficients are as sure with the events among so many patients as anybody will ask for.
_MOST_PATIENTS = 30_000
# With more than twice as many patients, coefficients and penalties are first found with every so manieth.
_FIRST_PATIENTS = 10_000

# A file that tells of more columns than this is damaged, and would fill the memory.
_MOST_COLUMNS = 10_000_000
_OF_COLUMNS = "coef_", "center_", "scale_", "lower_", "upper_"


class _Summary(msgspec.Struct):
    penalties: dict[str, Finite]
    degrees_of_freedom: dict[str, Finite]
    log_likelihood: Finite | None


class _State(msgspec.Struct):
    """What the header of a file has to say of effects."""

    training: _Summary


@dataclass(frozen=True)
class EffectTerms:
    """What the coefficients of effects are found with.

    Attributes
    ----------
    terms
        Scaled columns that vary, then their bends, (n, terms).
    group
        0 for straight terms, 1 for bends, (terms,).
    penalties
        Of these groups.
    varying
        Columns that are not constant.
    bends
        Of these, where they have any.
    axes
        If there were very many terms: the directions that ``terms`` holds instead, (columns, terms).
    """

    terms: FloatArray
    group: IntArray
    penalties: Penalties
    varying: IntArray
    bends: list[Bends]
    axes: FloatArray | None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the groups."""
        return ("straight", "bends")[: len(self.penalties.start)]


@dataclass(kw_only=True, repr=False, eq=False)
class AdditiveEstimator(SurvivalEstimator):
    """Base of the models with effects Σ β_j x_j + b_j(x_j), b_j a natural cubic spline.

    Parameters
    ----------
    knots : int or None, default None
        Of each spline; fewer than 3 leave all effects straight. None takes 3 to 6, one for every 50 events.
    penalty : float or None, default None
        Of straight effects: half of it times the sum of the squared coefficients, of columns in standard deviations (of
        two values: in halves of their distance), is taken from the log likelihood. None lets the data choose.
    bend_penalty : float or None, default None
        The same for the bends, each of which has a standard deviation of at most 1. None lets the data choose.
    strength : float, default 1.0
        What penalties that the data choose are multiplied by.
    strongest : int or None, default None
        Only so many columns have an effect: those that alone go along most with the outcome, by the score test of Cox's
        model. They are chosen from the patients that the model is fitted to. None takes all.
    """

    knots: int | None = None
    penalty: float | None = None
    bend_penalty: float | None = None
    strength: float = 1.0
    strongest: int | None = None

    ranges: ClassVar[dict[str, Range]] = {
        "knots": NoneOr(WholeNumber(0)),
        "penalty": NoneOr(Number(above=0)),
        "bend_penalty": NoneOr(Number(above=0)),
        "strength": Number(above=0),
        "strongest": NoneOr(WholeNumber(1)),
    }

    # --- fitting ------------------------------------------------------------------------------------------

    def effect_terms(self, columns: FloatArray, time: FloatArray, event: BoolArray, weight: FloatArray) -> EffectTerms:
        """Learn units, ranges and bends of the columns, and return what their coefficients are found with.

        Parameters
        ----------
        columns
            Of the patients who count, (n, p).
        time, event
            Their outcomes.
        weight
            Their weights, of mean 1.
        """
        events = int(event.sum())
        self._fit_scale(columns, weight)
        scaled = (columns - self.center_) / self.scale_
        varying = np.flatnonzero(self.upper_ > self.lower_)
        if self.strongest is not None:
            varying = _strongest(scaled, varying, time, event, weight, int(self.strongest))
        bends = self._find_bends(scaled, varying, weight, events)
        n, p = len(scaled), len(varying) + sum(one.mix.shape[1] for one in bends)
        terms = np.empty((n, p))
        terms[:, : len(varying)] = scaled[:, varying]
        end = len(varying)
        for one in bends:
            terms[:, end : end + one.mix.shape[1]] = one(scaled[:, one.column])
            end += one.mix.shape[1]
        axes = None
        if len(varying) == p > min(n, _MOST_AXES):  # one penalty on all of them: any axes will do
            terms, axes = _turned(terms)
        per_event = events * max(1.0, p / max(terms.shape[1], 1))  # a penalty that halves coefficients, roughly
        group = (np.arange(terms.shape[1]) >= len(varying)).astype(np.int64)
        return EffectTerms(terms, group, self._penalties(per_event, events, 1 + bool(bends)), varying, bends, axes)

    def keep_effects(self, design: EffectTerms, coef: FloatArray) -> None:
        """Keep the effects that have these coefficients, one per term."""
        if design.axes is not None:
            coef = design.axes @ coef
        straight = len(design.varying)
        self.used_ = design.varying
        self.coef_ = np.zeros(len(self.scale_))
        self.coef_[design.varying] = coef[:straight] / self.scale_[design.varying]
        ends = straight + np.cumsum([one.mix.shape[1] for one in design.bends], dtype=np.int64)
        self.bends_ = [
            one.summed(coef[end - one.mix.shape[1] : end]) for one, end in zip(design.bends, ends, strict=True)
        ]

    def keep_summary(self, names: Sequence[str], found: PenalisedFit | None, log_likelihood: float | None) -> Header:
        """Keep what the penalties of named groups left, and return it as plain data."""
        summary: Header = {"penalties": {}, "degrees_of_freedom": {}, "log_likelihood": log_likelihood}
        if found is not None:
            summary["penalties"] = dict(zip(names, found.penalty.tolist(), strict=True))
            summary["degrees_of_freedom"] = dict(zip(names, found.freedom.tolist(), strict=True))
        self._set_summary(summary)
        return summary

    def _fit_scale(self, columns: FloatArray, weight: FloatArray) -> None:
        """Learn the centre, the unit and the range of each column."""
        share = weight / weight.sum()
        low, high = columns.min(axis=0), columns.max(axis=0)
        self.center_ = share @ columns
        spread = np.sqrt(share @ (columns - self.center_) ** 2)
        # The unit of two values does not depend on how rare one of them is: an effect of a rare one is no larger.
        two = ((columns == low) | (columns == high)).all(axis=0)
        self.scale_ = np.where(two, (high - low) / 2, spread)
        self.scale_[~(self.scale_ > 0)] = 1.0
        margin = _MARGIN * (high - low)
        # Coarse, and outwards: the smallest and the largest value are those of one patient.
        self.lower_ = np.floor((low - margin) / _COARSE) * _COARSE
        self.upper_ = np.ceil((high + margin) / _COARSE) * _COARSE

    def _find_bends(self, scaled: FloatArray, varying: IntArray, weight: FloatArray, events: int) -> list[Bends]:
        count = min(3 + events // _EVENTS_PER_KNOT, _MOST_KNOTS) if self.knots is None else int(self.knots)
        width = scaled.shape[1] if self.strongest is None else len(varying)
        if width > min(_MOST_BENT, len(scaled) // 2) or count < 3:
            return []
        if self.knots is None:
            count = min(count, 2 + max(_MOST_BENDS // max(len(varying), 1), 1))
        found = []
        for k in varying:
            x = np.ascontiguousarray(scaled[:, k])
            one = find_bends(x, int(k), place_knots(np.sort(x), count), weight)
            if one is not None:
                found.append(one)
        return found

    def _penalties(self, per_event: float, events: int, groups: int) -> Penalties:
        given = [self.penalty, self.bend_penalty][:groups]
        most = [one * per_event for one in _MOST_PENALTY]
        return Penalties(
            start=per_event * np.array([0.1, 1.0])[:groups],
            lower=np.array([_LEAST_PENALTY if one is None else float(one) for one in given]),
            upper=np.array([top if one is None else float(one) for one, top in zip(given, most, strict=False)]),
            ratio=_EVENTS_TO_BEND / events,
            most=events * (_EVENTS_TO_BEND_FREELY / events) ** 3,
            strength=float(self.strength),
        )

    # --- effects ------------------------------------------------------------------------------------------

    def partial_effects(self, X: Any) -> pd.DataFrame:
        """Return what each column adds to the sum of effects of patients, against the average of the training patients.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient; to see the shape of an effect, one patient with several values.

        Returns
        -------
        DataFrame
            One row per patient, one column per column after preprocessing.
        """
        check_is_fitted(self)
        names = [one.name for one in self._names()]
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(self.effects(self.prepare(X)), columns=names, index=index)

    def _names(self) -> Any:
        return model_columns(self.preprocessor_, getattr(self, "feature_names_in_", None), len(self.coef_))

    def effects(self, X: Features | FloatArray) -> FloatArray:
        """Return the effect of each prepared column, values far from the training patients' held, (n, p)."""
        # One row per column, whose values then lie side by side.
        held = np.clip(X.T.astype(np.float64, order="C"), self.lower_[:, None], self.upper_[:, None])
        held -= self.center_[:, None]
        out: FloatArray = held * self.coef_[:, None]
        for one in self.bends_:
            out[one.column] += one(held[one.column] / self.scale_[one.column])[:, 0]
        return out.T

    def sum_of_effects(self, X: Features | FloatArray) -> FloatArray:
        """Return the sum of the effects of prepared columns, (n,); of a few among very many, only those are read."""
        if self.strongest is None:
            return self.effects(X).sum(axis=1)
        out = np.zeros(len(X))
        bends = {one.column: one for one in self.bends_}
        for k in self.used_:
            held = np.clip(X[:, k].astype(np.float64), self.lower_[k], self.upper_[k]) - self.center_[k]
            out += held * self.coef_[k]
            if k in bends:
                out += bends[k](held / self.scale_[k])[:, 0]
        return out

    def effects_arithmetic(self, prepared: Value) -> Value:
        """Return :meth:`sum_of_effects` as arithmetic, (n, 1)."""
        used = np.union1d(np.flatnonzero(self.coef_), [one.column for one in self.bends_]).astype(np.int64)
        if not len(used):
            return prepared.take([0]) * 0.0
        held = prepared.take(used).at_least(self.lower_[used]).at_most(self.upper_[used]) - self.center_[used]
        out = held @ self.coef_[used][:, None]
        if self.bends_:
            own = np.array([one.column for one in self.bends_])
            out = out + bends_arithmetic(self.bends_, held.take(np.searchsorted(used, own)) / self.scale_[own])
        return out

    def numbers_per_row(self) -> int:
        """Return how many numbers a prediction holds in memory for each patient."""
        return max(super().numbers_per_row(), 3 * len(self.coef_) if self.strongest is None else 0)

    # --- files --------------------------------------------------------------------------------------------

    def effects_to_arrays(self) -> Arrays:
        """Return the effects as plain arrays; where most of very many columns have none, without those."""
        whole = {name: getattr(self, name) for name in _OF_COLUMNS}
        if self.strongest is not None:
            whole = {name: array[self.used_] for name, array in whole.items()}
            whole |= {"used_": self.used_, "columns": np.array([len(self.coef_)])}
        return whole | to_arrays(self.bends_)

    def effects_from_arrays(self, header: Header, arrays: Arrays) -> None:
        """Set the effects from what a file has, checked."""
        stored = len(read_array(arrays, "coef_", (None,)))
        p, self.used_ = stored, np.arange(stored)
        if self.strongest is not None:
            p = int(read_array(arrays, "columns", (1,), dtype=np.int64)[0])
            self.used_ = read_array(arrays, "used_", (stored,), dtype=np.int64)
            if p > _MOST_COLUMNS or (np.diff(self.used_, prepend=-1) <= 0).any() or (self.used_ >= p).any():
                raise ValueError("its effects are not those of its columns")
        for name in _OF_COLUMNS:
            whole = np.full(p, 1.0 if name == "scale_" else 0.0)
            whole[self.used_] = read_array(arrays, name, (stored,))
            setattr(self, name, whole)
        if (self.scale_ <= 0).any() or (self.lower_ > self.upper_).any():
            raise ValueError("its columns have units or ranges that cannot be")
        self.bends_ = from_arrays(arrays, p)
        declared(header, _State)
        self._set_summary(header["training"])

    @property
    def n_columns(self) -> int:
        return len(self.coef_)

    def _set_summary(self, summary: Header) -> None:
        self.penalties_ = {name: float(value) for name, value in summary["penalties"].items()}
        self.degrees_of_freedom_ = {name: float(value) for name, value in summary["degrees_of_freedom"].items()}
        log_likelihood = summary["log_likelihood"]
        self.log_likelihood_ = float("nan") if log_likelihood is None else float(log_likelihood)


def counted(X: Features, y: Outcome, weight: FloatArray | None) -> tuple[FloatArray, FloatArray, BoolArray, FloatArray]:
    """Return columns, times, events and weights of the patients who count; the mean weight of all of them is 1."""
    if weight is not None:
        weight = weight / weight[weight > 0].mean()
    rows, weight = representatives(y, weight, _MOST_PATIENTS)
    if weight is None:
        weight = np.ones(len(rows))
    rows, weight = rows[weight > 0], weight[weight > 0]
    return X[rows].astype(np.float64), y["time"][rows], y["event"][rows], weight


def _strongest(
    scaled: FloatArray, varying: IntArray, time: FloatArray, event: BoolArray, weight: FloatArray, count: int
) -> IntArray:
    """Return the columns, ascending, with the largest score of a Cox model in which nothing has an effect yet."""
    if len(varying) <= count:
        return varying
    times, hazard = breslow(time, event, np.ones(len(time)), weight)
    more_than_expected = weight * (event - StepFunction(times, hazard, initial=0.0)(time))
    score = np.abs(more_than_expected @ scaled[:, varying])
    return np.sort(varying[np.argsort(-score, kind="stable")[:count]])


def first_look(n: int) -> slice:
    """Return the patients with whom coefficients are found roughly: all, or some thousand that are evenly chosen."""
    return slice(None, None, max(n // _FIRST_PATIENTS, 1))


def _turned(terms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return terms along their longest principal axes, without those of no length, and the axes as columns."""
    from scipy.linalg import eigh

    n, p = terms.shape
    wide = p > n
    squares = terms @ terms.T if wide else terms.T @ terms
    length, found = eigh(squares, subset_by_index=[max(len(squares) - _MOST_AXES, 0), len(squares) - 1])
    kept = length > 1e-10 * length[-1]
    axes = found[:, kept]
    if wide:
        axes = terms.T @ (axes / np.sqrt(length[kept]))
    return terms @ axes, axes
