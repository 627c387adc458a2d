"""Features spread over bins, so that a network can bend along each of them from its first layer on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn


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

    def forward(self, x: Tensor) -> Tensor:
        share = (x.unsqueeze(2) - self.lower) * self.scale
        low = torch.where(self.first, share, share.clamp_min(0))
        return torch.cat([x, torch.where(self.last, low, low.clamp_max(1)).flatten(1)], dim=1)
