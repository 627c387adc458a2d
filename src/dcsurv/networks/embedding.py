"""Features spread over bins, so that a network can bend along each of them from its first layer on."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dcsurv.arithmetic import Value
from dcsurv.networks.dense import as_doubles

# The outer edges of a trained network's bins are multiples of this, in standard deviations of prepared columns.
_COARSE = 0.25


class PiecewiseLinear(nn.Module):
    r"""Map each feature x to how far it has come through each of its bins.

    .. math:: e_b(x) = \min(1, \max(0, (x - \ell_b) / (u_b - \ell_b)))

    with the bins between quantiles of the training values, the smallest and the largest among them; below the first
    bin and above the last the map goes on linearly, so that no order is lost. Quantiles that coincide leave fewer bins
    (the outputs of the others are 0), and a feature with one bin has none. The features themselves come first: shape
    (n, F (1 + B)).

    References
    ----------
    Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning, NeurIPS 2022.
    """

    lower: Tensor
    scale: Tensor
    first: Tensor
    last: Tensor

    def __init__(self, n_features: int, n_bins: int) -> None:
        super().__init__()
        self.n_features, self.n_bins = n_features, n_bins
        shape = n_features, n_bins
        for name in ("lower", "scale"):
            self.register_buffer(name, torch.zeros(shape))
        for name in ("first", "last"):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.bool))

    @property
    def width(self) -> int:
        """Number of outputs."""
        return self.n_features * (1 + self.n_bins)

    def set_bins(self, X: npt.NDArray[np.float32]) -> None:
        """Lay the bins between quantiles of the training features, (n, F)."""
        levels = np.linspace(0, 1, self.n_bins + 1)
        for k in range(self.n_features):
            edges = np.unique(np.quantile(X[:, k], levels).astype(np.float32))
            n = len(edges) - 1
            if n < 2:  # one bin would be the feature itself
                continue
            self.lower[k, :n] = torch.from_numpy(edges[:-1])
            self.scale[k, :n] = torch.from_numpy(1.0 / np.diff(edges))
            self.first[k, 0] = True
            self.last[k, n - 1] = True

    @torch.no_grad()
    def coarsen(self, following: nn.Linear) -> None:
        """Move the outer edges of the bins outwards to coarse numbers, and let the next layer make up for it.

        The smallest and the largest value are those of one patient, whom a file must not tell. With its first weights
        and its bias changed, the network computes the same as before, up to rounding.
        """
        for k in range(self.n_features):
            if not self.last[k].any():
                continue
            end = int(self.last[k].to(torch.uint8).argmax())
            place = self.n_features + k * self.n_bins
            inner = float(self.lower[k, 1])
            wider = inner - math.floor(float(self.lower[k, 0]) / _COARSE) * _COARSE
            ratio = wider * float(self.scale[k, 0])
            weight = following.weight[:, place].clone()
            following.weight[:, place] = weight * ratio
            following.bias.copy_(following.bias + weight * (1 - ratio))
            self.lower[k, 0], self.scale[k, 0] = inner - wider, 1 / wider
            inner = float(self.lower[k, end])
            wider = math.ceil((inner + 1 / float(self.scale[k, end])) / _COARSE) * _COARSE - inner
            following.weight[:, place + end] *= wider * float(self.scale[k, end])
            self.scale[k, end] = 1 / wider

    def arithmetic(self, x: Value) -> tuple[Value, npt.NDArray[np.int64]]:
        """Return the outputs that are not always 0 as arithmetic, and which ones they are."""
        scale = as_doubles(self.scale).ravel()
        used = np.flatnonzero(scale)
        feature = used // max(self.n_bins, 1)
        first, last = (one.cpu().numpy().ravel()[used] for one in (self.first, self.last))
        share = (x.take(feature) - as_doubles(self.lower).ravel()[used]) * scale[used]
        share = share.at_least(np.where(first, -np.inf, 0.0)).at_most(np.where(last, np.inf, 1.0))
        return x.graph.concat([x, share]), np.append(np.arange(self.n_features), self.n_features + used)

    def forward(self, x: Tensor) -> Tensor:
        share = (x.unsqueeze(2) - self.lower) * self.scale
        low = torch.where(self.first, share, share.clamp_min(0))
        return torch.cat([x, torch.where(self.last, low, low.clamp_max(1)).flatten(1)], dim=1)
