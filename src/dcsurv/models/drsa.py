"""DRSA: deep recurrent survival analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dcsurv.kinds import ModelKind, register
from dcsurv.models.encoder_decoder import EncoderDecoderEstimator, default_space, paper_space
from dcsurv.models.network import QUICK
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.models.tensors import losses
from dcsurv.search_space import Choice, Float, Int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True, repr=False, eq=False)
class DRSA(EncoderDecoderEstimator):
    """Discrete hazards from an LSTM that is told the position l/L of every node, trained by likelihood.

    The grid is linear.

    Parameters
    ----------
    alpha
        Share of the likelihood of event times in the loss; the rest looks at survival up to the observed time.

    References
    ----------
    Ren et al.: Deep recurrent survival analysis. AAAI 2019.

    Examples
    --------
    >>> from dcsurv import DRSA
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = DRSA(max_epochs=5, random_state=0).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
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
        outputs: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        return losses.drsa(outputs, bucket, event, alpha=self.alpha, sample_weight=weight)


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
