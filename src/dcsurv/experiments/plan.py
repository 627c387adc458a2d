"""What to run: datasets x models x splits x seeds becomes a list of independent tasks."""

from __future__ import annotations

import hashlib
import json
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from sklearn.base import clone

from dcsurv.calibration import CalibratedEnsemble
from dcsurv.datasets import NAMES
from dcsurv.experiments.peers import PEERS, Peer
from dcsurv.messages import InputError
from dcsurv.models import EncoderDecoderEstimator, NetworkEstimator, paper_settings

PAPER_MODELS: Final = ("CoxPH", "DeepSurv", "CoxTime", "DRSA", "Kamran", "DCS-linear", "DCS-log", "DCS-quant")
# Those that are networks, some of which take hours.
PAPER_NETWORKS: Final = PAPER_MODELS[1:]
# The paper's two ablations, all else as in DCS-quant: without event-censored pairs, and with the other spacings.
ABLATIONS: Final[dict[str, dict[str, Any]]] = {
    "DCS-quant, event-event pairs": {"event_censored_pairs": False},
    "DCS-quant, linear spacing": {"spacing": "linear"},
    "DCS-quant, log spacing": {"spacing": "log"},
}
# The row of this library: the cross-fitted, recalibrated ensemble as users get it, the same on every dataset.
CALIBRATED: Final = "calibrated ensemble"
# Rows written under another number are not read as results: it grows when metrics are computed in another way, as after
# 2, when G became that of the test patients and CDAUC got a fixed range.
FORMAT: Final = 3


class PlanError(InputError):
    """A plan that cannot be run, found out before anything is trained.

    Parameters
    ----------
    message : str
        What was wrong and what arrived.
    parameter : str or None, default None
        The parameter concerned, if it is one.
    remedy : str, default ""
        What to do.
    """


@dataclass(frozen=True)
class Task:
    """One model on one split of one dataset, from one seed.

    Attributes
    ----------
    settings
        The estimator's parameters as text: part of the task's identity.
    n_bootstrap
        Resamples behind the intervals of the default convention; the paper's ten are always drawn.
    """

    dataset: str
    model: str
    split: int
    seed: int
    n_bootstrap: int
    settings: dict[str, str]
    estimator: Any = field(compare=False, repr=False)

    @cached_property
    def key(self) -> str:
        """The name of the task's files; everything that decides its result goes into it."""
        identity = [FORMAT, self.dataset, self.model, self.split, self.seed, self.n_bootstrap, self.settings]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        readable = "".join(c if c.isalnum() else "-" for c in self.model).lower()[:60]
        return f"{self.dataset}_{readable}_s{self.split}_r{self.seed}_{digest[:10]}"

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f"{self.model} on {self.dataset}, split {self.split}"

    @property
    def cost(self) -> float:
        """A rough guess of the time it takes, in arbitrary units, to run long tasks first and to see the end."""
        return expected_cost(self.estimator, {"support": 7098, "metabric": 1523, "flchain": 6299}[self.dataset])


def expected_cost(estimator: Any, patients: int) -> float:
    """Return a rough guess of the time that a fit takes, in arbitrary units."""
    if isinstance(estimator, CalibratedEnsemble):
        return patients * (estimator.n_members or 5) * estimator.seeds_per_member * 100 * 200.0
    if isinstance(estimator, EncoderDecoderEstimator):
        directions = 2 if getattr(estimator, "bidirectional", False) else 1
        width = max(estimator.decoder_size, 32) * estimator.decoder_layers * directions
        return patients * estimator.max_epochs * (200 + (estimator.n_nodes or 40) * width)
    if isinstance(estimator, NetworkEstimator):
        return patients * estimator.max_epochs * 200.0
    return patients * (20_000.0 if isinstance(estimator, Peer) else 2_000.0)


@dataclass(frozen=True)
class Plan:
    """Datasets x models x splits x seeds.

    Parameters
    ----------
    datasets : sequence of str, default ("support", "metabric", "flchain")
        Names of embedded cohorts.
    models : sequence of str or mapping, default PAPER_MODELS
        Names (the paper's eight, its ablations, ``"calibrated ensemble"``, peers), or estimators by name.
    splits : sequence of int, default (40,)
        Seeds of the stratified 80/20 splits.
    seeds : sequence of int, default (0,)
        Seeds of the models (initial weights, batches, validation rows).
    n_bootstrap : int, default 200
        Resamples of the test patients behind each row's intervals.
    changes : mapping, default {}
        Parameters set on every model that has them, such as ``{"max_epochs": 3}`` for a quick look.
    fewer_splits : mapping, default {}
        Models that run on the first few splits only, and on how many at most: ``{"DRSA": 5}``.

    Examples
    --------
    >>> from dcsurv import CoxPH
    >>> from dcsurv.experiments import Plan
    >>> plan = Plan(["metabric"], {"CoxPH": CoxPH(), "penalised": CoxPH(penalizer=0.1)}, splits=range(5))
    >>> len(plan.tasks())
    10
    """

    datasets: Sequence[str] = NAMES
    models: Sequence[str] | Mapping[str, Any] = PAPER_MODELS
    splits: Sequence[int] = (40,)
    seeds: Sequence[int] = (0,)
    n_bootstrap: int = 200
    changes: Mapping[str, Any] = field(default_factory=dict)
    fewer_splits: Mapping[str, int] = field(default_factory=dict)

    def tasks(self) -> list[Task]:
        """Return every task of the plan.

        Returns
        -------
        list of Task
            Datasets outermost, then models, splits and seeds.

        Raises
        ------
        PlanError
            One of them cannot be run.
        """
        self._check()
        tasks = [
            self._task(dataset, model, int(split), int(seed))
            for dataset in self.datasets
            for model in self.models
            for split in list(self.splits)[: self.fewer_splits.get(model)]
            for seed in self.seeds
        ]
        known = {name.split("__")[-1] for task in tasks for name in task.estimator.get_params()}
        unknown = [name for name in self.changes if name not in known]
        if unknown:
            raise PlanError(f"changes names {unknown}, which is a parameter of no model of the plan.")
        return tasks

    def _check(self) -> None:
        for name, values in (("datasets", self.datasets), ("models", self.models), ("splits", self.splits)):
            if isinstance(values, str):
                raise PlanError(f"{name} is the text {values!r}; pass a list, such as [{values!r}].")
        for name in ("datasets", "models", "splits", "seeds"):
            values = list(getattr(self, name))
            if not values:
                raise PlanError(f"the plan has no {name}.")
            if len(set(values)) < len(values):
                raise PlanError(f"the plan names some {name} twice: {values}.")
        for name in self.models:
            if not isinstance(name, str):
                raise PlanError(f"models holds {name!r}; a model goes by a name, which is text.")
        for name, most in self.fewer_splits.items():
            if name not in self.models or most < 1:
                raise PlanError(f"fewer_splits gives {name!r} {most} splits; name a model of the plan, and at least 1.")
        unknown = [name for name in self.datasets if name not in NAMES]
        if unknown:
            raise PlanError(f"unknown datasets {unknown}; there are {', '.join(NAMES)}.")
        if not isinstance(self.n_bootstrap, numbers.Integral) or self.n_bootstrap < 2:
            raise PlanError(f"n_bootstrap is {self.n_bootstrap}; an interval needs at least 2 resamples.")
        for name in ("splits", "seeds"):
            for value in getattr(self, name):
                if not isinstance(value, numbers.Integral) or value < 0:
                    raise PlanError(f"{name} holds {value!r}; seeds are whole numbers from 0 on.")

    def _task(self, dataset: str, model: str, split: int, seed: int) -> Task:
        estimator = self._estimator(model, dataset)
        set_everywhere(estimator, {**self.changes, "random_state": seed})
        settings = settings_of(estimator)
        return Task(dataset, model, split, seed, int(self.n_bootstrap), settings, estimator)

    def _estimator(self, model: str, dataset: str) -> Any:
        if isinstance(self.models, Mapping):
            estimator = self.models[model]
            needed = ("fit", "predict_survival_function", "get_params")
            if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in needed):
                raise PlanError(
                    f"model {model!r} is {estimator!r}, but an estimator object with fit and predict_survival_function "
                    "is expected."
                )
            return clone(estimator)
        if model in PAPER_MODELS:
            return paper_settings(model, dataset)
        if model in ABLATIONS:
            return paper_settings("DCS-quant", dataset, **ABLATIONS[model])
        if model == CALIBRATED:
            return CalibratedEnsemble(time_unit="days")
        if model in PEERS:
            peer = PEERS[model]
            if not peer.installed():
                raise PlanError(f"{model} needs the package {peer.distribution}, which is not installed.")
            return clone(peer)
        possible = [*PAPER_MODELS, *ABLATIONS, CALIBRATED, *PEERS]
        raise PlanError(f"unknown model {model!r}; there are {', '.join(map(repr, possible))}.")


def set_everywhere(estimator: Any, wanted: Mapping[str, Any]) -> None:
    """Set parameters also inside pipelines and ensembles, whose parameters go by names such as dcs__random_state."""
    inner = {name: wanted[last] for name in estimator.get_params() if (last := name.split("__")[-1]) in wanted}
    estimator.set_params(**inner)


def settings_of(estimator: Any) -> dict[str, str]:
    """Return class and parameters of an estimator as text: part of a task's identity."""
    settings = {name: identity_text(value) for name, value in sorted(estimator.get_params(deep=False).items())}
    settings["class"] = f"{type(estimator).__module__}.{type(estimator).__qualname__}"
    return settings


def identity_text(value: Any) -> str:
    """Return a parameter as text that is the same if and only if the parameter is.

    Not its repr: NumPy and scikit-learn abbreviate theirs, and a plain object's holds its address.
    """
    if value is None or isinstance(value, str | numbers.Number | bool):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {identity_text(value[key])}" for key in sorted(value, key=repr)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(identity_text, value)) + "]"
    if hasattr(value, "get_params") and not isinstance(value, type):
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        return name + identity_text(value.get_params(deep=False))
    raise PlanError(f"the parameter {value!r} cannot be identified, so its results could not be found again.")
