"""DRSA: deep recurrent survival analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from dcsurv.kinds import ModelKind, register
from dcsurv.losses import drsa
from dcsurv.models.encoder_decoder import EncoderDecoderEstimator, default_space, paper_space
from dcsurv.models.network import QUICK
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.search_space import Choice, Float, Int


@dataclass(kw_only=True, repr=False, eq=False)
class DRSA(EncoderDecoderEstimator):
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

    ranges: ClassVar[dict[str, Range]] = {
        **EncoderDecoderEstimator.ranges,
        "alpha": Number(least=0, below=1),
        "decoder_layers": WholeNumber(1),
    }

    def architecture(self) -> dict[str, Any]:
        return {"step_input": True}

    def loss(
        self,
        logits: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        return drsa(logits, bucket, event, alpha=self.alpha, sample_weight=weight)


register(
    ModelKind(
        name="drsa",
        model=DRSA,
        meaning="recurrent network, likelihood of events and censoring",
        space={**default_space(Choice((1,))), "alpha": Float(0.01, 0.99)},
        paper_space=lambda estimator, y: paper_space(Int(1, 2), {"alpha": Float(0.01, 0.99)}, estimator, y),
        quick=QUICK,
        is_member=True,
        has_grid=True,
    )
)
