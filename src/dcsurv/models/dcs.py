"""DCS: discrete calibrated survival."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from dcsurv.grid import Spacing
from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.encoder_decoder import (
    PAPER_RECURRENT,
    RECURRENT,
    EncoderDecoderEstimator,
    default_space,
    paper_space,
)
from dcsurv.models.network import QUICK, Parts
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.models.tensors import losses, networks, torch
from dcsurv.nonparametric import LOWEST_CENSORING, censoring_curve
from dcsurv.persistence import Header
from dcsurv.search_space import Choice, Float, Int, Space, When
from dcsurv.target import FloatArray, IntArray, Outcome

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

# The paper's names of its three grids.
_SPACINGS: dict[str, Spacing] = {"quant": "quantile", "log": "log", "linear": "linear"}

TrainingCriterion: TypeAlias = Literal["likelihood", "ranked", "weighted"]


@dataclass(kw_only=True, repr=False, eq=False)
class DCS(EncoderDecoderEstimator):
    """Discrete hazards on a freely spaced grid; loss: a score + λ kernel / pairs, censored patients included.

    Parameters
    ----------
    spacing
        How the nodes are placed: ``"quantile"``, ``"log"`` or ``"linear"``.
    lam
        Weight λ of the kernel.
    sigma
        Width σ of the kernel, in units of survival probability.
    event_censored_pairs
        Whether an event is also compared with patients censored later (DCS), or with later events only.
    criterion
        What is minimised besides the kernel. ``"likelihood"``: the censored likelihood of the discrete hazards, right
        whenever censoring is independent of the event given the features. ``"ranked"``: the paper's ranked probability
        score, which draws S to 0 wherever patients with such features could not be followed. ``"weighted"``: that score
        weighted by the inverse probability G(t) of being uncensored, right only if the features do not predict
        censoring; G is estimated on the rows trained on, nodes where it is below 0.05 are left out, and patients
        censored at the time of a node count as alive at it. None: ``"ranked"`` in the paper's convention, otherwise
        ``"likelihood"``.
    feature_bins
        Bins over which each feature is spread before the first layer, between quantiles of its training values; 0: the
        features as they are.
    bidirectional
        Whether the LSTM also runs backwards over the grid.
    skip
        Whether the encoding is joined to the output of the LSTM.
    aggregation_layers
        Dense layers that turn the LSTM's output into a hazard; the last has one node.
    aggregation_size
        Nodes in the others.

    Attributes
    ----------
    grid_ : TimeGrid
        The nodes.
    history_ : History
        Losses per epoch; ``history_.plot()``.

    References
    ----------
    Fuhlert et al.: Deep learning-based discrete calibrated survival prediction (2022).

    Examples
    --------
    >>> from dcsurv import DCS
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = DCS(decoder_layers=0, max_epochs=5, random_state=0).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    """

    spacing: Spacing = "quantile"
    lam: float = 0.5
    sigma: float = 1.0
    event_censored_pairs: bool = True
    criterion: TrainingCriterion | None = None
    feature_bins: int = 0
    bidirectional: bool = False
    skip: bool = False
    aggregation_layers: int = 1
    aggregation_size: int = 32

    ranges: ClassVar[dict[str, Range]] = {
        **EncoderDecoderEstimator.ranges,
        "lam": Number(least=0),
        "sigma": Number(least=0.02),
        "feature_bins": WholeNumber(0),
        "aggregation_layers": WholeNumber(1),
        "aggregation_size": WholeNumber(1),
    }

    def node_spacing(self) -> Spacing:
        return self.spacing

    def architecture(self) -> dict[str, Any]:
        return {
            "bidirectional": self.bidirectional,
            "skip": self.skip,
            "aggregation_layers": self.aggregation_layers,
            "aggregation_size": self.aggregation_size,
            "feature_bins": self.feature_bins,
        }

    def prepare_network(self, network: Module, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        super().prepare_network(network, X, y, weight)
        assert isinstance(network, networks.EncoderDecoder)
        if network.embedding is not None:
            network.embedding.set_bins(X)

    def end_training(self, y: Outcome, summary: dict[str, Any], *, weighted: bool) -> None:
        super().end_training(y, summary, weighted=weighted)
        network = self.network_
        assert isinstance(network, networks.EncoderDecoder)
        if network.embedding is not None and len(network.encoder):
            first = network.encoder[0]
            assert isinstance(first, torch.nn.Linear)
            network.embedding.coarsen(first)

    @property
    def training_criterion(self) -> TrainingCriterion:
        """What is minimised besides the kernel, also where ``criterion`` is None."""
        return self.criterion or ("ranked" if self.convention == "paper" else "likelihood")

    def check_parameters(self) -> None:
        super().check_parameters()
        known = get_args(TrainingCriterion)
        if self.criterion not in (None, *known):
            raise ValueError(f"criterion is {self.criterion!r}, but None or one of {', '.join(known)} is expected.")

    def bucket(self, y: Outcome) -> IntArray:
        bucket = super().bucket(y)
        if self.training_criterion != "weighted":
            return bucket
        # Who is censored at the very time of a node was alive at it. It matters at the end of a study, where many are
        # censored at once: else nobody would be known to reach the last node, and S would end at 0.
        return np.where(y["event"], bucket, np.searchsorted(self.grid_.nodes, y["time"], side="right"))

    def details(
        self, y: Outcome, weight: Tensor | None, parts: Parts, device: torch.device
    ) -> Callable[[Tensor], Tensor] | None:
        if self.training_criterion == "ranked":
            return None
        if self.training_criterion == "weighted":
            return self._node_weights(y, weight, parts, device)
        passed = torch.as_tensor(self.grid_.passed(y["time"]), dtype=torch.float32, device=device)
        return lambda batch: passed.index_select(0, batch)

    def _node_weights(
        self, y: Outcome, weight: Tensor | None, parts: Parts, device: torch.device
    ) -> Callable[[Tensor], Tensor]:
        """Return the function from rows to the weights of their nodes, (n, L)."""
        rows = parts[0]
        g = censoring_curve(y[rows], sample_weight=None if weight is None else weight.cpu().numpy()[rows])

        # Where hardly anybody would still be seen, a few patients would stand for all: such nodes are left out of the
        # score, and with them every weight above 1 / the limit.
        seen = g.before(self.grid_.nodes)
        at_nodes = np.where(seen >= LOWEST_CENSORING, 1.0 / np.maximum(seen, LOWEST_CENSORING), 0.0)
        own = 1.0 / np.maximum(g.before(y["time"]), LOWEST_CENSORING)
        node_inverse, own_inverse = (
            torch.as_tensor(array, dtype=torch.float32, device=device) for array in (at_nodes, own)
        )
        counted = node_inverse > 0
        bucket = torch.as_tensor(self.bucket(y), device=device)

        def weights(batch: Tensor) -> Tensor:
            inverse = own_inverse.index_select(0, batch)
            return losses.censoring_node_weight(bucket.index_select(0, batch), node_inverse, inverse) * counted

        return weights

    def numbers_per_row(self) -> int:
        # The bins of a wide table can need more than the network after them.
        return max(super().numbers_per_row(), 4 * self.n_inputs_ * (1 + self.feature_bins))

    def loss(
        self,
        outputs: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        kernel: dict[str, Any] = {
            "lam": self.lam,
            "sigma": self.sigma,
            "event_censored_pairs": self.event_censored_pairs,
            "sample_weight": weight,
        }
        if self.training_criterion == "likelihood":
            assert detail is not None
            return losses.likelihood_ranking(outputs, bucket, event, detail, **kernel)
        return losses.calibrated_ranking(
            losses.survival_from_logits(outputs), bucket, event, node_weight=detail, **kernel
        )

    @classmethod
    def known_parameters(cls, saved: Header) -> Header:
        """Rename what files of version 0.1 hold: two criteria, told apart by whether there were weights."""
        known = dict(saved)
        weighted = known.pop("censoring_weights", False)
        return {"criterion": "weighted" if weighted else "ranked", **known}


def _decoder_space(when: When) -> Space:
    return {name: Choice((False, True), when=when, otherwise=False) for name in ("bidirectional", "skip")}


_SPACE: Space = {
    **default_space(Int(0, 1)),
    **_decoder_space(RECURRENT),
    "lam": Float(0.05, 5.0, log=True),
    "sigma": Float(0.1, 2.0, log=True),
    "feature_bins": Choice((0, 8, 16)),
}
_PAPER_SPACE: Space = {
    **_decoder_space(PAPER_RECURRENT),
    "aggregation_layers": Int(1, 2),
    "lam": Float(0.25, 2.0),
    "sigma": Float(0.25, 2.0),
}

register(
    ModelKind(
        name="dcs",
        model=DCS,
        meaning="one DCS network",
        space=_SPACE,
        paper_space=lambda estimator, y: paper_space(Int(0, 2), _PAPER_SPACE, estimator, y),
        quick=QUICK,
        is_member=True,
        has_grid=True,
        variants={f"dcs-{short}": {"spacing": spacing} for short, spacing in _SPACINGS.items()},
    )
)
