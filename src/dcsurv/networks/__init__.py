"""Networks: tensors in, tensors out."""

from dcsurv.networks.encoder_decoder import EncoderDecoder
from dcsurv.networks.mlp import MLP
from dcsurv.networks.recurrent import RecurrentDecoder

__all__ = ["MLP", "EncoderDecoder", "RecurrentDecoder"]
