"""The network of DeepSurv and CoxTime."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from dcsurv.arithmetic import Value
from dcsurv.networks.dense import as_doubles, dense


class MLP(nn.Module):
    """[Linear, ReLU, BatchNorm, Dropout] x n, then one linear output: a log risk per row.

    Weights start from He's normal distribution, as is usual before ReLU; biases at 0.

    Parameters
    ----------
    n_inputs : int
        Number of features.
    n_layers : int
        Number of hidden layers; 0 leaves a linear model.
    layer_size : int
        Number of nodes in each.
    dropout : float, default 0.0
        Share of hidden nodes dropped in training.
    output_bias : bool, default True
        CoxTime has none: a constant in the log risk cancels against the baseline hazard.

    Examples
    --------
    >>> import torch
    >>> from dcsurv.networks import MLP
    >>> MLP(4, n_layers=1, layer_size=8)(torch.zeros(3, 4)).shape
    torch.Size([3])
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

    @staticmethod
    def arithmetic_of(network: nn.Module, x: Value, times: npt.NDArray[np.float64] | None = None) -> Value:
        """Return what a trained network computes as arithmetic.

        Parameters
        ----------
        network : MLP
            The network.
        x : Value
            Features, (n, n_inputs), or without the last one, which is time.
        times : array of float or None, default None
            Times, as inputs of the network, if it has one for them, (m,).

        Returns
        -------
        Value
            Log risks, (n, 1), or (n, m) at times.
        """
        assert isinstance(network, MLP)
        first, *others = network.layers
        assert isinstance(first, nn.Linear)
        if times is None:
            out = dense(first, x)
        else:
            # The share of the features is the same at all times.
            weight = as_doubles(first.weight).T
            out = (x @ weight[:-1]).reshape(1, weight.shape[1]) + x.graph.constant(times[:, None]) @ weight[-1:]
            if first.bias is not None:
                out = out + as_doubles(first.bias)
        for layer in others:
            if isinstance(layer, nn.Linear):
                out = dense(layer, out)
            elif isinstance(layer, nn.ReLU):
                out = out.relu()
            elif isinstance(layer, nn.BatchNorm1d):
                assert layer.running_mean is not None
                assert layer.running_var is not None
                scale = as_doubles(layer.weight) / np.sqrt(as_doubles(layer.running_var) + layer.eps)
                out = out * scale + (as_doubles(layer.bias) - as_doubles(layer.running_mean) * scale)
        return out if times is None else out.reshape(len(times))

    def forward(self, x: Tensor) -> Tensor:
        """Map features to log risks.

        Parameters
        ----------
        x : Tensor
            Features, shape (n, n_inputs).

        Returns
        -------
        Tensor
            Log risks, shape (n,).
        """
        out: Tensor = self.layers(x)
        return out.squeeze(1)
