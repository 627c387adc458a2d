"""Networks of the same shape that predict together: their weights lie on top of each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from dcsurv.networks.encoder_decoder import EncoderDecoder

# Patients of a pass. Always as many, so that the products are the same ones wherever in a table a patient stands.
_ROWS = 256


class StackedNetworks:
    """Trained networks without recurrent decoder, all of the same shape, that predict in one pass.

    Parameters
    ----------
    networks : sequence of EncoderDecoder
        Networks for which :meth:`accepts` is true.

    Examples
    --------
    >>> import torch
    >>> from dcsurv.networks import EncoderDecoder, StackedNetworks
    >>> networks = [EncoderDecoder(4, 10, decoder_layers=0) for _ in range(3)]
    >>> StackedNetworks(networks)(torch.zeros(5, 4)).shape  # members, patients, nodes
    torch.Size([3, 5, 10])
    """

    def __init__(self, networks: Sequence[EncoderDecoder]) -> None:
        first = networks[0]
        self._outputs_per_node = first.outputs_per_node
        self._n_nodes = first.n_nodes
        self._bins: tuple[Tensor, ...] | None = None
        if first.embedding is not None:
            lower, scale = (_stacked(getattr(one.embedding, name) for one in networks) for name in ("lower", "scale"))
            open_below, open_above = (
                _stacked(getattr(one.embedding, name) for one in networks) for name in ("first", "last")
            )
            # Outside its bin a share stays at 0 or 1, except below the first bin and above the last.
            least = torch.where(open_below, -torch.inf, 0.0)
            most = torch.where(open_above, torch.inf, 1.0)
            self._bins = tuple(one.unsqueeze(3) for one in (lower, scale, least, most))
        layers = [[*one.encoder, *one.aggregation] for one in networks]
        self._layers = [
            (_stacked(one.weight for one in same), _stacked(one.bias for one in same).unsqueeze(2))
            for same in zip(*([one for one in own if isinstance(one, nn.Linear)] for own in layers), strict=True)
        ]
        self._encoder_layers = sum(isinstance(one, nn.Linear) for one in first.encoder)

    @staticmethod
    def accepts(networks: Sequence[nn.Module]) -> bool:
        """Tell whether networks can be stacked: of the same shape, on the CPU and without recurrent decoder.

        Parameters
        ----------
        networks : sequence of Module
            Trained networks.

        Returns
        -------
        bool
            Whether they can.
        """
        shapes = set()
        for one in networks:
            if not isinstance(one, EncoderDecoder) or one.decoder is not None:
                return False
            state = one.state_dict()
            if any(value.device.type != "cpu" for value in state.values()):
                return False
            shapes.add((one.outputs_per_node, *((name, value.shape) for name, value in state.items())))
        return len(shapes) == 1

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Map features to outputs at the nodes.

        Parameters
        ----------
        x : Tensor
            Features, shape (n, n_features).

        Returns
        -------
        Tensor
            Shape (members, n, L), or (members, n, L, outputs per node) if there are several.
        """
        n = len(x)
        out = torch.empty(len(self._layers[-1][0]), self._layers[-1][0].shape[1], -(-n // _ROWS) * _ROWS)
        for start in range(0, n, _ROWS):
            piece = x[start : start + _ROWS].t()
            out[:, :, start : start + _ROWS] = self._pass(functional.pad(piece, (0, _ROWS - piece.shape[1])))
        turned = out[:, :, :n].transpose(1, 2)
        return turned if self._outputs_per_node == 1 else turned.reshape(*turned.shape[:2], self._n_nodes, -1)

    def _pass(self, x: Tensor) -> Tensor:
        """Return the outputs of one piece, one column per patient: (members, outputs, rows) of (features, rows)."""
        (weight, bias), *others = self._layers
        width = len(x)
        hidden = (weight[:, :, :width].reshape(-1, width) @ x).view(len(weight), -1, _ROWS) + bias
        if self._bins is not None:
            lower, scale, least, most = self._bins
            share = ((x.unsqueeze(1) - lower) * scale).clamp_(least, most)
            hidden.baddbmm_(weight[:, :, width:], share.flatten(1, 2))
        for number, (weight, bias) in enumerate(others, start=1):
            hidden = hidden.relu_() if number <= self._encoder_layers else hidden.sigmoid_()
            hidden = torch.baddbmm(bias, weight, hidden)
        return hidden


def _stacked(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack([part.detach() for part in parts])
