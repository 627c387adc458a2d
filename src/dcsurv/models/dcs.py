"""DCS: discrete calibrated survival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from dcsurv.grid import Spacing
from dcsurv.losses import calibrated_ranking, survival_from_logits
from dcsurv.models.network import GridEstimator
from dcsurv.persistence import saveable


@saveable
@dataclass(kw_only=True, repr=False, eq=False)
class DCS(GridEstimator):
    """Discrete hazards on a freely spaced grid; loss RPS / (n L) + λ kernel / pairs, censored patients included.

    Parameters
    ----------
    spacing
        How the nodes are placed: ``"quantile"``, ``"log"`` or ``"linear"``.
    lam, sigma
        Weight λ and width σ of the kernel.
    event_censored_pairs
        Whether an event is also compared with patients censored later (DCS), or with later events only.
    bidirectional, skip
        Whether the LSTM also runs backwards over the grid, and whether the encoding is joined to its output.
    aggregation_layers, aggregation_size
        Dense layers that turn the LSTM's output into a hazard (the last has one node), nodes in the others.
    n_nodes, convention, encoder_layers, encoder_size, decoder_layers, decoder_size, recurrent_dropout
        See :class:`GridEstimator`. With ``decoder_layers=0`` there is no LSTM and the nodes are outputs of one
        dense layer.
    batch_size, max_epochs, patience, learning_rate, validation_fraction, dropout, weight_decay, clip_norm, \
    random_state, device, verbose
        See :class:`NetworkEstimator`.
    preprocess, time_unit
        See :class:`SurvivalEstimator`.

    Attributes
    ----------
    grid_
        The nodes.
    history_
        Losses per epoch; ``history_.plot()``.

    References
    ----------
    Fuhlert et al.: Deep learning-based discrete calibrated survival prediction (2022).
    """

    spacing: Spacing = "quantile"
    lam: float = 0.5
    sigma: float = 1.0
    event_censored_pairs: bool = True
    bidirectional: bool = False
    skip: bool = False
    aggregation_layers: int = 1
    aggregation_size: int = 32

    ranges: ClassVar[dict[str, tuple[float, float, bool]]] = {
        **GridEstimator.ranges,
        "lam": (0, float("inf"), False),
        "sigma": (0.02, float("inf"), False),
        "aggregation_layers": (1, float("inf"), True),
        "aggregation_size": (1, float("inf"), True),
    }

    def _spacing(self) -> Spacing:
        return self.spacing

    def _architecture(self) -> dict[str, Any]:
        return {
            "bidirectional": self.bidirectional,
            "skip": self.skip,
            "aggregation_layers": self.aggregation_layers,
            "aggregation_size": self.aggregation_size,
        }

    def _loss(self, logits: Tensor, bucket: Tensor, event: Tensor, weight: Tensor | None) -> Tensor:
        return calibrated_ranking(
            survival_from_logits(logits),
            bucket,
            event,
            lam=self.lam,
            sigma=self.sigma,
            event_censored_pairs=self.event_censored_pairs,
            sample_weight=weight,
        )
