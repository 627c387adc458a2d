"""The calibrated ensemble: families trained on folds, their weighted mean, maps fitted on the folds left out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np

from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.calibration.bands import arithmetic_of_band, arithmetic_sums, sources_of, sums_of
from dcsurv.calibration.cross_fitting import cross_fit
from dcsurv.calibration.ensemble_file import (
    EnsembleState,
    check_member,
    describe,
    described,
    families_from,
    families_state,
    from_description,
    members_from,
    members_state,
    restored,
    sequence,
)
from dcsurv.calibration.families import (
    COMPANIONS,
    Family,
    common_nodes,
    default_member,
    folds_for,
    looked_at,
    mapped,
    member_space,
    names_of,
    priors_of,
    templates_for,
)
from dcsurv.calibration.maps import MapSequence, make_maps
from dcsurv.calibration.recalibrated import parts_of
from dcsurv.calibration.refits import refits_from, refits_state, refitted
from dcsurv.calibration.version_01 import recalibrated_in_version_01
from dcsurv.calibration.weights import stacking_weights
from dcsurv.curves import Interpolation, SurvivalCurves
from dcsurv.follow_up import FollowUp
from dcsurv.kinds import ModelKind, make_model, register
from dcsurv.messages import plural
from dcsurv.models import CurveParts, SurvivalEstimator
from dcsurv.models.bands import Backing, BandArithmetic, BandSources
from dcsurv.models.base import Features
from dcsurv.models.baseline import read_times, thinned
from dcsurv.models.network import NetworkEstimator, as_random_state
from dcsurv.models.ranges import NoneOr, Range, WholeNumber
from dcsurv.persistence import Arrays, Header
from dcsurv.plain import declared
from dcsurv.target import FloatArray, Outcome, fold_indices

# A mean of several families is nearly calibrated, so that the identity counts for more than with networks alone.
_CAUTION = 2.0
# Each family is mapped before, which matters on large cohorts only: on small ones it would fit the noise five times.
_FAMILY_CAUTION = 4.0


class _Asked(msgspec.Struct):
    """Parameters that a file describes in other words than Python; before families there were no companions."""

    estimator: dict[str, Any] | None
    maps: list[str]
    companions: list[str | dict[str, Any]] | None = []


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
    bands : {"folds", "bootstrap"}, default "folds"
        Where :meth:`predict_band` takes the uncertainty from: the members that left out a fold each, which costs
        nothing, or refits of the whole to resampled patients.
    n_refits : int, default 20
        How many refits, if any. Each takes about as long as the fit itself and makes the file longer by as much.
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
    refits_ : list of CalibratedEnsemble
        The refits; none with ``bands="folds"``.
    remarks_ : list of str
        What the size of the cohort has decided.

    Notes
    -----
    Curves of one family live on the union of the members' nodes, where averaging linear or step curves loses nothing;
    above 2048 nodes, evenly chosen ones are kept. Curves of several are averaged at 120 quantiles of the event times.

    With fewer than 40 events networks and trees are left out of the default families. With more than 1,000 columns, and
    more than patients, the families are ``SplineCox`` with the 10, 50 and 5,000 columns that alone go along most with
    the outcome, chosen anew without each fold. Weights and maps are found on at most 20,000 patients, or as many more
    as have 2,000 events: more would cost time and change nothing.

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
    bands: Literal["folds", "bootstrap"] = "folds"
    n_refits: int = 20
    n_jobs: int | None = 1
    random_state: Any = None

    ranges: ClassVar[dict[str, Range]] = {
        "n_members": NoneOr(WholeNumber(2)),
        "seeds_per_member": WholeNumber(1),
        "n_refits": WholeNumber(2),
    }

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
        """Train the members on the folds, weight the families and fit the maps by what each predicts out of fold."""
        events = int(y["event"].sum())
        n_folds = folds_for(events) if self.n_members is None else int(self.n_members)
        if n_folds > min(events, len(y)):
            raise ValueError(
                f"n_members is {n_folds}, but y has {plural(events, 'event')} among n_samples={len(y)} "
                "patients, and every fold needs an event. Use fewer members."
            )
        templates, remarks = templates_for(
            self.estimator, self.companions, events * (n_folds - 1) // n_folds, (len(X), X.shape[1])
        )
        n_seeds = [self.seeds_per_member if isinstance(one, NetworkEstimator) else 1 for one in templates]
        generator = as_random_state(self.random_state)
        fold_seed, *seeds = (int(seed) for seed in generator.randint(2**31 - 1, size=1 + n_folds * sum(n_seeds)))
        groups = self.row_groups_
        folds = fold_indices(y, n_folds=n_folds, random_state=fold_seed, groups=groups)
        asked = looked_at(y, fold_seed)
        several = len(templates) > 1
        common = common_nodes(y) if several else None
        trained = cross_fit(templates, n_seeds, folds, seeds, X, y, weight, asked, common, self.n_jobs, groups)
        seen_y, seen_weight = y[asked], None if weight is None else weight[asked]
        followed = None if self.follow_up_ is None else self.follow_up_.take(asked)
        # Rows of different members come on different nodes: all are read on the common ones.
        nodes = _union_of_nodes(trained.members[0]) if common is None else common
        out_of_fold = trained.out_of_fold(nodes)
        own_maps = [make_maps(()) for _ in templates]
        shares = np.ones(1)
        if several:
            own_maps = [self._own_map(seen_y, nodes, values, seen_weight, followed) for values in out_of_fold]
            out_of_fold = [mapped(one, values, nodes) for one, values in zip(own_maps, out_of_fold, strict=True)]
            alike = followed.groups if followed is not None and followed.depends else None
            shares = stacking_weights(seen_y, nodes, out_of_fold, priors_of(templates), seen_weight, alike)
        self._adopt(
            [
                Family(name, own if share > 0 else [], n_folds, float(share), one)
                for name, own, share, one in zip(names_of(templates), trained.members, shares, own_maps, strict=True)
            ],
            nodes,
        )
        self.backing_ = Backing.of(y, weight)
        mean = np.add.reduce([share * values for share, values in zip(shares, out_of_fold, strict=True)])
        self.map_ = make_maps(self.maps, caution=_CAUTION if several else 1.0).fit(
            seen_y, self._on_nodes(mean), seen_weight, censoring=followed or "marginal"
        )
        seen = self.map_.transform(self._on_nodes(mean))
        self.time_bounds_ = self.bounds_from(seen_y, seen, self.groups_of(X[asked]), seen_weight)
        self.refits_: list[CalibratedEnsemble] = []
        if self.bands == "bootstrap":
            template = type(self)(**{**self.get_params(deep=False), "bands": "folds", "n_members": n_folds})
            more = [int(seed) for seed in generator.randint(2**31 - 1, size=self.n_refits)]
            self.refits_ = refitted(template, more, X, y, weight, self.follow_up_, groups)
        return {
            "member": ", ".join(type(one).__name__ for one in templates),
            "folds": n_folds,
            "remarks": remarks,
            "members": [member.training_summary_ for member in self.members_],
        }

    def _own_map(
        self,
        y: Outcome,
        nodes: FloatArray,
        survival: FloatArray,
        weight: FloatArray | None,
        followed: FollowUp | None,
    ) -> MapSequence:
        """Return the map of one family: a family must not lose its weight for what a map can mend."""
        names = [name for name in self.maps if name == "horizon"]
        curves = SurvivalCurves(nodes, survival, interpolation="linear")
        maps = make_maps(names, caution=_FAMILY_CAUTION)
        return maps.fit(y, curves, weight, censoring=followed or "marginal")

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
            check_member("estimator is", self.estimator)
        for one in self.companions or ():
            check_member("companions has", make_model(one) if isinstance(one, str) else one)
        make_maps(self.maps)
        if self.bands not in ("folds", "bootstrap"):
            raise ValueError(f"bands is {self.bands!r}, but 'folds' or 'bootstrap' is expected.")

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
        return sums_of(self._counted(), X, self.nodes_, by_fold=False).whole.T

    def _counted(self) -> list[Family]:
        return [family for family in self.families_ if family.weight > 0]

    def curve_parts(self, prepared: Features) -> CurveParts:
        """Return the mean of the members, recalibrated; what rides along as a transform stays one."""
        return parts_of(self.map_.transform(self._on_rows(self.survival_at_nodes(prepared).T)))

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
        bare.map_, bare.time_bounds_ = make_maps(()), None
        return bare

    def band_sources(self, prepared: Features) -> BandSources:
        """Return the curves of each fold, or of each refit, and of each family, recalibrated as the ensemble is."""
        sums = sums_of(self._counted(), prepared, self.nodes_, by_fold=not self.refits_)
        refits = [refit.curves_of(prepared) for refit in self.refits_]
        return sources_of(sums, refits, self.backing_, self._on_rows, self.map_)

    def survival_arithmetic(self, prepared: Value) -> Value:
        """Return the weighted mean of the families at the nodes as arithmetic, before the maps, (n, T)."""
        return arithmetic_sums(self._counted(), prepared, self.nodes_).whole

    def curve_arithmetic(self, prepared: Value) -> ReadableCurves:
        """Return the mean of the members, recalibrated, as arithmetic."""
        return self.map_.transform_arithmetic(self._arithmetic_on_nodes(self.survival_arithmetic(prepared)))

    def band_arithmetic(self, prepared: Value) -> BandArithmetic:
        """Return what the bands are made from as arithmetic."""
        sums = arithmetic_sums(self._counted(), prepared, self.nodes_)
        refits = [refit.curve_arithmetic(prepared) for refit in self.refits_]
        return arithmetic_of_band(sums, refits, self.backing_, self._arithmetic_on_nodes, self.map_)

    def _arithmetic_on_nodes(self, survival: Value) -> ReadableCurves:
        return ReadableCurves(self.nodes_, survival, self.interpolation_)

    def _on_rows(self, rows: FloatArray) -> SurvivalCurves:
        return SurvivalCurves.from_rows(self.nodes_, rows, interpolation=self.interpolation_)

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
            "estimator": None if self.estimator is None else describe(self.estimator),
            "companions": None if self.companions is None else [described(one) for one in self.companions],
            "maps": list(self.maps),
        }
        return {**super().plain_parameters(), **own}

    def get_state(self) -> tuple[Header, Arrays]:
        """Return members, weights and maps."""
        members, arrays = members_state(self.members_)
        arrays["ensemble.nodes"] = self.nodes_
        conventions = {
            "risk": "minus the mean survival time restricted to the last node",
            "score": "C-td, ties adjusted, S(z) read between nodes",
            "interpolation": self.interpolation_,
        }
        families = families_state(self.families_)
        state = {"conventions": conventions, "members": members, "families": families, "map": self.map_.get_state()}
        refits, more = refits_state(self.refits_)
        return {**state, "backing": self.backing_.get_state(), "refits": refits}, {**arrays, **more}

    @classmethod
    def from_saved(cls, header: Header, arrays: Arrays) -> Any:
        """Rebuild a fitted ensemble from the contents of its file."""
        older = recalibrated_in_version_01(header, arrays)
        return super().from_saved(header, arrays) if older is None else older

    @classmethod
    def known_parameters(cls, saved: Header) -> Header:
        """Return the parameters of a file as they are in Python; files before families had one."""
        asked = declared(saved, _Asked)
        member, companions = asked.estimator, asked.companions
        return {
            **saved,
            "estimator": None if member is None else from_description(member),
            "companions": None if companions is None else tuple(restored(one) for one in companions),
            "maps": tuple(asked.maps),
        }

    @property
    def n_columns(self) -> int | None:
        """How many prepared columns the members compute with; None if they do not say."""
        return self.members_[0].n_columns

    def set_state(self, header: Header, arrays: Arrays) -> None:
        """Set members, weights and maps from a file."""
        declared(header, EnsembleState)
        members = members_from(header["members"], arrays)
        nodes = read_times(arrays, "ensemble.nodes")
        self._adopt(families_from(header, members), nodes)
        if len(self.families_) == 1 and not np.array_equal(nodes, _union_of_nodes(members)):
            raise ValueError("the nodes of the ensemble are not those of its members.")
        self.map_ = sequence(header["map"])
        backing = header.get("backing")  # files before 0.2 do not know
        patients = header["training"]["patients"]
        self.backing_ = Backing.unknown(patients) if backing is None else Backing.from_state(backing)
        self.refits_ = refits_from(self, header.get("refits", []), arrays)


def _union_of_nodes(members: Sequence[SurvivalEstimator]) -> FloatArray:
    nodes = np.unique(np.concatenate([member.nodes for member in members]))
    return nodes[thinned(len(nodes))]


register(
    ModelKind(
        name="calibrated",
        model=CalibratedEnsemble,
        meaning="networks, Cox, accelerated failure and trees, weighted and recalibrated on held-out folds (default)",
        space=member_space("space"),
        paper_space=member_space("paper_space"),
        quick={"n_members": 2, "seeds_per_member": 1},
        wraps=True,
    )
)
