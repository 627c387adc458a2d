"""Networks: tensors in, tensors out."""

from dcsurv.networks.encoder_decoder import EncoderDecoder
from dcsurv.networks.in_training import NetworksInTraining
from dcsurv.networks.mlp import MLP
from dcsurv.networks.recurrent import RecurrentDecoder
from dcsurv.networks.stacked import StackedNetworks

__all__ = ["MLP", "EncoderDecoder", "NetworksInTraining", "RecurrentDecoder", "StackedNetworks"]
