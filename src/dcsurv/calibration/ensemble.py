"""The calibrated ensemble: members trained on folds, curves averaged, maps fitted on the folds that were left out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dcsurv.calibration.maps import HorizonMap, MapSequence, RankPreservingMap, RecalibrationMap, map_from_state
from dcsurv.curves import Interpolation, SurvivalCurves
from dcsurv.models import DCS, DRSA, CoxPH, CoxTime, DeepSurv, Kamran
from dcsurv.models.base import Features, Outcome, SurvivalEstimator, plain_random_state
from dcsurv.models.baseline import thinned
from dcsurv.models.network import as_random_state
from dcsurv.persistence import Arrays, Header, ModelFileError, saveable
from dcsurv.target import FloatArray, IntArray, fold_indices
from dcsurv.training import one_thread

_MAPS: dict[str, type[RankPreservingMap] | type[HorizonMap]] = {"rank": RankPreservingMap, "horizon": HorizonMap}
_MEMBERS: dict[str, type[SurvivalEstimator]] = {
    kind.__name__: kind for kind in (CoxPH, CoxTime, DCS, DRSA, DeepSurv, Kamran)
}
_LEAST_NODES, _MOST_NODES = 10, 40
# Survival this close to 0 or 1 counts as this on the complementary log-log scale of the bands.
_EDGE = 1e-12


class Band(NamedTuple):
    """Survival of each patient with a band around it: ``times`` (T,), the others (n, T)."""

    times: FloatArray
    lower: FloatArray
    survival: FloatArray
    upper: FloatArray


def default_member(n_events: int | None = None) -> DCS:
    """Return what a calibrated ensemble is made of by default: a DCS without recurrent decoder, unfitted.

    Parameters
    ----------
    n_events
        Events that it will be trained on: with less than 400 the grid gets a node for every ten of them, but at least
        ten, because a hazard for each of forty intervals cannot be learnt from a few dozen events.

    Notes
    -----
    Its features are spread over bins. Chosen on cohorts other than the three
    of the paper: ``docs/results/development``.
    """
    return DCS(
        n_nodes=_MOST_NODES if n_events is None else int(np.clip(n_events // 10, _LEAST_NODES, _MOST_NODES)),
        feature_bins=8,
        encoder_layers=2,
        encoder_size=64,
        decoder_layers=0,
        weight_decay=1e-3,
    )


@saveable
@dataclass(kw_only=True, repr=False, eq=False)
class CalibratedEnsemble(SurvivalEstimator):
    r"""Average of members trained on all folds but one, recalibrated on the folds that were left out.

    .. math:: S(t | x) = M\left(\frac{1}{K} \sum_k S_k(t | x),\ t\right)

    Member k is trained without fold k and predicts it; these out-of-fold curves, and nothing else, fit the maps M.

    Parameters
    ----------
    estimator
        What the members are: any of the six models, unfitted; default :func:`default_member`, a DCS. Its own
        ``preprocess`` is not used: the ensemble prepares the features once for all members.
    n_members
        Number of folds and members, K, at least 2.
    seeds_per_member
        Networks, trained from different seeds, whose mean each member is. With one, the maps are fitted on curves of
        single networks, which are more extreme than the mean of all that they then correct. Members without a seed,
        such as CoxPH, are fitted once.
    maps
        Names of the maps in the order in which they are applied: ``"horizon"`` (:class:`HorizonMap`) and ``"rank"``
        (:class:`RankPreservingMap`). An empty tuple averages only.
    n_jobs
        Processes that train members at the same time; -1 takes all cores. The result does not depend on it.
    random_state
        Seed, generator or None: deals the folds and seeds the members.
    preprocess, time_unit
        See :class:`SurvivalEstimator`. Features (never outcomes) of all training rows scale and impute.

    Attributes
    ----------
    members_
        The fitted networks of all members, those of one member in a row; their inputs are the features after
        preprocessing.
    map_
        The fitted :class:`MapSequence`.

    Notes
    -----
    Curves live on the union of the members' nodes, where averaging linear or step curves loses nothing; above 2048
    nodes, evenly chosen ones are kept.
    """

    estimator: Any = None
    n_members: int = 5
    seeds_per_member: int = 3
    maps: Sequence[str] = ("horizon", "rank")
    n_jobs: int | None = 1
    random_state: Any = None

    # --- fitting ------------------------------------------------------------------------------------------

    def _fit(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        import joblib

        events = int(y["event"].sum())
        if self.n_members > min(events, len(y)):
            raise ValueError(
                f"n_members is {self.n_members}, but there are {events} events among n_samples={len(y)} patients, "
                "and every fold needs an event. Use fewer members."
            )
        template = self._template(events * (self.n_members - 1) // self.n_members)
        generator = as_random_state(self.random_state)
        n_seeds = self.seeds_per_member if hasattr(template, "random_state") else 1
        fold_seed, *seeds = (int(seed) for seed in generator.randint(2**31 - 1, size=1 + self.n_members * n_seeds))
        folds = fold_indices(y, n_folds=self.n_members, random_state=fold_seed)
        dealt = [fold for fold in folds for _ in range(n_seeds)]
        tasks = [
            joblib.delayed(_train_member)(_seeded(template, seed), X, y, weight, train, left_out)
            for (train, left_out), seed in zip(dealt, seeds, strict=True)
        ]
        fitted = joblib.Parallel(n_jobs=self.n_jobs)(tasks)
        self._adopt([member for member, _ in fitted])
        # Rows of different members come on different nodes: all are read on the common ones.
        out_of_fold = np.zeros((len(y), len(self.nodes_)))
        for (_, left_out), (_, curves) in zip(dealt, fitted, strict=True):
            out_of_fold[left_out] += curves.evaluate(self.nodes_)
        out_of_fold /= n_seeds
        curves = SurvivalCurves(self.nodes_, out_of_fold, interpolation=self.interpolation_)
        self.map_ = make_maps(self.maps).fit(y, curves, weight, censoring=self.follow_up_ or "marginal")
        return {
            "member": type(template).__name__,
            "members": [member.training_summary_ for member in self.members_],
        }

    def _template(self, n_events: int) -> SurvivalEstimator:
        template = default_member(n_events) if self.estimator is None else clone(self.estimator)
        template.set_params(preprocess=None)
        return template

    def _adopt(self, members: list[SurvivalEstimator]) -> None:
        """Take fitted members and the nodes that follow from theirs."""
        self.members_ = members
        self.interpolation_: Interpolation = members[0].interpolation
        nodes = np.unique(np.concatenate([member._nodes() for member in members]))
        self.nodes_: FloatArray = nodes[thinned(len(nodes))]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.estimator is not None and not isinstance(self.estimator, tuple(_MEMBERS.values())):
            raise ValueError(
                f"estimator is a {type(self.estimator).__name__}, but one of {', '.join(_MEMBERS)} is expected. Curves "
                "of other models can be recalibrated with HorizonMap and RankPreservingMap."
            )
        for name, least in (("n_members", 2), ("seeds_per_member", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}, but a whole number of at least {least} is expected.")
        make_maps(self.maps)

    # --- predicting ---------------------------------------------------------------------------------------

    def predict_survival_function(self, X: Any, times: npt.ArrayLike | None = None) -> SurvivalCurves:
        """Predict recalibrated survival curves, the mean of the members; see the models' method of this name."""
        check_is_fitted(self)
        if times is not None:
            out = super().predict_survival_function(X, times)
            return SurvivalCurves(
                out.times,
                out.values,
                interpolation=self.interpolation_,
                followed_to=out.followed_to,
                index=out.index,
            )
        # Mapped in chunks, because a map may hold several copies; what rides along as a transform stays one.
        first: list[SurvivalCurves] = []
        followed: list[FloatArray] = []

        def mapped(chunk: Features) -> FloatArray:
            curves = self._curves(chunk)
            first[:] = first or [curves[:1]]
            followed.append(self._followed_to(chunk))
            return curves.with_transform(None).values

        values = self._in_chunks(X, mapped)
        times, transform = first[0].times, first[0].transform
        return SurvivalCurves(
            times,
            values,
            interpolation=self.interpolation_,
            transform=transform,
            followed_to=np.concatenate(followed),
            index=X.index if isinstance(X, pd.DataFrame) else None,
        )

    def predict_band(self, X: Any, times: npt.ArrayLike | None = None, *, level: float = 0.9) -> Band:
        r"""Predict survival with a band from the spread of the members.

        On the scale :math:`\log(-\log S)` the band is :math:`\pm z` standard deviations of the members' networks, each
        recalibrated as the ensemble is, around the ensemble; z is the normal quantile of ``level``.

        Parameters
        ----------
        times
            Strictly ascending times; default: the ensemble's nodes.
        level
            Share of networks that the band would hold if they were many and normal on that scale.

        Notes
        -----
        The band shows how far another training run on such data may lie. It is no confidence interval of the true
        curve: what all members get wrong it does not show.
        """
        if not 0 < level < 1:
            raise ValueError(f"level is {level}, but a share between 0 and 1 is expected, such as 0.9.")
        center = self.predict_survival_function(X, times)
        nodes = center.times
        if len(self.members_) < 2:
            raise ValueError("this model has one member, and a band needs the spread of several. Fit an ensemble.")
        spread = self._in_chunks(X, lambda chunk: self._spread(chunk, nodes))
        survival = center.values
        reach = float(norm.ppf((1 + level) / 2)) * spread
        certain = (survival <= 0) | (survival >= 1)
        middle = _log_hazard(survival)
        lower, upper = (
            np.minimum.accumulate(np.where(certain, survival, np.exp(-np.exp(middle + sign * reach))), axis=1)
            for sign in (1, -1)
        )
        return Band(nodes, np.minimum(lower, survival), survival, np.maximum(upper, survival))

    def _spread(self, X: Features, times: FloatArray) -> FloatArray:
        """Return the standard deviation over the members of log(-log S), (n, T)."""
        each = [self.map_.transform(self._on_nodes(self._read(member, X))) for member in self.members_]
        return np.asarray(np.std([_log_hazard(curves.evaluate(times)) for curves in each], axis=0, ddof=1))

    def _nodes(self) -> FloatArray:
        return self.nodes_

    def _survival(self, X: Features) -> FloatArray:
        total = np.zeros((len(X), len(self.nodes_)))
        for member in self.members_:
            total += self._read(member, X)
        return total / len(self.members_)

    def _read(self, member: SurvivalEstimator, X: Features) -> FloatArray:
        return member._curves(X).evaluate(self.nodes_)

    def _on_nodes(self, values: FloatArray) -> SurvivalCurves:
        return SurvivalCurves(self.nodes_, values, interpolation=self.interpolation_)

    def _curves(self, X: Features) -> SurvivalCurves:
        return self.map_.transform(self._on_nodes(self._survival(X)))

    def _numbers_per_row(self) -> int:
        # The maps hold a few copies of curves with some hundred nodes more.
        return max(16 * len(self.nodes_) + 4096, *(member._numbers_per_row() for member in self.members_))

    # --- files --------------------------------------------------------------------------------------------

    def _to_saved(self) -> tuple[Header, Arrays]:
        parameters = self.get_params(deep=False)
        parameters |= plain_random_state(parameters)
        if not isinstance(self.preprocess, str | None):
            parameters["preprocess"] = self.preprocess.get_params()
        members, arrays = [], {"ensemble.nodes": self.nodes_}
        for k, member in enumerate(self.members_):
            header, own = member._to_saved()
            members.append({**_describe(member), **header, "training": member.training_summary_})
            arrays |= {f"member{k}.{name}": array for name, array in own.items()}
        parameters |= {
            "estimator": None if self.estimator is None else _describe(self.estimator),
            "maps": list(self.maps),
        }
        conventions = {
            "risk": "minus the mean survival time restricted to the last node",
            "score": "C-td, ties adjusted, S(z) read between nodes",
            "interpolation": self.interpolation_,
        }
        return {
            "parameters": parameters,
            "conventions": conventions,
            "members": members,
            "map": self.map_.get_state(),
        }, arrays

    @classmethod
    def from_saved(cls, header: Header, arrays: Arrays) -> Self:
        parameters = dict(header["parameters"])
        if parameters["estimator"] is not None:
            parameters["estimator"] = _from_description(parameters["estimator"])
        parameters["maps"] = tuple(parameters["maps"])
        return super().from_saved({**header, "parameters": parameters}, arrays)

    def _restore(self, header: Header, arrays: Arrays) -> None:
        members = []
        for k, described in enumerate(header["members"]):
            member = _from_description(described)
            prefix = f"member{k}."
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            member.preprocessor_, member.follow_up_ = None, None
            member.training_summary_ = described["training"]
            member._restore(described, own)
            members.append(member)
        if not members:
            raise ValueError("an ensemble without members.")
        self._adopt(members)
        if not np.array_equal(self.nodes_, arrays["ensemble.nodes"]):
            raise ValueError("the nodes of the ensemble are not those of its members.")
        restored = map_from_state(header["map"])
        if not isinstance(restored, MapSequence):
            raise ValueError("the map of an ensemble must be a sequence.")
        self.map_ = restored


def make_maps(names: Sequence[str]) -> MapSequence:
    """Return the maps of these names, unfitted, as one."""
    if isinstance(names, str) or any(name not in _MAPS for name in names):
        raise ValueError(f"maps is {names!r}, but a sequence of names out of {sorted(_MAPS)} is expected.")
    return MapSequence([_MAPS[name]() for name in names])


def with_map(model: SurvivalEstimator, extra: RecalibrationMap) -> CalibratedEnsemble:
    """Return a fitted model whose curves pass through one more map, without training anything.

    An ensemble is copied; any other model becomes the one member of an ensemble.
    """
    if isinstance(model, CalibratedEnsemble):
        out = copy.copy(model)
        out.map_ = MapSequence([*model.map_.maps, extra])
        return out
    member = copy.copy(model)
    member.preprocess, member.preprocessor_ = None, None
    for name in ("n_features_in_", "feature_names_in_"):  # these tell of the columns before preprocessing
        if hasattr(member, name):
            delattr(member, name)
    out = CalibratedEnsemble(estimator=clone(model), preprocess=model.preprocess, time_unit=model.time_unit)
    out._check_parameters()
    for name in ("preprocessor_", "follow_up_", "n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(out, name, getattr(model, name))
    out.training_summary_ = {**model.training_summary_, "member": type(model).__name__}
    out._adopt([member])
    out.map_ = MapSequence([extra])
    out.fitted_parameters_ = out._parameter_texts()
    return out


def _train_member(
    member: SurvivalEstimator,
    X: Features,
    y: Outcome,
    weight: FloatArray | None,
    train: IntArray,
    left_out: IntArray,
) -> tuple[SurvivalEstimator, SurvivalCurves]:
    """Fit a member to all folds but one and predict that one."""
    with one_thread():
        member.fit_member(X[train], y[train], None if weight is None else weight[train])
        if member.training_summary_.get("stopped_by") == "interrupt":
            raise KeyboardInterrupt  # a member cut short must not pass for a trained one
        return member, member.predict_survival_function(X[left_out])


def _seeded(template: SurvivalEstimator, seed: int) -> SurvivalEstimator:
    member: SurvivalEstimator = clone(template)
    if "random_state" in member.get_params(deep=False):
        member.set_params(random_state=seed)
    return member


def _describe(model: SurvivalEstimator) -> Header:
    """Return kind and parameters of a model as plain data."""
    if type(model).__name__ not in _MEMBERS or type(model) is not _MEMBERS[type(model).__name__]:
        raise ModelFileError(f"an ensemble of {type(model).__name__} cannot be saved; possible are {list(_MEMBERS)}.")
    parameters = model.get_params(deep=False)
    parameters["preprocess"] = None  # the ensemble's
    parameters |= plain_random_state(parameters)
    if "device" in parameters:
        parameters["device"] = "cpu"
    return {"kind": type(model).__name__, "parameters": parameters}


def _from_description(described: Header) -> SurvivalEstimator:
    kind = described["kind"]
    if kind not in _MEMBERS:
        raise ValueError(f"a member of the unknown kind {kind!r}.")
    model = _MEMBERS[kind](**_MEMBERS[kind]._known_parameters(described["parameters"]))
    model._check_parameters()
    return model


def _log_hazard(survival: FloatArray) -> FloatArray:
    return np.log(-np.log(np.clip(survival, _EDGE, 1 - _EDGE)))
