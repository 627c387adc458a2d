"""The network of DeepSurv and CoxTime."""

from __future__ import annotations

from torch import Tensor, nn


class MLP(nn.Module):
    """[Linear, ReLU, BatchNorm, Dropout] x n, then one linear output: a log risk per row.

    Weights start from He's normal distribution, as is usual before ReLU; biases at 0.

    Parameters
    ----------
    n_inputs
        Number of features.
    n_layers, layer_size
        Number of hidden layers (0 leaves a linear model) and of nodes in each.
    dropout
        Share of hidden nodes dropped in training.
    output_bias
        CoxTime has none: a constant in the log risk cancels against the baseline hazard.
    """

    def __init__(
        self, n_inputs: int, n_layers: int, layer_size: int, *, dropout: float = 0.0, output_bias: bool = True
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = n_inputs
        for _ in range(n_layers):
            layers += [
                nn.Linear(width, layer_size),
                nn.ReLU(),
                nn.BatchNorm1d(layer_size),
                nn.Dropout(dropout),
            ]
            width = layer_size
        layers.append(nn.Linear(width, 1, bias=output_bias))
        for layer in layers:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (n, n_inputs) to log risks (n,)."""
        out: Tensor = self.layers(x)
        return out.squeeze(1)
