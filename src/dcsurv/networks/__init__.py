"""Networks: tensors in, tensors out."""

from dcsurv.networks.encoder_decoder import EncoderDecoder
from dcsurv.networks.mlp import MLP
from dcsurv.networks.recurrent import RecurrentDecoder
from dcsurv.networks.stack import NetworkStack, can_be_stacked

__all__ = ["MLP", "EncoderDecoder", "NetworkStack", "RecurrentDecoder", "can_be_stacked"]
