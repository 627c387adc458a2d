"""DRSA: deep recurrent survival analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from dcsurv.losses import drsa
from dcsurv.models.network import GridEstimator
from dcsurv.persistence import saveable


@saveable
@dataclass(kw_only=True, repr=False, eq=False)
class DRSA(GridEstimator):
    """Discrete hazards from an LSTM that is told the position l/L of every node, trained by likelihood.

    Parameters
    ----------
    alpha
        Share of the likelihood of event times in the loss; the rest looks at survival up to the observed time.
    n_nodes, convention, encoder_layers, encoder_size, decoder_layers, decoder_size, recurrent_dropout
        See :class:`GridEstimator`; the grid is linear.
    batch_size, max_epochs, patience, learning_rate, validation_fraction, dropout, weight_decay, clip_norm, \
    random_state, device, verbose
        See :class:`NetworkEstimator`.
    preprocess, time_unit
        See :class:`SurvivalEstimator`.

    References
    ----------
    Ren et al.: Deep recurrent survival analysis. AAAI 2019.
    """

    alpha: float = 0.25

    ranges: ClassVar[dict[str, tuple[float, float, bool]]] = {
        **GridEstimator.ranges,
        "alpha": (0, 1, False),
        "decoder_layers": (1, float("inf"), True),
    }

    def _architecture(self) -> dict[str, Any]:
        return {"step_input": True}

    def _loss(
        self,
        logits: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        return drsa(logits, bucket, event, alpha=self.alpha, sample_weight=weight)
