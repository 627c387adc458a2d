"""DeepSurv: Cox's model with a network in place of the linear predictor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.baseline import (
    proportional_arithmetic,
    proportional_survival,
    read_baseline,
    relative_risk,
    thinned,
)
from dcsurv.models.network import QUICK, TRAINING_SPACE, NetworkEstimator, Parts
from dcsurv.models.ranges import Range, WholeNumber
from dcsurv.models.tensors import losses, networks, torch, training
from dcsurv.nonparametric import breslow
from dcsurv.persistence import Arrays, Header
from dcsurv.search_space import Choice, Int
from dcsurv.target import FloatArray, Outcome

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


@dataclass(kw_only=True, repr=False, eq=False)
class DeepSurv(NetworkEstimator):
    """Proportional hazards with a network: S(t | x) = exp(-H0(t) exp(g(x))).

    Trained on the partial likelihood of each batch (Breslow's rule for ties); H0 is Breslow's estimate from all
    rows given to ``fit``.

    Parameters
    ----------
    layers
        Hidden layers of [Linear, ReLU, BatchNorm, Dropout].
    layer_size
        Nodes in each.

    References
    ----------
    Katzman et al.: DeepSurv. BMC Medical Research Methodology 18 (2018).

    Examples
    --------
    >>> from dcsurv import DeepSurv
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = DeepSurv(max_epochs=5, random_state=0).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    """

    layers: int = 1
    layer_size: int = 32
    batch_size: int = 256
    learning_rate: float = 1e-2

    ranges: ClassVar[dict[str, Range]] = {
        **NetworkEstimator.ranges,
        "layers": WholeNumber(0),
        "layer_size": WholeNumber(1),
    }

    def build_network(self) -> Module:
        return networks.MLP(self.n_inputs_, self.layers, self.layer_size, dropout=self.dropout)

    def batch_loss(self, X: Tensor, y: Outcome, weight: Tensor | None, parts: Parts) -> training.BatchLoss:
        # float32 would merge times that differ; their ranks are enough, and exact.
        rank = torch.as_tensor(np.unique(y["time"], return_inverse=True)[1], device=X.device)
        event = torch.as_tensor(np.ascontiguousarray(y["event"]), device=X.device)

        def loss(network: Module, rows: Tensor) -> Tensor:
            some = None if weight is None else weight.index_select(0, rows)
            log_risk = network(X.index_select(0, rows))
            return losses.cox_partial_likelihood(
                log_risk, rank.index_select(0, rows), event.index_select(0, rows), some
            )

        return loss

    def after_training(self, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        risk = relative_risk(self.outputs_of(X).cpu().numpy())
        times, hazard = breslow(np.ascontiguousarray(y["time"]), y["event"], risk, weight)
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return proportional_survival(self.cumulative_hazard_, self.outputs_of(X).cpu().numpy())

    def survival_arithmetic(self, prepared: Value) -> Value:
        return proportional_arithmetic(self.cumulative_hazard_, networks.MLP.arithmetic_of(self.network_, prepared))

    def get_state(self) -> tuple[Header, Arrays]:
        header, arrays = super().get_state()
        baseline = {"baseline.times": self.times_, "baseline.cumulative_hazard": self.cumulative_hazard_}
        return header, {**arrays, **baseline}

    def set_state(self, header: Header, arrays: Arrays) -> None:
        super().set_state(header, arrays)
        self.times_, self.cumulative_hazard_ = read_baseline(arrays, "baseline.times", "baseline.cumulative_hazard")


register(
    ModelKind(
        name="deepsurv",
        model=DeepSurv,
        meaning="Cox with a network",
        space={**TRAINING_SPACE, "layers": Int(1, 4), "layer_size": Int(8, 128, log=True)},
        paper_space={"layers": Int(1, 5), "layer_size": Choice((8, 16, 32, 64, 128))},
        quick=QUICK,
        is_member=True,
    )
)
