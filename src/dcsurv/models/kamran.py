"""Kamran and Wiens: calibrated survival curves from a ranked probability score and pairs of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dcsurv.kinds import ModelKind, register
from dcsurv.models.encoder_decoder import EncoderDecoderEstimator, default_space, paper_space
from dcsurv.models.network import QUICK
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.models.tensors import losses
from dcsurv.search_space import Float, Int, Space

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True, repr=False, eq=False)
class Kamran(EncoderDecoderEstimator):
    """Discrete hazards on a linear grid; loss RPS + λ kernel as plain sums, over pairs of events only.

    Parameters
    ----------
    lam
        Weight λ of the kernel.
    sigma
        Width σ of the kernel, in units of survival probability.
    step_input
        Whether the LSTM is told the position l/L of every node, as in the original; the comparison in the DCS
        paper ran without.
    aggregation_layers
        Dense layers that turn the LSTM's output into a hazard; the last has one node.
    aggregation_size
        Nodes in the others.

    References
    ----------
    Kamran and Wiens: Estimating calibrated individualized survival curves with deep learning. AAAI 2021.

    Examples
    --------
    >>> from dcsurv import Kamran
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = Kamran(decoder_layers=0, max_epochs=5, random_state=0).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    """

    lam: float = 1.0
    sigma: float = 1.0
    step_input: bool = False
    aggregation_layers: int = 1
    aggregation_size: int = 32
    encoder_layers: int = 0

    plain_sums: ClassVar[bool] = True
    ranges: ClassVar[dict[str, Range]] = {
        **EncoderDecoderEstimator.ranges,
        "lam": Number(least=0),
        "sigma": Number(least=0.02),
        "aggregation_layers": WholeNumber(1),
        "aggregation_size": WholeNumber(1),
    }

    def architecture(self) -> dict[str, Any]:
        return {
            "aggregation_layers": self.aggregation_layers,
            "aggregation_size": self.aggregation_size,
            "step_input": self.step_input,
        }

    def loss(
        self,
        outputs: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        return losses.calibrated_ranking(
            losses.survival_from_logits(outputs),
            bucket,
            event,
            lam=self.lam,
            sigma=self.sigma,
            event_censored_pairs=False,
            normalize=False,
            sample_weight=weight,
        )


_PAPER_SPACE: Space = {"aggregation_layers": Int(1, 2), "lam": Float(0.25, 2.0), "sigma": Float(0.25, 2.0)}

register(
    ModelKind(
        name="kamran",
        model=Kamran,
        meaning="recurrent network, ranked probability score",
        space={**default_space(Int(0, 1)), "lam": Float(0.05, 5.0, log=True), "sigma": Float(0.1, 2.0, log=True)},
        paper_space=lambda estimator, y: paper_space(Int(0, 2), _PAPER_SPACE, estimator, y),
        quick=QUICK,
        is_member=True,
        has_grid=True,
    )
)
