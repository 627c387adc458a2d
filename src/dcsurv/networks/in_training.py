"""Networks of one shape that are trained as one: stacked weights, batched products, no recorded graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dcsurv.networks.encoder_decoder import EncoderDecoder

# Chances of dropout are counted in these parts, so that one random byte decides.
_BYTE = 256
_WORDS = 2**64 - 1


class NetworksInTraining:
    """M networks of one shape whose weights lie in one table, a row for each.

    Products of all networks are one batched product, and one step of an optimiser moves them all. A network's numbers
    depend on those of the others only in how sums are rounded, if at all.

    Parameters
    ----------
    networks : sequence of EncoderDecoder
        Without recurrent decoder, with one output per node and one layer after the encoder, in single precision on the
        CPU; all with the same layers, bins and dropout.

    Attributes
    ----------
    weights : Tensor
        All weights that matter, (M, number of weights). The gradient of each lies in ``weights.grad``.

    Examples
    --------
    >>> import torch
    >>> from dcsurv.networks import EncoderDecoder, NetworksInTraining
    >>> stack = NetworksInTraining([EncoderDecoder(4, 10, decoder_layers=0) for _ in range(3)])
    >>> stack.outputs(torch.zeros(3, 5, 4)).shape
    torch.Size([3, 5, 10])
    """

    def __init__(self, networks: Sequence[EncoderDecoder]) -> None:
        linear = [_linear_layers(network) for network in networks]
        self.dropout = _dropout(networks[0])
        self._bins = _Bins.of(networks)
        self._nothing = torch.zeros(1, 1, 1)
        widths = [layer.out_features for layer in linear[0]]
        sizes = [len(self._bins.kept), *widths]
        self._shapes = [shape for ends in itertools.pairwise(sizes) for shape in (ends, (1, ends[1]))]
        rows = []
        for layers in linear:
            parts = []
            for k, layer in enumerate(layers):
                kernel = layer.weight.detach().t()
                parts += [(kernel[self._bins.kept] if k == 0 else kernel).flatten(), layer.bias.detach()]
            rows.append(torch.cat(parts))
        self._set(torch.stack(rows))

    def _set(self, weights: Tensor) -> None:
        self.weights = nn.Parameter(weights, requires_grad=False)
        self.weights.grad = torch.zeros_like(weights)
        self._layers, self._gradients = (self._views(table) for table in (self.weights, self.weights.grad))

    def _views(self, table: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return kernel (M, in, out) and bias (M, 1, out) of each layer as parts of a table."""
        sizes = [rows * columns for rows, columns in self._shapes]
        parts = torch.split(table.detach(), sizes, dim=1)
        shaped = [part.view(len(table), *shape) for part, shape in zip(parts, self._shapes, strict=True)]
        return list(zip(shaped[::2], shaped[1::2], strict=True))

    def __len__(self) -> int:
        """Return the number of networks."""
        return len(self.weights)

    def inputs(self, x: Tensor) -> Tensor:
        """Spread features over the bins, leaving out bins that are always 0.

        Parameters
        ----------
        x : Tensor
            Features, (M, n, F).

        Returns
        -------
        Tensor
            What the first layers take, (M, n, inputs).
        """
        return self._bins(x)

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of the networks, without dropout.

        Parameters
        ----------
        x : Tensor
            Features, (M, n, F).

        Returns
        -------
        Tensor
            Outputs at the nodes, (M, n, L).
        """
        return self._forward(self.inputs(x), None)[-1]

    def step(self, x: Tensor, keep: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs of the networks in training, and what :meth:`backward` needs.

        Parameters
        ----------
        x : Tensor
            Features, (M, n, F).
        keep : Tensor or None
            What dropout multiplies the hidden values by, as :meth:`draw` gives it.

        Returns
        -------
        outputs : Tensor
            Outputs at the nodes, (M, n, L).
        hidden : list of Tensor
            What each layer took.
        """
        *hidden, outputs = self._forward(self.inputs(x), keep)
        return outputs, hidden

    def backward(self, gradient: Tensor, hidden: list[Tensor]) -> None:
        """Set the gradients of the weights from those of the outputs.

        Parameters
        ----------
        gradient : Tensor
            With respect to the outputs, (M, n, L).
        hidden : list of Tensor
            What :meth:`step` returned.
        """
        for k in range(len(self._layers) - 1, -1, -1):
            (kernel, _), (of_kernel, of_bias), taken = self._layers[k], self._gradients[k], hidden[k]
            torch.bmm(taken.transpose(1, 2), gradient, out=of_kernel)
            torch.sum(gradient, dim=1, keepdim=True, out=of_bias)
            if k:
                scaled = torch.baddbmm(
                    self._nothing, gradient, kernel.transpose(1, 2), beta=0, alpha=self._kept_scale()
                )
                # What was cut off, by the rectifier or by dropout, is 0 among what the layer took.
                gradient = scaled.mul_(taken.sign())

    def _forward(self, inputs: Tensor, keep: Tensor | None) -> list[Tensor]:
        taken = [inputs]
        begin = 0
        for k, (kernel, bias) in enumerate(self._layers):
            out = torch.baddbmm(bias, taken[-1], kernel)
            if k < len(self._layers) - 1:
                functional.relu(out, inplace=True)
                if keep is not None:
                    out.mul_(keep[:, :, begin : begin + out.shape[2]])
                    begin += out.shape[2]
            taken.append(out)
        return taken

    def _dropped_parts(self) -> int:
        return round(self.dropout * _BYTE)

    def _kept_scale(self) -> float:
        """Return what dropout multiplies by where it keeps."""
        return _BYTE / (_BYTE - self._dropped_parts())

    def draw(self, rngs: Sequence[np.random.Generator], n: int) -> Tensor | None:
        """Draw what dropout multiplies the hidden values of n patients by, each network from its own generator.

        Parameters
        ----------
        rngs : sequence of Generator
            One per network.
        n : int
            How many patients.

        Returns
        -------
        Tensor or None
            0 or a little more than 1, (M, n, hidden values of all layers); None if there is no dropout.
        """
        width = sum(bias.shape[2] for _, bias in self._layers[:-1])
        if not self._dropped_parts() or not width:
            return None
        words = -(-n * width // 8)
        drawn = np.stack([rng.integers(_WORDS, size=words, dtype=np.uint64, endpoint=True) for rng in rngs])
        bytes_ = torch.from_numpy(drawn.view(np.uint8)[:, : n * width])
        return (bytes_ >= self._dropped_parts()).float().mul_(self._kept_scale()).view(len(rngs), n, width)

    def only(self, kept: Tensor) -> None:
        """Go on with some of the networks.

        Parameters
        ----------
        kept : Tensor
            Which, in order.
        """
        self._bins = self._bins.only(kept)
        self._set(self.weights.detach()[kept])

    @torch.no_grad()
    def write(self, weights: Tensor, network: EncoderDecoder) -> None:
        """Give a network the weights of a row of the table.

        Parameters
        ----------
        weights : Tensor
            A row of ``weights``, now or at some time before.
        network : EncoderDecoder
            One of those that the stack was made of.
        """
        for k, (layer, (kernel, bias)) in enumerate(
            zip(_linear_layers(network), self._views(weights.unsqueeze(0)), strict=True)
        ):
            if k == 0:
                layer.weight[:, self._bins.kept] = kernel[0].t()
            else:
                layer.weight.copy_(kernel[0].t())
            layer.bias.copy_(bias[0, 0])


class _Bins:
    """The piecewise linear embeddings of all networks, without what is 0 for every patient in each of them."""

    def __init__(self, kept: Tensor, feature: Tensor, tables: Sequence[Tensor]) -> None:
        self.kept = kept  # which of the inputs of a single network
        self._feature = feature  # of each kept bin
        self._tables = tables  # lower end, 1 / width, least and largest value: (M, 1, bins)

    @classmethod
    def of(cls, networks: Sequence[EncoderDecoder]) -> _Bins:
        some = [one.embedding for one in networks if one.embedding is not None]
        if not some:
            return cls(torch.arange(_linear_layers(networks[0])[0].in_features), torch.arange(0), [])
        n_features, n_bins = some[0].n_features, some[0].n_bins
        lower, scale, first, last = (
            torch.stack([getattr(one, name) for one in some]).flatten(1).unsqueeze(1)
            for name in ("lower", "scale", "first", "last")
        )
        used = (scale != 0).any(0).flatten().nonzero().squeeze(1)
        least = torch.where(first, -torch.inf, 0.0)
        most = torch.where(last, torch.inf, 1.0)
        kept = torch.cat([torch.arange(n_features), n_features + used])
        return cls(kept, used // n_bins, [table[:, :, used] for table in (lower, scale, least, most)])

    def __call__(self, x: Tensor) -> Tensor:
        if not len(self._feature):
            return x
        lower, scale, least, most = self._tables
        spread = x.index_select(2, self._feature).sub_(lower).mul_(scale)
        return torch.cat([x, torch.clamp(spread, least, most, out=spread)], dim=2)

    def only(self, kept: Tensor) -> _Bins:
        return _Bins(self.kept, self._feature, [table[kept] for table in self._tables])


def _linear_layers(network: EncoderDecoder) -> list[nn.Linear]:
    return [layer for layer in [*network.encoder, *network.aggregation] if isinstance(layer, nn.Linear)]


def _dropout(network: EncoderDecoder) -> float:
    return next((layer.p for layer in network.encoder if isinstance(layer, nn.Dropout)), 0.0)
