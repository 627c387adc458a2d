"""CoxTime: a relative risk that may change over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.baseline import read_times, relative_risk, risk_arithmetic, thinned
from dcsurv.models.network import QUICK, TRAINING_SPACE, NetworkEstimator, Parts
from dcsurv.models.ranges import Range, WholeNumber
from dcsurv.models.tensors import losses, networks, torch, training
from dcsurv.persistence import Arrays, Header, read_array
from dcsurv.plain import Finite, Positive, declared
from dcsurv.search_space import Choice, Int
from dcsurv.target import FloatArray, Outcome

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

_VALIDATION_CONTROLS = 10


class _Scaling(msgspec.Struct):
    mean: Finite
    scale: Positive


class _State(msgspec.Struct):
    """What the header of a file has to say of a CoxTime, besides its network."""

    time_scaling: _Scaling


@dataclass(kw_only=True, repr=False, eq=False)
class CoxTime(NetworkEstimator):
    """Non-proportional hazards h(t | x) = h0(t) exp(g(x, t)), trained on cases and drawn controls.

    Every event of a batch is compared at its time with one patient drawn from those still at risk. The baseline
    has an increment d(t) / sum_{at risk} exp g(x, t) at each event time, and
    S(t | x) = exp(-sum_{t_k <= t} increment_k exp g(x, t_k)).

    Parameters
    ----------
    layers
        Hidden layers of [Linear, ReLU, BatchNorm, Dropout].
    layer_size
        Nodes in each.
    batch_size
        Patients with an event per step.

    References
    ----------
    Kvamme, Borgan and Scheel: Time-to-event prediction with neural networks and Cox regression. Journal of
    Machine Learning Research 20 (2019).

    Examples
    --------
    >>> from dcsurv import CoxTime
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = CoxTime(max_epochs=5, random_state=0).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    """

    layers: int = 1
    layer_size: int = 32
    batch_size: int = 256
    learning_rate: float = 1e-2

    batches_of_events: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        **NetworkEstimator.ranges,
        "layers": WholeNumber(0),
        "layer_size": WholeNumber(1),
    }

    def build_network(self) -> Module:
        return networks.MLP(self.n_inputs_ + 1, self.layers, self.layer_size, dropout=self.dropout, output_bias=False)

    def batch_loss(self, X: Tensor, y: Outcome, weight: Tensor | None, parts: Parts) -> training.BatchLoss:
        self.time_mean_, self.time_scale_ = float(y["time"].mean()), float(y["time"].std()) or 1.0
        time = torch.as_tensor(self._scaled(y["time"]), device=X.device)
        draw = _Controls(y["time"], parts, weight, X.device)
        # Drawn once, so that epochs are compared on the same pairs, and several per case, to have less noise.
        every_row = torch.arange(len(y), device=X.device)
        fixed_controls = torch.stack([draw(every_row) for _ in range(_VALIDATION_CONTROLS)], dim=1)

        def loss(network: Module, rows: Tensor) -> Tensor:
            if network.training:
                controls = draw(rows)
            else:
                controls = fixed_controls.index_select(0, rows).flatten()
                rows = rows.repeat_interleave(_VALIDATION_CONTROLS)
            # One pass for both, so that batch normalisation sees them together.
            both = X.index_select(0, torch.cat([rows, controls]))
            at = time.index_select(0, rows).repeat(2)
            case, control = network(torch.cat([both, at.unsqueeze(1)], dim=1)).chunk(2)
            return losses.case_control(case, control, None if weight is None else weight.index_select(0, rows))

        return loss

    def _scaled(self, time: FloatArray) -> Features:
        return ((time - self.time_mean_) / self.time_scale_).astype(np.float32)

    def _risk(self, X: Features, times: FloatArray) -> FloatArray:
        """Return exp g(x, t) for every patient and time, (n, T)."""
        n, m = len(X), len(times)
        x = torch.as_tensor(X).unsqueeze(1).expand(n, m, -1)
        t = torch.as_tensor(self._scaled(times)).view(1, m, 1).expand(n, m, 1)
        log_risk = self.outputs_of(torch.cat([x, t], dim=2).view(n * m, -1).numpy())
        return relative_risk(log_risk.cpu().numpy()).reshape(n, m)

    def after_training(self, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        order = np.argsort(y["time"], kind="stable")
        time, ordered = y["time"][order], X[order]
        mass = np.ones(len(y)) if weight is None else weight[order]
        event_mass = mass * y["event"][order]
        times = np.unique(time[event_mass > 0])
        self.times_ = times[thinned(len(times))]
        # Events since the node before count at a node (which changes nothing unless nodes were thinned out).
        deaths = np.diff(np.append(0, np.cumsum(event_mass))[np.searchsorted(time, self.times_, "right")], prepend=0)
        self.increments_ = np.empty(len(self.times_))
        for k, start in enumerate(np.searchsorted(time, self.times_, "left")):
            at_risk = mass[start:] @ self._risk(ordered[start:], self.times_[k : k + 1])[:, 0]
            self.increments_[k] = deaths[k] / at_risk

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return np.exp(-np.cumsum(self.increments_ * self._risk(X, self.times_), axis=1))

    def survival_arithmetic(self, prepared: Value) -> Value:
        log_risk = networks.MLP.arithmetic_of(self.network_, prepared, self._scaled(self.times_).astype(np.float64))
        return (-(risk_arithmetic(log_risk) * self.increments_).running_sum()).exp()

    def numbers_per_row(self) -> int:
        return len(self.nodes) * (2 * self.layer_size + int(self.n_inputs_) + 8)

    def get_state(self) -> tuple[Header, Arrays]:
        header, arrays = super().get_state()
        header["time_scaling"] = {"mean": self.time_mean_, "scale": self.time_scale_}
        return header, {**arrays, "baseline.times": self.times_, "baseline.increments": self.increments_}

    def set_state(self, header: Header, arrays: Arrays) -> None:
        super().set_state(header, arrays)
        self.times_ = read_times(arrays, "baseline.times")
        self.increments_ = read_array(arrays, "baseline.increments", self.times_.shape)
        if (self.increments_ < 0).any():
            raise ValueError("its baseline hazard does not ascend")
        scaling = declared(header, _State).time_scaling
        self.time_mean_, self.time_scale_ = scaling.mean, scaling.scale


class _Controls:
    """Draw, for any rows, one patient each of the same part who is at risk at their time."""

    def __init__(self, time: FloatArray, parts: Parts, weight: Tensor | None, device: torch.device) -> None:
        # Each part in order of time; those at risk at z_i are then the rows from `first` to the end of the part.
        self.order = torch.as_tensor(np.concatenate([rows[np.argsort(time[rows])] for rows in parts]), device=device)
        mass = torch.ones(len(time), device=device) if weight is None else weight
        # A draw is a uniform number on the running sum of weights, hence proportional to weight.
        running = torch.cat([torch.zeros(1, device=device), mass[self.order]]).double().cumsum(0)
        first, last = np.empty(len(time), dtype=np.int64), np.empty(len(time), dtype=np.int64)
        begin = 0
        for rows in parts:
            first[rows] = begin + np.searchsorted(np.sort(time[rows]), time[rows])
            begin += len(rows)
            last[rows] = begin
        self.low, self.high = running[first], running[last]
        self.first, self.last = torch.as_tensor(first, device=device), torch.as_tensor(last, device=device)
        self.running = running

    def __call__(self, rows: Tensor) -> Tensor:
        low = self.low[rows]
        at = low + torch.rand(len(rows), dtype=low.dtype, device=rows.device) * (self.high[rows] - low)
        position = torch.searchsorted(self.running, at, right=True) - 1
        # Rounding, and zero weights, must not lead out of the risk set.
        return self.order[torch.minimum(torch.maximum(position, self.first[rows]), self.last[rows] - 1)]


register(
    ModelKind(
        name="coxtime",
        model=CoxTime,
        meaning="Cox with a network that also sees time",
        space={**TRAINING_SPACE, "layers": Int(1, 4), "layer_size": Int(8, 128, log=True)},
        paper_space={"layers": Int(1, 5), "layer_size": Choice((8, 16, 32, 64, 128))},
        quick=QUICK,
        is_member=True,
    )
)
