"""What a calibrated ensemble is made of: families of members, and how large they are for how many events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dcsurv._learn import clone
from dcsurv.arithmetic import Value
from dcsurv.arithmetic.readable import average
from dcsurv.calibration.maps import MapSequence
from dcsurv.kinds import kind_of, kinds, make_model
from dcsurv.messages import plural
from dcsurv.models import DCS, SurvivalEstimator
from dcsurv.models.base import Features
from dcsurv.models.grid_model import GridEstimator, nodes_for
from dcsurv.search_space import Space, TuningError, prefixed
from dcsurv.target import FloatArray, IntArray, Outcome, train_test_indices

# With fewer events networks and trees learn little more than noise, and take part in no default ensemble.
ENOUGH_FOR_NETWORKS = 40
# Below so many events a fifth of them is too much to leave out of the training of every member.
_FEW = 400
# A network of one small layer learns as much from few events as a larger one.
_SMALL_NETWORK = {"encoder_layers": 1, "encoder_size": 32}
# The families beside the networks by default.
COMPANIONS: Final = ("spline-cox", "spline-aft", "boosted", "forest")
# Trees of which those of all folds are averaged need not be as many as those of a model that stands alone.
_IN_ENSEMBLES: Final = {"boosted": {"folds": 3}, "forest": {"n_trees": 50}}
# Those of them that learn from few events, too.
_FRUGAL = ("spline-cox", "spline-aft")
# With more columns than this, and than patients, the families are Cox models of so many columns: a few that may bend,
# more of them, and a ridge regression, for when every column says a little (benchmarks/wide.py).
_WIDE = 1000
_STRONGEST = (10, 50, 5000)
# What the weights are drawn to where the others count 1: a smooth model is the safest bet on a small cohort.
_PRIOR = {"spline-aft": 3.0, "forest": 0.5}
_NODES = 120
# Weights and maps are a few dozen numbers: found on so many patients, or on more where these have fewer events than
# this, up to what memory allows for.
_ENOUGH_PATIENTS, _ENOUGH_EVENTS, _MOST_PATIENTS = 20_000, 2_000, 60_000


def default_member(**changes: Any) -> DCS:
    """Return the networks of a calibrated ensemble: a DCS without recurrent decoder, unfitted.

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
        "learning_rate": 3e-3,
        "patience": 5,
    }
    return DCS(**(settings | changes))


@dataclass(frozen=True)
class Family:
    """Members of one kind, K folds times some seeds; those of one fold stand in a row.

    Parameters
    ----------
    name : str
        Name of the kind.
    members : list of SurvivalEstimator
        The fitted members.
    n_folds : int
        How many folds.
    weight : float
        Share of the family in the mean; those of all families sum to one.
    map : MapSequence
        What its own curves pass through before they are averaged with others.
    """

    name: str
    members: list[SurvivalEstimator]
    n_folds: int
    weight: float
    map: MapSequence

    @property
    def meaning(self) -> str:
        """One line on what it is; empty for a kind that is not registered."""
        known = {kind.name: kind.meaning for kind in kinds()}
        return known.get(self.name.split(" ")[0], "")

    @property
    def n_seeds(self) -> int:
        """Members of each fold."""
        return len(self.members) // self.n_folds

    def by_fold(self, X: Features, nodes: FloatArray) -> Iterator[FloatArray]:
        """Yield the mean of the members of each fold, not mapped, one row per node, (T, n) each."""
        members = type(self.members[0]).survival_of(self.members, X, nodes)
        for first in members:
            others = itertools.islice(members, self.n_seeds - 1)
            yield first if self.n_seeds == 1 else sum(others, start=first) / self.n_seeds

    def arithmetic_by_fold(self, prepared: Value, nodes: FloatArray) -> list[Value]:
        """Return what :meth:`by_fold` yields as arithmetic, (n, T) each."""
        members = [member.survival_arithmetic_at(prepared, nodes) for member in self.members]
        return [average(members[k : k + self.n_seeds]) for k in range(0, len(members), self.n_seeds)]


def mapped(one: MapSequence, survival: FloatArray, nodes: FloatArray) -> FloatArray:
    """Return survival at nodes, (n, T), after a map; what would rise is held."""
    if not one.maps:
        return survival
    out: FloatArray = np.minimum.accumulate(one(survival, nodes), axis=1)
    return out


def folds_for(n_events: int) -> int:
    """Return how many folds follow the events: 10 if they are few, otherwise 5; never more than there are events."""
    return max(2, min(10 if n_events < _FEW else 5, n_events))


def looked_at(y: Outcome, seed: int) -> IntArray:
    """Return the patients on whom weights and maps are found, ascending: all, or a draw that says as much."""
    share = float(y["event"].mean())
    enough = min(max(_ENOUGH_PATIENTS, int(np.ceil(_ENOUGH_EVENTS / share))), _MOST_PATIENTS)
    if len(y) <= enough:
        return np.arange(len(y))
    return np.sort(train_test_indices(y, test_size=enough / len(y), random_state=seed)[1])


def common_nodes(y: Outcome) -> FloatArray:
    """Return the times on which curves of several families are averaged: quantiles of the event times, and the last."""
    events = y["time"][y["event"]]
    nodes = np.unique(np.quantile(events, np.arange(1, _NODES + 1) / _NODES))
    nodes = nodes[nodes > 0]
    last = float(y["time"].max())
    return nodes if len(nodes) and nodes[-1] >= last else np.append(nodes, last)


def name_of(model: SurvivalEstimator) -> str:
    """Return what to call the family of a model."""
    kind = kind_of(model)
    return type(model).__name__ if kind is None else kind.name


def names_of(models: Sequence[SurvivalEstimator]) -> list[str]:
    """Return the names of families; one that comes again gets a number."""
    out: list[str] = []
    for name in map(name_of, models):
        again = sum(one.split(" ")[0] == name for one in out)
        out.append(f"{name} {again + 1}" if again else name)
    return out


def priors_of(models: Sequence[SurvivalEstimator]) -> list[float]:
    """Return what the weights of families are drawn to, up to a factor."""
    return [_PRIOR.get(name_of(model), 1.0) for model in models]


def templates_for(
    estimator: Any, companions: Any, n_events: int, shape: tuple[int, int] = (0, 0)
) -> tuple[list[SurvivalEstimator], list[str]]:
    """Return a member of each family, unfitted, for so many events that it is trained on, and what they decided.

    Parameters
    ----------
    estimator : estimator or None
        The networks; None: the default ones.
    companions : sequence of str or estimators, or None
        The other families; None: the default ones beside default networks, else none.
    n_events : int
        Events that a member is trained on.
    shape : tuple of int, default (0, 0)
        Patients and columns of the cohort.
    """
    by_default = estimator is None and companions is None
    if by_default and shape[1] > max(shape[0], _WIDE):
        columns = [min(count, shape[1]) for count in _STRONGEST]
        remark = (
            f"{shape[1]:,} columns of {plural(shape[0], 'patient')} are too many for networks and trees. Cox models of "
            f"the {' and '.join(f'{count:,}' for count in columns)} columns that alone go along most with the outcome "
            "take part, chosen anew without each fold."
        )
        models = [make_model("spline-cox").set_params(strongest=count) for count in columns]
        return [_ready(one, n_events) for one in models], [remark]
    names: Sequence[Any] = COMPANIONS if by_default else companions or ()
    if by_default and n_events < ENOUGH_FOR_NETWORKS:
        models = [make_model(name) for name in _FRUGAL]
        words = " and ".join(type(one).__name__ for one in models)
        seen = plural(n_events, "event")
        remark = f"Members were trained on {seen}, too few for networks and trees: only {words} take part."
        return [_ready(one, n_events) for one in models], [remark]
    network = estimator
    if estimator is None:
        network = default_member(**(_SMALL_NETWORK if n_events < _FEW else {}))
    models = [network, *(_companion(one) if isinstance(one, str) else one for one in names)]
    return [_ready(one, n_events) for one in models], []


def _companion(name: str) -> SurvivalEstimator:
    model: SurvivalEstimator = make_model(name)
    return model.set_params(**_IN_ENSEMBLES.get(name, {}))


def _ready(model: SurvivalEstimator, n_events: int) -> SurvivalEstimator:
    """Return a copy without preprocessing of its own, on a grid that all members share."""
    out: SurvivalEstimator = clone(model)
    out.set_params(preprocess=None)
    if isinstance(out, GridEstimator) and out.n_nodes is None:
        out.set_params(n_nodes=nodes_for(n_events))  # the same for all members, whatever their folds hold
    return out


def seeded(template: SurvivalEstimator, seed: int) -> SurvivalEstimator:
    """Return a copy with a seed, if it takes one."""
    member: SurvivalEstimator = clone(template)
    if "random_state" in member.get_params(deep=False):
        member.set_params(random_state=seed)
    return member


def member_space(which: str) -> Any:
    """Return the function that makes the space of a kind's members for an ensemble of them."""

    def space(ensemble: Any, y: Any) -> Space:
        member = default_member() if ensemble.estimator is None else ensemble.estimator
        kind = kind_of(member)
        found = None if kind is None else getattr(kind, which)
        if found is None:
            raise TuningError(f"there is no such space for a {type(member).__name__}. Pass one of your own.")
        return prefixed("estimator__", found(member, y) if callable(found) else found)

    return space
