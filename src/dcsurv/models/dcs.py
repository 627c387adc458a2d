"""DCS: discrete calibrated survival."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dcsurv.grid import Spacing
from dcsurv.losses import calibrated_ranking, censoring_node_weight, survival_from_logits
from dcsurv.models.base import Features, Outcome
from dcsurv.models.network import GridEstimator, Parts
from dcsurv.networks import EncoderDecoder
from dcsurv.nonparametric import censoring_curve
from dcsurv.persistence import saveable
from dcsurv.target import FloatArray, IntArray

# Probability of being uncensored down to which the weighted score goes.
_LOWEST_CENSORING = 0.05


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
    censoring_weights
        Whether the score weighs by the inverse probability of being uncensored, which takes its bias under censoring
        away. The probability is estimated on the rows trained on; nodes where it is below 0.05 are left out, so that
        no weight exceeds 20. Patients censored at the time of a node then count as alive at it.
    feature_bins
        Bins over which each feature is spread before the first layer, between quantiles of its training values; 0: the
        features as they are.
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
    censoring_weights: bool = False
    feature_bins: int = 0
    bidirectional: bool = False
    skip: bool = False
    aggregation_layers: int = 1
    aggregation_size: int = 32

    ranges: ClassVar[dict[str, tuple[float, float, bool]]] = {
        **GridEstimator.ranges,
        "lam": (0, float("inf"), False),
        "sigma": (0.02, float("inf"), False),
        "feature_bins": (0, float("inf"), True),
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
            "feature_bins": self.feature_bins,
        }

    def _prepare(self, network: nn.Module, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        super()._prepare(network, X, y, weight)
        assert isinstance(network, EncoderDecoder)
        if network.embedding is not None:
            network.embedding.set_bins(X)

    def _bucket(self, y: Outcome) -> IntArray:
        bucket = super()._bucket(y)
        if not self.censoring_weights:
            return bucket
        # Who is censored at the very time of a node was alive at it. It matters at the end of a study, where many are
        # censored at once: else nobody would be known to reach the last node, and S would end at 0.
        return np.where(y["event"], bucket, np.searchsorted(self.grid_.nodes, y["time"], side="right"))

    def _node_weights(
        self, y: Outcome, weight: Tensor | None, parts: Parts, device: torch.device
    ) -> Callable[[Tensor], Tensor] | None:
        if not self.censoring_weights:
            return None
        rows = parts[0]
        g = censoring_curve(y[rows], sample_weight=None if weight is None else weight.cpu().numpy()[rows])

        # Where hardly anybody would still be seen, a few patients would stand for all: such nodes are left out of the
        # score, and with them every weight above 1 / the limit.
        seen = g.before(self.grid_.nodes)
        at_nodes = np.where(seen >= _LOWEST_CENSORING, 1.0 / np.maximum(seen, _LOWEST_CENSORING), 0.0)
        own = 1.0 / np.maximum(g.before(y["time"]), _LOWEST_CENSORING)
        node_inverse, own_inverse = (
            torch.as_tensor(array, dtype=torch.float32, device=device) for array in (at_nodes, own)
        )
        counted = node_inverse > 0
        bucket = torch.as_tensor(self._bucket(y), device=device)

        def weights(batch: Tensor) -> Tensor:
            inverse = own_inverse.index_select(0, batch)
            return censoring_node_weight(bucket.index_select(0, batch), node_inverse, inverse) * counted

        return weights

    def _numbers_per_row(self) -> int:
        # The bins of a wide table can need more than the network after them.
        return max(super()._numbers_per_row(), 4 * self.n_inputs_ * (1 + self.feature_bins))

    def _loss(
        self,
        logits: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        node_weight: Tensor | None = None,
    ) -> Tensor:
        return calibrated_ranking(
            survival_from_logits(logits),
            bucket,
            event,
            lam=self.lam,
            sigma=self.sigma,
            event_censored_pairs=self.event_censored_pairs,
            node_weight=node_weight,
            sample_weight=weight,
        )
