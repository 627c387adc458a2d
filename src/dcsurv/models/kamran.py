"""Kamran and Wiens: calibrated survival curves from a ranked probability score and pairs of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from dcsurv.losses import calibrated_ranking, survival_from_logits
from dcsurv.models.network import GridEstimator
from dcsurv.persistence import saveable


@saveable
@dataclass(kw_only=True, repr=False, eq=False)
class Kamran(GridEstimator):
    """Discrete hazards on a linear grid; loss RPS + λ kernel as plain sums, over pairs of events only.

    Parameters
    ----------
    lam, sigma
        Weight λ and width σ of the kernel.
    step_input
        Whether the LSTM is told the position l/L of every node, as in the original; the comparison in the DCS
        paper ran without.
    aggregation_layers, aggregation_size
        Dense layers that turn the LSTM's output into a hazard (the last has one node), nodes in the others.
    n_nodes, convention, encoder_layers, encoder_size, decoder_layers, decoder_size, recurrent_dropout
        See :class:`GridEstimator`; the grid is linear.
    batch_size, max_epochs, patience, learning_rate, validation_fraction, dropout, weight_decay, clip_norm, \
    random_state, device, verbose
        See :class:`NetworkEstimator`.
    preprocess, time_unit
        See :class:`SurvivalEstimator`.

    References
    ----------
    Kamran and Wiens: Estimating calibrated individualized survival curves with deep learning. AAAI 2021.
    """

    lam: float = 1.0
    sigma: float = 1.0
    step_input: bool = False
    aggregation_layers: int = 1
    aggregation_size: int = 32
    encoder_layers: int = 0

    plain_sums: ClassVar[bool] = True
    ranges: ClassVar[dict[str, tuple[float, float, bool]]] = {
        **GridEstimator.ranges,
        "lam": (0, float("inf"), False),
        "sigma": (0.02, float("inf"), False),
        "aggregation_layers": (1, float("inf"), True),
        "aggregation_size": (1, float("inf"), True),
    }

    def _architecture(self) -> dict[str, Any]:
        return {
            "aggregation_layers": self.aggregation_layers,
            "aggregation_size": self.aggregation_size,
            "step_input": self.step_input,
        }

    def _loss(
        self,
        logits: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        return calibrated_ranking(
            survival_from_logits(logits),
            bucket,
            event,
            lam=self.lam,
            sigma=self.sigma,
            event_censored_pairs=False,
            normalize=False,
            sample_weight=weight,
        )
