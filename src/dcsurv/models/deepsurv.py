"""DeepSurv: Cox's model with a network in place of the linear predictor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dcsurv.losses import cox_partial_likelihood
from dcsurv.models.base import Features, Outcome
from dcsurv.models.baseline import proportional_survival, relative_risk, thinned
from dcsurv.models.network import NetworkEstimator, Parts
from dcsurv.networks import MLP
from dcsurv.nonparametric import breslow
from dcsurv.persistence import Arrays, Header, saveable
from dcsurv.target import FloatArray
from dcsurv.training import BatchLoss


@saveable
@dataclass(kw_only=True, repr=False, eq=False)
class DeepSurv(NetworkEstimator):
    """Proportional hazards with a network: S(t | x) = exp(-H0(t) exp(g(x))).

    Trained on the partial likelihood of each batch (Breslow's rule for ties); H0 is Breslow's estimate from all
    rows given to ``fit``.

    Parameters
    ----------
    layers, layer_size
        Hidden layers of [Linear, ReLU, BatchNorm, Dropout] and nodes in each.
    batch_size, max_epochs, patience, learning_rate, validation_fraction, dropout, weight_decay, clip_norm, \
    random_state, device, verbose
        See :class:`NetworkEstimator`.
    preprocess, time_unit
        See :class:`SurvivalEstimator`.

    References
    ----------
    Katzman et al.: DeepSurv. BMC Medical Research Methodology 18 (2018).
    """

    layers: int = 1
    layer_size: int = 32
    batch_size: int = 256
    learning_rate: float = 1e-2

    ranges: ClassVar[dict[str, tuple[float, float, bool]]] = {
        **NetworkEstimator.ranges,
        "layers": (0, float("inf"), True),
        "layer_size": (1, float("inf"), True),
    }

    def _build(self) -> nn.Module:
        return MLP(self.n_inputs_, self.layers, self.layer_size, dropout=self.dropout)

    def _batch_loss(self, X: Tensor, y: Outcome, weight: Tensor | None, parts: Parts) -> BatchLoss:
        # float32 would merge times that differ; their ranks are enough, and exact.
        rank = torch.as_tensor(np.unique(y["time"], return_inverse=True)[1], device=X.device)
        event = torch.as_tensor(np.ascontiguousarray(y["event"]), device=X.device)

        def loss(network: nn.Module, rows: Tensor) -> Tensor:
            some = None if weight is None else weight.index_select(0, rows)
            log_risk = network(X.index_select(0, rows))
            return cox_partial_likelihood(log_risk, rank.index_select(0, rows), event.index_select(0, rows), some)

        return loss

    def _after_training(self, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        risk = relative_risk(self._forward(X).cpu().numpy())
        times, hazard = breslow(np.ascontiguousarray(y["time"]), y["event"], risk, weight)
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]

    def _nodes(self) -> FloatArray:
        return self.times_

    def _survival(self, X: Features) -> FloatArray:
        return proportional_survival(self.cumulative_hazard_, self._forward(X).cpu().numpy())

    def _to_saved(self) -> tuple[Header, Arrays]:
        header, arrays = super()._to_saved()
        baseline = {"baseline.times": self.times_, "baseline.cumulative_hazard": self.cumulative_hazard_}
        return header, {**arrays, **baseline}

    def _restore(self, header: Header, arrays: Arrays) -> None:
        super()._restore(header, arrays)
        self.times_ = arrays["baseline.times"]
        self.cumulative_hazard_ = arrays["baseline.cumulative_hazard"]
