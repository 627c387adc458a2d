"""The calibrated ensemble: members trained on folds, curves averaged, maps fitted on the folds that were left out."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from dcsurv.calibration.maps import MapSequence, make_maps, map_from_state
from dcsurv.calibration.recalibrated import parts_of, recalibrated_in_version_01
from dcsurv.curves import Interpolation, SurvivalCurves
from dcsurv.kinds import ModelKind, kind_in_file, kind_of, kinds, register
from dcsurv.messages import plural
from dcsurv.models import DCS, CurveParts, SurvivalEstimator
from dcsurv.models.base import Features
from dcsurv.models.baseline import thinned
from dcsurv.models.grid_model import GridEstimator, nodes_for
from dcsurv.models.network import as_random_state
from dcsurv.models.ranges import Range, WholeNumber
from dcsurv.persistence import Arrays, Header, ModelFileError
from dcsurv.search_space import Space, TuningError, prefixed
from dcsurv.target import FloatArray, IntArray, Outcome, fold_indices
from dcsurv.training import one_thread


def default_member(**changes: Any) -> DCS:
    """Return what a calibrated ensemble is made of by default: a DCS without recurrent decoder, unfitted.

    It differs from ``DCS()``: features are spread over bins, the network is wider and has no LSTM, and the number of
    nodes follows the events. Chosen on cohorts other than the three of the paper: ``docs/results/development``.

    Parameters
    ----------
    **changes : object
        Parameters of :class:`DCS` that are to be others, such as ``lam=1.0``.

    Examples
    --------
    >>> from dcsurv.calibration import CalibratedEnsemble, default_member
    >>> CalibratedEnsemble(estimator=default_member(lam=1.0)).estimator.lam
    1.0
    """
    settings = {
        "n_nodes": None,
        "feature_bins": 8,
        "encoder_layers": 2,
        "encoder_size": 64,
        "decoder_layers": 0,
        "weight_decay": 1e-3,
    }
    return DCS(**(settings | changes))


@dataclass(kw_only=True, repr=False, eq=False)
class CalibratedEnsemble(SurvivalEstimator):
    r"""Average of members trained on all folds but one, recalibrated on the folds that were left out.

    .. math:: S(t | x) = M\left(\frac{1}{K} \sum_k S_k(t | x),\ t\right)

    Member k is trained without fold k and predicts it; these out-of-fold curves, and nothing else, fit the maps M.

    Parameters
    ----------
    estimator : estimator or None, default None
        What the members are: any model that can be a member, unfitted. None is :func:`default_member`, which is another
        network than ``DCS()``: to change one of its parameters, use ``default_member(lam=1.0)`` or
        ``set_params(estimator__lam=1.0)``. Its own ``preprocess`` is not used: the ensemble prepares the features once
        for all members.
    n_members : int, default 5
        Number of folds and members, K, at least 2.
    seeds_per_member : int, default 3
        Networks, trained from different seeds, whose mean each member is. With one, the maps are fitted on curves of
        single networks, which are more extreme than the mean of all that they then correct. Members without a seed,
        such as CoxPH, are fitted once.
    maps : sequence of str, default ("horizon", "rank")
        Names of the maps in the order in which they are applied: ``"horizon"`` (:class:`HorizonMap`) and ``"rank"``
        (:class:`RankPreservingMap`). An empty tuple averages only.
    n_jobs : int or None, default 1
        Processes that train members at the same time; -1 takes all cores. The result does not depend on it.
    random_state : int, Generator, RandomState or None, default None
        Seed, generator or None: deals the folds and seeds the members.

    Attributes
    ----------
    members_ : list of SurvivalEstimator
        The fitted networks of all members, those of one member in a row; their inputs are the features after
        preprocessing, which is fitted to the features (never the outcomes) of all training rows.
    map_ : MapSequence
        The fitted maps.

    Notes
    -----
    Curves live on the union of the members' nodes, where averaging linear or step curves loses nothing; above 2048
    nodes, evenly chosen ones are kept.

    Examples
    --------
    >>> from dcsurv import CalibratedEnsemble
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = CalibratedEnsemble(n_members=2, seeds_per_member=1, random_state=0)
    >>> model = model.set_params(estimator__max_epochs=5).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    """

    estimator: Any = None
    n_members: int = 5
    seeds_per_member: int = 3
    maps: Sequence[str] = ("horizon", "rank")
    n_jobs: int | None = 1
    random_state: Any = None

    ranges: ClassVar[dict[str, Range]] = {"n_members": WholeNumber(2), "seeds_per_member": WholeNumber(1)}

    # --- fitting ------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep : bool, default True
            Whether those of the members are among them, as ``estimator__NAME``; of the default members too.
        """
        out: dict[str, Any] = super().get_params(deep)
        if deep and self.estimator is None:
            out |= {f"estimator__{name}": value for name, value in default_member().get_params().items()}
        return out

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``estimator__NAME`` sets one of the members, also of those by default.

        Parameters
        ----------
        **params : object
            Parameters of the ensemble, or of its members with ``estimator__`` before their names.
        """
        of_members = any(name.startswith("estimator__") for name in params)
        if of_members and self.estimator is None and params.get("estimator") is None:
            params.pop("estimator", None)
            self.estimator = default_member()
        out: Self = super().set_params(**params)
        return out

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        """Train the members on the folds, then fit the maps to what each predicts for its left-out fold."""
        import joblib

        events = int(y["event"].sum())
        if self.n_members > min(events, len(y)):
            raise ValueError(
                f"n_members is {self.n_members}, but y has {plural(events, 'event')} among n_samples={len(y)} "
                "patients, and every fold needs an event. Use fewer members."
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
        """Return a member, unfitted, for so many events that it will be trained on."""
        template: SurvivalEstimator = default_member() if self.estimator is None else clone(self.estimator)
        template.set_params(preprocess=None)
        if isinstance(template, GridEstimator) and template.n_nodes is None:
            template.set_params(n_nodes=nodes_for(n_events))  # the same for all members, whatever their folds hold
        return template

    def _adopt(self, members: list[SurvivalEstimator]) -> None:
        """Take fitted members and the nodes that follow from theirs."""
        self.members_ = members
        self.interpolation_: Interpolation = members[0].interpolation
        nodes = np.unique(np.concatenate([member.nodes for member in members]))
        self.nodes_: FloatArray = nodes[thinned(len(nodes))]

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        super().check_parameters()
        kind = kind_of(self.estimator)
        known = self.estimator is None or isinstance(self.estimator, SurvivalEstimator)
        if not known or (kind is not None and not kind.is_member):
            raise ValueError(
                f"estimator is a {type(self.estimator).__name__}, but one of {', '.join(_possible())} is expected. "
                "Curves of other models can be recalibrated with HorizonMap and RankPreservingMap."
            )
        make_maps(self.maps)

    # --- predicting ---------------------------------------------------------------------------------------

    @property
    def nodes(self) -> FloatArray:
        """The union of the members' nodes."""
        return self.nodes_

    @property
    def has_band(self) -> bool:
        """Whether :meth:`predict_band` can be asked: there are several networks."""
        return len(self.members_) > 1

    def survival_at_nodes(self, X: Features) -> FloatArray:
        """Return the mean of the members at the nodes, before the maps, (n, T)."""
        total = np.zeros((len(X), len(self.nodes_)))
        for member in self.members_:
            total += member.curves_of(X).evaluate(self.nodes_)
        return total / len(self.members_)

    def curve_parts(self, prepared: Features) -> CurveParts:
        """Return the mean of the members, recalibrated; what rides along as a transform stays one."""
        return parts_of(self.map_.transform(self._on_nodes(self.survival_at_nodes(prepared))))

    @property
    def display_name(self) -> str:
        """What to call the model in a sentence: an ensemble also by its members."""
        kinds_ = sorted({type(member).__name__ for member in self.members_})
        return f"{type(self).__name__} ({len(self.members_)} × {' / '.join(kinds_)})"

    def before_recalibration(self) -> CalibratedEnsemble | None:
        """Return the mean of the members without the maps; None if there are no maps."""
        if not self.map_.maps:
            return None
        bare = copy.copy(self)
        bare.map_ = make_maps(())
        return bare

    def member_curves(self, prepared: Features) -> Iterator[SurvivalCurves]:
        """Yield the curves of each network, recalibrated as the ensemble is."""
        for member in self.members_:
            yield self.map_.transform(self._on_nodes(member.curves_of(prepared).evaluate(self.nodes_)))

    def _on_nodes(self, values: FloatArray) -> SurvivalCurves:
        return SurvivalCurves(self.nodes_, values, interpolation=self.interpolation_)

    def numbers_per_row(self) -> int:
        """Return how many numbers a prediction holds in memory for each patient."""
        # The maps hold a few copies of curves with some hundred nodes more.
        return max(16 * len(self.nodes_) + 4096, *(member.numbers_per_row() for member in self.members_))

    # --- files --------------------------------------------------------------------------------------------

    def plain_parameters(self) -> Header:
        """Return the parameters as plain data for a file."""
        own = {"estimator": None if self.estimator is None else _describe(self.estimator), "maps": list(self.maps)}
        return {**super().plain_parameters(), **own}

    def get_state(self) -> tuple[Header, Arrays]:
        """Return members and maps."""
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
        return {"conventions": conventions, "members": members, "map": self.map_.get_state()}, arrays

    @classmethod
    def from_saved(cls, header: Header, arrays: Arrays) -> Any:
        """Rebuild a fitted ensemble from the contents of its file."""
        older = recalibrated_in_version_01(header, arrays)
        return super().from_saved(header, arrays) if older is None else older

    @classmethod
    def known_parameters(cls, saved: Header) -> Header:
        """Return the parameters of a file as they are in Python."""
        member = saved["estimator"]
        estimator = None if member is None else _from_description(member)
        return {**saved, "estimator": estimator, "maps": tuple(saved["maps"])}

    def set_state(self, header: Header, arrays: Arrays) -> None:
        """Set members and maps from a file."""
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
        self._adopt(members)
        if not np.array_equal(self.nodes_, arrays["ensemble.nodes"]):
            raise ValueError("the nodes of the ensemble are not those of its members.")
        restored = map_from_state(header["map"])
        if not isinstance(restored, MapSequence):
            raise ValueError("the map of an ensemble must be a sequence.")
        self.map_ = restored


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
        meaning="several DCS networks, averaged and recalibrated on held-out folds (default)",
        space=_member_space("space"),
        paper_space=_member_space("paper_space"),
        quick={"n_members": 2, "seeds_per_member": 1},
        wraps=True,
    )
)


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
