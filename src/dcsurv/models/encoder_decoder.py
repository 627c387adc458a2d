"""What DRSA, Kamran and DCS share: a network that encodes a patient and unrolls over the grid, and its search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dcsurv.durations import Unit, find_unit
from dcsurv.models.grid_model import GridEstimator
from dcsurv.models.network import TRAINING_SPACE
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.models.tensors import networks
from dcsurv.search_space import Choice, Dimension, Float, Int, Space, TuningError
from dcsurv.target import unpack

if TYPE_CHECKING:
    from torch.nn import Module

_SIZES = (16, 32, 64, 128)
_ENCODER = {"encoder_layers": (1, 2)}
# The decoder's own choices count where there is one.
RECURRENT = {"decoder_layers": (1,)}
PAPER_RECURRENT = {"decoder_layers": (1, 2)}
# The paper's numbers of nodes: multiples of the last time in months.
_PAPER_NODES = (0.25, 0.5, 1, 2)
# The paper's months are those of a year of 365 days, so that its search space keeps its numbers of nodes.
_PER_PAPER_MONTH: dict[Unit, float] = {"days": 365 / 12, "weeks": 365 / 84, "months": 1.0, "years": 1 / 12}


@dataclass(kw_only=True, repr=False, eq=False)
class EncoderDecoderEstimator(GridEstimator):
    """Base of the models with an :class:`~dcsurv.networks.EncoderDecoder`.

    Parameters
    ----------
    encoder_layers : int, default 1
        Dense layers before the decoder; 0: none.
    encoder_size : int, default 64
        Nodes in each of them.
    decoder_layers : int, default 1
        LSTM layers over the grid. 0, where a model allows it: the nodes are outputs of one dense layer.
    decoder_size : int, default 32
        Nodes in each of them.
    recurrent_dropout : float, default 0.2
        Share of the recurrent connections dropped in training, the same ones at every node.

    Examples
    --------
    >>> from dcsurv import DRSA
    >>> from dcsurv.models import EncoderDecoderEstimator
    >>> issubclass(DRSA, EncoderDecoderEstimator)
    True
    """

    encoder_layers: int = 1
    encoder_size: int = 64
    decoder_layers: int = 1
    decoder_size: int = 32
    recurrent_dropout: float = 0.2

    ranges: ClassVar[dict[str, Range]] = {
        **GridEstimator.ranges,
        "encoder_layers": WholeNumber(0),
        "encoder_size": WholeNumber(1),
        "decoder_layers": WholeNumber(0),
        "decoder_size": WholeNumber(1),
        "recurrent_dropout": Number(least=0, below=1),
    }

    def architecture(self) -> dict[str, Any]:
        """Return the arguments of the network beyond those that all these models have.

        Returns
        -------
        dict
            For :class:`~dcsurv.networks.EncoderDecoder`.
        """
        return {}

    def build_network(self) -> Module:
        """Return the network, untrained; its sizes follow from the parameters and ``n_inputs_``."""
        return networks.EncoderDecoder(
            self.n_inputs_,
            self.grid_.size,
            encoder_layers=self.encoder_layers,
            encoder_size=self.encoder_size,
            decoder_layers=self.decoder_layers,
            decoder_size=self.decoder_size,
            dropout=self.dropout,
            recurrent_dropout=self.recurrent_dropout,
            outputs_per_node=self.head.width,
            **self.architecture(),
        )

    def numbers_per_row(self) -> int:
        """Return how many numbers a prediction holds in memory for each patient."""
        # Hidden state, gates and an input of that size at every node and layer.
        width = max(self.encoder_size * (self.encoder_layers > 0), 8 * self.decoder_size * (self.decoder_layers > 0))
        return self.grid_.size * max(8, width)


def default_space(decoder_layers: Dimension) -> Space:
    """Return what is searched for all of these models: training first, then networks that are quick to train."""
    return {
        **TRAINING_SPACE,
        "n_nodes": Int(10, 120, log=True),
        "encoder_layers": Int(0, 2),
        "encoder_size": Int(16, 128, log=True, when=_ENCODER),
        "decoder_layers": decoder_layers,
        "decoder_size": Choice((16, 32, 64), when=RECURRENT),
        "recurrent_dropout": Float(0.0, 0.5, when=RECURRENT),
    }


def paper_space(decoder_layers: Dimension, own: Space, estimator: Any, y: Any) -> Space:
    """Return the space of the paper's search, as far as it is stated; the rest is inferred from its best settings.

    The number of nodes is a quarter, half, once or twice the last time in months, for which ``time_unit`` must be
    known.
    """
    unit = find_unit(estimator.time_unit)
    if unit is None:
        raise TuningError(
            f"the paper counts nodes in months, but time_unit is {estimator.time_unit!r}. Set it on the model: "
            "time_unit='days', 'months' or 'years'."
        )
    months = float(unpack(y)[0].max()) / _PER_PAPER_MONTH[unit]
    return {
        "encoder_layers": Int(0, 2),
        "encoder_size": Choice(_SIZES, when=_ENCODER),
        "decoder_layers": decoder_layers,
        "decoder_size": Choice(_SIZES, when=PAPER_RECURRENT),
        **own,
        "n_nodes": Choice(tuple(sorted({max(1, round(share * months)) for share in _PAPER_NODES}))),
    }
