"""The network of DRSA, Kamran and DCS: encode a patient, unroll over the grid, read outputs at every node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from dcsurv.arithmetic import Value
from dcsurv.networks.dense import as_doubles, dense, joined_dense
from dcsurv.networks.embedding import PiecewiseLinear
from dcsurv.networks.recurrent import RecurrentDecoder


class EncoderDecoder(nn.Module):
    """Map features to outputs at each of L nodes, such as the logit of the hazard.

    - encoder: [Dense ReLU, Dropout] x n; n = 0 passes the features on,
    - decoder: m LSTM layers over the L nodes, fed the same encoding at every step; optionally bidirectional,
      and with a skip that joins the encoding to the output of the last LSTM,
    - aggregation: (k - 1) x [Dense sigmoid, Dropout], then Dense(outputs per node), shared by all nodes.

    Without decoder (m = 0) the last layer has outputs for all L nodes, which share nothing else.
    Kernels start Glorot-uniform, biases at 0; for the LSTM see :class:`RecurrentDecoder`.

    Parameters
    ----------
    n_features : int
        Number of inputs.
    n_nodes : int
        Number of output nodes, L.
    encoder_layers : int, default 1
        Dense layers before the decoder, n.
    encoder_size : int, default 32
        Nodes in each of them.
    decoder_layers : int, default 1
        LSTM layers, m.
    decoder_size : int, default 32
        Nodes in each of them.
    bidirectional : bool, default False
        Whether the LSTM also runs backwards.
    skip : bool, default False
        Whether the encoding is joined to the output of the LSTM.
    aggregation_layers : int, default 1
        Dense layers after the decoder, k.
    aggregation_size : int, default 32
        Nodes in all of them but the last.
    dropout : float, default 0.0
        Share of hidden nodes dropped in training.
    recurrent_dropout : float, default 0.0
        Share of the recurrent connections dropped in training, the same ones at every node.
    step_input : bool, default False
        Whether the position l/L of the node is joined to the features at every step.
    feature_bins : int, default 0
        Bins of the ``PiecewiseLinear`` embedding before the encoder; 0: the features as they are.
    outputs_per_node : int, default 1
        With 1, outputs are (n, L), otherwise (n, L, outputs per node).

    Examples
    --------
    >>> import torch
    >>> from dcsurv.networks import EncoderDecoder
    >>> EncoderDecoder(4, 10, decoder_layers=0)(torch.zeros(3, 4)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        n_features: int,
        n_nodes: int,
        *,
        encoder_layers: int = 1,
        encoder_size: int = 32,
        decoder_layers: int = 1,
        decoder_size: int = 32,
        bidirectional: bool = False,
        skip: bool = False,
        aggregation_layers: int = 1,
        aggregation_size: int = 32,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        step_input: bool = False,
        feature_bins: int = 0,
        outputs_per_node: int = 1,
    ) -> None:
        super().__init__()
        if decoder_layers == 0 and (bidirectional or skip or step_input):
            raise ValueError(
                "bidirectional, skip and step_input describe the recurrent decoder, but decoder_layers is 0. "
                "Use at least one decoder layer or leave them False."
            )
        self.n_nodes = n_nodes
        self.outputs_per_node = outputs_per_node
        self.step_input = step_input
        self.skip = skip

        self.embedding = PiecewiseLinear(n_features, feature_bins) if feature_bins else None
        width = (n_features if self.embedding is None else self.embedding.width) + step_input
        encoder: list[nn.Module] = []
        for _ in range(encoder_layers):
            encoder += [nn.Linear(width, encoder_size), nn.ReLU(), nn.Dropout(dropout)]
            width = encoder_size
        self.encoder = nn.Sequential(*encoder)

        self.decoder: RecurrentDecoder | None = None
        if decoder_layers > 0:
            self.decoder = RecurrentDecoder(
                width,
                decoder_size,
                decoder_layers,
                bidirectional=bidirectional,
                recurrent_dropout=recurrent_dropout,
            )
            width = decoder_size * (1 + bidirectional) + (width if skip else 0)

        aggregation: list[nn.Module] = []
        for _ in range(aggregation_layers - 1):
            aggregation += [nn.Linear(width, aggregation_size), nn.Sigmoid(), nn.Dropout(dropout)]
            width = aggregation_size
        aggregation.append(nn.Linear(width, outputs_per_node * (1 if decoder_layers > 0 else n_nodes)))
        self.aggregation = nn.Sequential(*aggregation)

        for layer in [*encoder, *aggregation]:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    @property
    def nodes_share_outputs(self) -> bool:
        """Whether one last layer serves all nodes, as it does after a recurrent decoder."""
        return self.decoder is not None

    @torch.no_grad()
    def start_at(self, outputs: Tensor) -> None:
        """Set the last bias so that an untrained network gives about these outputs to everybody.

        Parameters
        ----------
        outputs : Tensor
            For each node, (L,) or (L, outputs per node); where nodes share the last layer, for one of them.
        """
        last = self.aggregation[-1]
        assert isinstance(last, nn.Linear)
        last.bias.copy_(outputs.flatten())

    def forward(self, x: Tensor) -> Tensor:
        """Map features to outputs at the nodes.

        Parameters
        ----------
        x : Tensor
            Features, shape (n, n_features).

        Returns
        -------
        Tensor
            Shape (n, L), or (n, L, outputs per node) if there are several.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        encoding = self.encoder(self._with_steps(x) if self.step_input else x)  # (n, E), or (L, n, E) with steps
        if self.decoder is None:
            at_once: Tensor = self.aggregation(encoding)
            return at_once if self.outputs_per_node == 1 else at_once.view(len(x), self.n_nodes, -1)
        hidden = self.decoder(encoding, self.n_nodes)  # (L, n, D)
        first = self.aggregation[0]
        assert isinstance(first, nn.Linear)
        if self.skip:
            # Dense([hidden, encoding]) in two products: the encoding's share is the same at every node, and the
            # joined (L, n, D + E) tensor is never built.
            split = hidden.shape[2]
            out: Tensor = functional.linear(hidden, first.weight[:, :split])
            out = out + functional.linear(encoding, first.weight[:, split:], first.bias)
        else:
            out = first(hidden)
        out = self.aggregation[1:](out)
        return out.squeeze(2).t() if self.outputs_per_node == 1 else out.transpose(0, 1)

    def arithmetic(self, x: Value) -> Value:
        """Return what the trained network computes as arithmetic.

        Parameters
        ----------
        x : Value
            Features, (n, n_features).

        Returns
        -------
        Value
            Outputs, (n, L x outputs per node).
        """
        used = None
        if self.embedding is not None:
            x, used = self.embedding.arithmetic(x)
        encoding, steps = x, self._steps() if self.step_input else None
        for layer in self.encoder:
            if isinstance(layer, nn.Linear):
                weight, bias = as_doubles(layer.weight).T, as_doubles(layer.bias)
                encoding = joined_dense(encoding, weight if used is None else weight[used], bias, steps).relu()
                used = steps = None
        if self.decoder is None:
            for layer in self.aggregation:
                encoding = _arithmetic_of(layer, encoding, used)
                used = None
            return encoding
        if not self.step_input:
            encoding = encoding.reshape(1, self.decoder.input_size if used is None else len(used))
        hidden = self.decoder.arithmetic(encoding, self.n_nodes, used, steps)
        first, *others = self.aggregation
        assert isinstance(first, nn.Linear)
        weight, bias = as_doubles(first.weight).T, as_doubles(first.bias)
        out = hidden @ weight[: self.decoder.output_size] + bias
        if self.skip:
            rest = weight[self.decoder.output_size :]
            out = out + joined_dense(encoding, rest if used is None else rest[used], np.zeros(rest.shape[1]), steps)
        for layer in others:
            out = _arithmetic_of(layer, out, None)
        return out.reshape(self.n_nodes * self.outputs_per_node)

    def _steps(self) -> npt.NDArray[np.float64]:
        """Return the positions l/L of the nodes, as the network is told them."""
        steps = torch.arange(1, self.n_nodes + 1, dtype=torch.float32) / self.n_nodes
        return as_doubles(steps)

    def _with_steps(self, x: Tensor) -> Tensor:
        """Join the position l/L of each node to the features: (L, n, n_features + 1)."""
        step = torch.arange(1, self.n_nodes + 1, dtype=x.dtype, device=x.device) / self.n_nodes
        n = x.shape[0]
        return torch.cat([x.expand(self.n_nodes, -1, -1), step.view(-1, 1, 1).expand(-1, n, 1)], dim=2)


def _arithmetic_of(layer: nn.Module, x: Value, used: npt.NDArray[np.int64] | None) -> Value:
    """Return what a layer makes of values; the first one after an embedding only has those inputs that vary."""
    if isinstance(layer, nn.Sigmoid):
        return x.sigmoid()
    if not isinstance(layer, nn.Linear):
        return x  # nothing is dropped after training
    if used is None:
        return dense(layer, x)
    return joined_dense(x, as_doubles(layer.weight).T[used], as_doubles(layer.bias), None)
