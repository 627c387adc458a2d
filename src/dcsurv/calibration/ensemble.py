"""The calibrated ensemble: families trained on folds, their weighted mean, maps fitted on the folds left out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.stats import t as student

from dcsurv.calibration.families import (
    COMPANIONS,
    Family,
    common_nodes,
    default_member,
    folds_for,
    mapped,
    name_of,
    names_of,
    priors_of,
    seeded,
    templates_for,
    train_member,
)
from dcsurv.calibration.maps import MapSequence, make_maps, map_from_state
from dcsurv.calibration.recalibrated import parts_of, recalibrated_in_version_01
from dcsurv.calibration.weights import stacking_weights
from dcsurv.curves import Interpolation, SurvivalCurves
from dcsurv.kinds import ModelKind, kind_in_file, kind_of, kinds, make_model, register
from dcsurv.messages import plural
from dcsurv.models import CurveParts, SurvivalEstimator
from dcsurv.models.base import Features
from dcsurv.models.baseline import thinned
from dcsurv.models.network import NetworkEstimator, as_random_state
from dcsurv.models.ranges import NoneOr, Range, WholeNumber
from dcsurv.persistence import Arrays, Header, ModelFileError
from dcsurv.search_space import Space, TuningError, prefixed
from dcsurv.target import FloatArray, Outcome, fold_indices

# A mean of several families is nearly calibrated, so that the identity counts for more than with networks alone.
_CAUTION = 2.0
# Each family is mapped before, which matters on large cohorts only: on small ones it would fit the noise five times.
_FAMILY_CAUTION = 4.0


@dataclass(kw_only=True, repr=False, eq=False)
class CalibratedEnsemble(SurvivalEstimator):
    r"""Weighted mean of families of models trained on folds, recalibrated on the folds that were left out.

    .. math:: S(t | x) = M\left(\sum_f a_f M_f\left(\frac{1}{K} \sum_k S_{fk}(t | x),\ t\right), t\right)

    Member k of family f is trained without fold k and predicts it; these out-of-fold curves, and nothing else, fit a
    cautious map of each family, give the weights a (non-negative, summing to one, by the censoring-weighted Brier
    score) and then fit the maps M of the whole. One family alone has no map of its own.

    Parameters
    ----------
    estimator : estimator or None, default None
        What the networks are, or any other model that can be a member, unfitted. None is :func:`default_member`, which
        is another network than ``DCS()``: to change one of its parameters, use
        ``set_params(estimator__lam=1.0)``. Its own ``preprocess`` is not used: the ensemble prepares the features once
        for all members.
    companions : sequence of str or estimators, or None, default None
        The other families, by the name of their kind or as unfitted models. None is ``("spline-cox", "spline-aft",
        "boosted", "forest")`` beside the default networks, and none beside an ``estimator`` of one's own, which then
        stands alone. An empty sequence leaves the networks alone.
    n_members : int or None, default None
        Number of folds, K, at least 2, and so of members of each family. None follows the events: 10 with fewer than
        400, otherwise 5.
    seeds_per_member : int, default 2
        Networks, trained from different seeds, whose mean each member is. With one, weights and maps are fitted on
        curves of single networks, which are more extreme than the mean of all that they then correct. Models that are
        no networks are fitted once.
    maps : sequence of str, default ("horizon", "rank")
        Names of the maps in the order in which they are applied: ``"horizon"`` (:class:`HorizonMap`) and ``"rank"``
        (:class:`RankPreservingMap`). An empty tuple averages only.
    n_jobs : int or None, default 1
        Processes that train members at the same time; -1 takes all cores. The result does not depend on it.
    random_state : int, Generator, RandomState or None, default None
        Seed, generator or None: deals the folds and seeds the members.

    Attributes
    ----------
    weights_ : dict
        How much each family counts, by the name of its kind. A family that would count less than 2 % has 0, and its
        members are not kept.
    members_ : list of SurvivalEstimator
        The fitted members, family by family, those of one fold in a row; their inputs are the features after
        preprocessing, which is fitted to the features (never the outcomes) of all training rows.
    map_ : MapSequence
        The fitted maps.
    remarks_ : list of str
        What the size of the cohort has decided.

    Notes
    -----
    Curves of one family live on the union of the members' nodes, where averaging linear or step curves loses nothing;
    above 2048 nodes, evenly chosen ones are kept. Curves of several are averaged at 120 quantiles of the event times.

    With fewer than 40 events networks and trees are left out of the default families.

    Examples
    --------
    >>> from dcsurv import CalibratedEnsemble
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = CalibratedEnsemble(n_members=2, seeds_per_member=1, random_state=0)
    >>> model = model.set_params(estimator__max_epochs=5).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    >>> list(model.weights_)
    ['dcs', 'spline-cox', 'spline-aft', 'boosted', 'forest']
    """

    estimator: Any = None
    companions: Any = None
    n_members: int | None = None
    seeds_per_member: int = 2
    maps: Sequence[str] = ("horizon", "rank")
    n_jobs: int | None = 1
    random_state: Any = None

    ranges: ClassVar[dict[str, Range]] = {"n_members": NoneOr(WholeNumber(2)), "seeds_per_member": WholeNumber(1)}

    # --- fitting ------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep : bool, default True
            Whether those of the networks are among them, as ``estimator__NAME``; of the default ones too.
        """
        out: dict[str, Any] = super().get_params(deep)
        if deep and self.estimator is None:
            out |= {f"estimator__{name}": value for name, value in default_member().get_params().items()}
        return out

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``estimator__NAME`` sets one of the networks, also of those by default.

        Parameters
        ----------
        **params : object
            Parameters of the ensemble, or of its networks with ``estimator__`` before their names.
        """
        of_members = any(name.startswith("estimator__") for name in params)
        if of_members and self.estimator is None and params.get("estimator") is None:
            params.pop("estimator", None)
            self.estimator = default_member()
            if self.companions is None:
                self.companions = COMPANIONS  # one parameter of the default is changed, not the rest
        out: Self = super().set_params(**params)
        return out

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        """Train the members on the folds, weigh the families and fit the maps by what each predicts out of fold."""
        import joblib

        events = int(y["event"].sum())
        n_folds = folds_for(events) if self.n_members is None else int(self.n_members)
        if n_folds > min(events, len(y)):
            raise ValueError(
                f"n_members is {n_folds}, but y has {plural(events, 'event')} among n_samples={len(y)} "
                "patients, and every fold needs an event. Use fewer members."
            )
        templates, remarks = templates_for(self.estimator, self.companions, events * (n_folds - 1) // n_folds)
        n_seeds = [self.seeds_per_member if isinstance(one, NetworkEstimator) else 1 for one in templates]
        generator = as_random_state(self.random_state)
        fold_seed, *seeds = (int(seed) for seed in generator.randint(2**31 - 1, size=1 + n_folds * sum(n_seeds)))
        folds = fold_indices(y, n_folds=n_folds, random_state=fold_seed)
        dealt = [(f, fold) for f, n in enumerate(n_seeds) for fold in folds for _ in range(n)]
        tasks = [
            joblib.delayed(train_member)(seeded(templates[f], seed), X, y, weight, train, left_out)
            for (f, (train, left_out)), seed in zip(dealt, seeds, strict=True)
        ]
        fitted = joblib.Parallel(n_jobs=self.n_jobs)(tasks)
        members: list[list[SurvivalEstimator]] = [[] for _ in templates]
        for (f, _), (member, _) in zip(dealt, fitted, strict=True):
            members[f].append(member)
        nodes = _union_of_nodes(members[0]) if len(templates) == 1 else common_nodes(y)
        # Rows of different members come on different nodes: all are read on the common ones.
        out_of_fold = [np.zeros((len(y), len(nodes))) for _ in templates]
        for (f, (_, left_out)), (_, curves) in zip(dealt, fitted, strict=True):
            out_of_fold[f][left_out] += curves.evaluate(nodes)
        for f, n in enumerate(n_seeds):
            out_of_fold[f] /= n
        several = len(templates) > 1
        own_maps = [make_maps(()) for _ in templates]
        shares = np.ones(1)
        if several:
            own_maps = [self._own_map(y, nodes, values, weight) for values in out_of_fold]
            out_of_fold = [mapped(one, values, nodes) for one, values in zip(own_maps, out_of_fold, strict=True)]
            groups = self.follow_up_.groups if self.follow_up_ is not None and self.follow_up_.depends else None
            shares = stacking_weights(y, nodes, out_of_fold, priors_of(templates), weight, groups)
        self._adopt(
            [
                Family(name, own if share > 0 else [], n_folds, float(share), one)
                for name, own, share, one in zip(names_of(templates), members, shares, own_maps, strict=True)
            ],
            nodes,
        )
        mean = np.add.reduce([share * values for share, values in zip(shares, out_of_fold, strict=True)])
        self.map_ = make_maps(self.maps, caution=_CAUTION if several else 1.0).fit(
            y, self._on_nodes(mean), weight, censoring=self.follow_up_ or "marginal"
        )
        return {
            "member": ", ".join(type(one).__name__ for one in templates),
            "folds": n_folds,
            "remarks": remarks,
            "members": [member.training_summary_ for member in self.members_],
        }

    def _own_map(self, y: Outcome, nodes: FloatArray, survival: FloatArray, weight: FloatArray | None) -> MapSequence:
        """Return the map of one family: a family must not lose its weight for what a map can mend."""
        names = [name for name in self.maps if name == "horizon"]
        curves = SurvivalCurves(nodes, survival, interpolation="linear")
        maps = make_maps(names, caution=_FAMILY_CAUTION)
        return maps.fit(y, curves, weight, censoring=self.follow_up_ or "marginal")

    def _adopt(self, families: list[Family], nodes: FloatArray) -> None:
        """Take fitted families and the nodes of their mean."""
        self.families_ = families
        self.members_ = [member for family in families for member in family.members]
        several = len(families) > 1
        self.interpolation_: Interpolation = "linear" if several else self.members_[0].interpolation
        self.nodes_ = nodes

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        super().check_parameters()
        if isinstance(self.companions, str) or not isinstance(self.companions, Sequence | None):
            raise ValueError(
                f"companions is {self.companions!r}, but None or a sequence of names or models is expected, such as "
                f"{COMPANIONS!r}."
            )
        if self.estimator is not None:
            _check_member("estimator is", self.estimator)
        for one in self.companions or ():
            _check_member("companions has", make_model(one) if isinstance(one, str) else one)
        make_maps(self.maps)

    # --- predicting ---------------------------------------------------------------------------------------

    @property
    def weights_(self) -> dict[str, float]:
        """How much each family counts."""
        return {family.name: family.weight for family in self.families_}

    @property
    def remarks_(self) -> list[str]:
        """What the size of the cohort has decided."""
        return list(self.training_summary_.get("remarks", []))

    @property
    def nodes(self) -> FloatArray:
        """The times of the mean: the union of the members' nodes, or quantiles of the event times."""
        return self.nodes_

    @property
    def has_band(self) -> bool:
        """Whether :meth:`predict_band` can be asked: there are several members."""
        return len(self.members_) > 1

    def survival_at_nodes(self, X: Features) -> FloatArray:
        """Return the weighted mean of the families at the nodes, before the maps, (n, T)."""
        return np.add.reduce([family.weight * family.survival(X, self.nodes_) for family in self._counted()])

    def _counted(self) -> list[Family]:
        return [family for family in self.families_ if family.weight > 0]

    def curve_parts(self, prepared: Features) -> CurveParts:
        """Return the mean of the members, recalibrated; what rides along as a transform stays one."""
        return parts_of(self.map_.transform(self._on_nodes(self.survival_at_nodes(prepared))))

    @property
    def display_name(self) -> str:
        """What to call the model in a sentence: an ensemble also by its members."""
        kinds_ = [f"{len(own.members)} × {type(own.members[0]).__name__}" for own in self._counted()]
        return f"{type(self).__name__} ({', '.join(kinds_)})"

    def before_recalibration(self) -> CalibratedEnsemble | None:
        """Return the mean of the families without the maps of the whole; None if there are none."""
        if not self.map_.maps:
            return None
        bare = copy.copy(self)
        bare.map_ = make_maps(())
        return bare

    def member_curves(self, prepared: Features) -> Iterator[SurvivalCurves]:
        """Yield the curves of each member or, of several families, of each fold, recalibrated as the ensemble is."""
        if len(self.families_) == 1:
            each = (member.curves_of(prepared).evaluate(self.nodes_) for member in self.members_)
        else:
            each = (
                np.add.reduce([own.weight * own.survival(prepared, self.nodes_, fold) for own in self._counted()])
                for fold in range(self.families_[0].n_folds)
            )
        for values in each:
            yield self.map_.transform(self._on_nodes(values))

    def band_reach(self, level: float) -> float:
        """Return how many standard deviations of :meth:`member_curves` a band of a level reaches.

        Members of one family are drawn around the curve, seeds and all. Means over folds vary far less than curves of
        fresh cohorts, because they share most patients: the grouped jackknife says how much less.
        """
        if len(self.families_) == 1:
            return super().band_reach(level)
        k = self.families_[0].n_folds
        return float(student.ppf((1 + level) / 2, k - 1)) * (k - 1) / np.sqrt(k)

    def _on_nodes(self, values: FloatArray) -> SurvivalCurves:
        return SurvivalCurves(self.nodes_, values, interpolation=self.interpolation_)

    def numbers_per_row(self) -> int:
        """Return how many numbers a prediction holds in memory for each patient."""
        # The maps hold a few copies of curves with some hundred nodes more.
        return max(16 * len(self.nodes_) + 4096, *(member.numbers_per_row() for member in self.members_))

    # --- files --------------------------------------------------------------------------------------------

    def plain_parameters(self) -> Header:
        """Return the parameters as plain data for a file."""
        own = {
            "estimator": None if self.estimator is None else _describe(self.estimator),
            "companions": None if self.companions is None else [_described(one) for one in self.companions],
            "maps": list(self.maps),
        }
        return {**super().plain_parameters(), **own}

    def get_state(self) -> tuple[Header, Arrays]:
        """Return members, weights and maps."""
        members, arrays = [], {"ensemble.nodes": self.nodes_}
        for k, member in enumerate(self.members_):
            header, own = member.get_state()
            members.append({**_describe(member), **header, "training": member.training_summary_})
            arrays |= {f"member{k}.{name}": array for name, array in own.items()}
        conventions = {
            "risk": "minus the mean survival time restricted to the last node",
            "score": "C-td, ties adjusted, S(z) read between nodes",
            "interpolation": self.interpolation_,
        }
        families = [
            {
                "name": own.name,
                "members": len(own.members),
                "folds": own.n_folds,
                "weight": own.weight,
                "map": own.map.get_state(),
            }
            for own in self.families_
        ]
        state = {"conventions": conventions, "members": members, "families": families, "map": self.map_.get_state()}
        return state, arrays

    @classmethod
    def from_saved(cls, header: Header, arrays: Arrays) -> Any:
        """Rebuild a fitted ensemble from the contents of its file."""
        older = recalibrated_in_version_01(header, arrays)
        return super().from_saved(header, arrays) if older is None else older

    @classmethod
    def known_parameters(cls, saved: Header) -> Header:
        """Return the parameters of a file as they are in Python; files before families had one."""
        member, companions = saved["estimator"], saved.get("companions", [])
        return {
            **saved,
            "estimator": None if member is None else _from_description(member),
            "companions": None if companions is None else tuple(_restored(one) for one in companions),
            "maps": tuple(saved["maps"]),
        }

    def set_state(self, header: Header, arrays: Arrays) -> None:
        """Set members, weights and maps from a file."""
        members = []
        for k, described in enumerate(header["members"]):
            member = _from_description(described)
            prefix = f"member{k}."
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            member.preprocessor_, member.follow_up_ = None, None
            member.training_summary_ = described["training"]
            member.set_state(described, own)
            members.append(member)
        if not members:
            raise ValueError("an ensemble without members.")
        nodes = arrays["ensemble.nodes"]
        self._adopt(_families_of(header, members), nodes)
        if len(self.families_) == 1 and not np.array_equal(nodes, _union_of_nodes(members)):
            raise ValueError("the nodes of the ensemble are not those of its members.")
        self.map_ = _sequence(header["map"])


def _families_of(header: Header, members: list[SurvivalEstimator]) -> list[Family]:
    """Return the families of a file; a file before there were families has one."""
    described = header.get("families")
    if described is None:
        whole = {"members": len(members), "folds": len(members), "weight": 1.0, "map": make_maps(()).get_state()}
        described = [{"name": name_of(members[0]), **whole}]
    families, left = [], list(members)
    for one in described:
        own, left = left[: one["members"]], left[one["members"] :]
        families.append(Family(str(one["name"]), own, int(one["folds"]), float(one["weight"]), _sequence(one["map"])))
    sizes = all(own.n_folds > 1 and len(own.members) % own.n_folds == 0 for own in families)
    counted = all(own.weight >= 0 and (own.weight == 0) == (not own.members) for own in families)
    if left or not sizes or not counted or not np.isclose(sum(own.weight for own in families), 1.0):
        raise ValueError("the families of the ensemble are not those of its members.")
    return families


def _sequence(state: Header) -> MapSequence:
    restored = map_from_state(state)
    if not isinstance(restored, MapSequence):
        raise ValueError("the map of an ensemble must be a sequence.")
    return restored


def _union_of_nodes(members: Sequence[SurvivalEstimator]) -> FloatArray:
    nodes = np.unique(np.concatenate([member.nodes for member in members]))
    return nodes[thinned(len(nodes))]


def _member_space(which: str) -> Any:
    """Return the function that makes the space of a kind's members for an ensemble of them."""

    def space(ensemble: Any, y: Any) -> Space:
        member = default_member() if ensemble.estimator is None else ensemble.estimator
        kind = kind_of(member)
        found = None if kind is None else getattr(kind, which)
        if found is None:
            raise TuningError(f"there is no such space for a {type(member).__name__}. Pass one of your own.")
        return prefixed("estimator__", found(member, y) if callable(found) else found)

    return space


register(
    ModelKind(
        name="calibrated",
        model=CalibratedEnsemble,
        meaning="networks, Cox, accelerated failure and trees, weighted and recalibrated on held-out folds (default)",
        space=_member_space("space"),
        paper_space=_member_space("paper_space"),
        quick={"n_members": 2, "seeds_per_member": 1},
        wraps=True,
    )
)


def _check_member(what: str, model: Any) -> None:
    """Refuse what cannot be a member."""
    kind = kind_of(model)
    if not isinstance(model, SurvivalEstimator) or (kind is not None and not kind.is_member):
        raise ValueError(
            f"{what} a {type(model).__name__}, but one of {', '.join(_possible())} is expected. "
            "Curves of other models can be recalibrated with HorizonMap and RankPreservingMap."
        )


def _described(companion: str | SurvivalEstimator) -> str | Header:
    return companion if isinstance(companion, str) else _describe(companion)


def _restored(companion: str | Header) -> str | SurvivalEstimator:
    return companion if isinstance(companion, str) else _from_description(companion)


def _describe(model: SurvivalEstimator) -> Header:
    """Return kind and parameters of a member as plain data."""
    kind = kind_of(model)
    if kind is None or not kind.is_member:
        raise ModelFileError(f"an ensemble of {type(model).__name__} cannot be saved; possible are {_possible()}.")
    return {"kind": type(model).__name__, "parameters": {**model.plain_parameters(), "preprocess": None}}


def _from_description(described: Header) -> SurvivalEstimator:
    kind = kind_in_file(described["kind"])
    if kind is None or not kind.is_member:
        raise ValueError(f"a member of the unknown kind {described['kind']!r}.")
    model: SurvivalEstimator = kind.model(**kind.model.known_parameters(described["parameters"]))
    model.check_parameters()
    return model


def _possible() -> list[str]:
    return [kind.model.__name__ for kind in kinds() if kind.is_member]
