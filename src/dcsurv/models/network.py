"""What the models with a network share: the choices of training, and prediction on a grid of nodes."""

from __future__ import annotations

import math
import numbers
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from dcsurv.curves import Interpolation
from dcsurv.grid import Convention, Spacing, TimeGrid
from dcsurv.losses import survival_from_logits
from dcsurv.models.base import Features, Outcome, SurvivalEstimator
from dcsurv.networks import EncoderDecoder
from dcsurv.nonparametric import kaplan_meier
from dcsurv.persistence import Arrays, Header
from dcsurv.target import FloatArray, IntArray
from dcsurv.training import BatchLoss, isolated_torch, train, validation_split
from dcsurv.training.loop import VALIDATION_BATCH


def as_random_state(random_state: Any) -> np.random.RandomState:
    """Return scikit-learn's kind of generator from a seed, a generator of either kind of NumPy, or None."""
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**31 - 1))
    return check_random_state(random_state)


def _check_device(device: Any) -> None:
    try:
        kind = torch.device(device).type
    except (RuntimeError, TypeError):
        raise ValueError(f"device is {device!r}, but 'cpu', 'cuda' or 'mps' is expected.") from None
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(kind, False):
        available = ", ".join(repr(name) for name, is_there in there.items() if is_there)
        raise ValueError(f"device is {device!r}, but this machine has {available} only.")


# Hazards at which a network may start, so that the logit of each is one that training can move.
_START_HAZARDS = 1e-3, 0.5
_LEAST_SURVIVAL = 1e-6

# Rows to train on, and rows set aside for early stopping.
Parts: TypeAlias = tuple[IntArray, IntArray]


@dataclass(kw_only=True, repr=False, eq=False)
class NetworkEstimator(SurvivalEstimator):
    """Base of the models with a network.

    Parameters
    ----------
    batch_size, max_epochs, learning_rate
        Rows per step, most epochs, and step size of Adam.
    patience
        Training ends after this many epochs without a better validation loss; the best weights are restored.
    validation_fraction
        Share of the training rows set aside for that, stratified by event. 0 watches the training loss instead.
    dropout
        Share of hidden nodes dropped in training.
    weight_decay, clip_norm
        Decoupled weight decay, and the longest gradient (None: no limit).
    random_state
        Seed, generator or None. The same seed gives the same bits on a CPU.
    device
        Where to compute: "cpu", "cuda", "mps".
    verbose
        Show a progress bar.
    """

    batch_size: int = 128
    max_epochs: int = 100
    patience: int = 10
    learning_rate: float = 1e-3
    validation_fraction: float = 0.1
    dropout: float = 0.2
    weight_decay: float = 0.0
    clip_norm: float | None = None
    random_state: Any = None
    device: str = "cpu"
    verbose: bool = False

    # Whether steps run over the patients with an event only.
    batches_of_events: ClassVar[bool] = False
    # Whether the loss is a plain sum over patients and pairs, so that its balance depends on the batch size.
    plain_sums: ClassVar[bool] = False
    # Allowed range of each numeric parameter: lowest, highest (excluded if below infinity), whole numbers only.
    ranges: ClassVar[dict[str, tuple[float, float, bool]]] = {
        "batch_size": (1, math.inf, True),
        "max_epochs": (1, math.inf, True),
        "patience": (1, math.inf, True),
        "learning_rate": (1e-12, math.inf, False),
        "validation_fraction": (0, 1, False),
        "dropout": (0, 1, False),
        "weight_decay": (0, math.inf, False),
    }

    @abstractmethod
    def _build(self) -> nn.Module:
        """Return the network; its sizes follow from the parameters and ``n_inputs_``."""

    @abstractmethod
    def _batch_loss(self, X: Tensor, y: Outcome, weight: Tensor | None, parts: Parts) -> BatchLoss:
        """Return the loss of a batch of rows, given all rows and how they are split for validation."""

    def _prepare(self, network: nn.Module, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        """Set what the network takes from the rows to train on before training, such as the edges of bins."""

    def _after_training(self, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        """Estimate what the network needs besides its weights, such as a baseline hazard."""

    def _fit(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        device = torch.device(self.device)
        parts = validation_split(y, self.validation_fraction, seed)
        train_rows, validation_rows = (
            torch.as_tensor(rows[y["event"][rows]] if self.batches_of_events else rows, device=device) for rows in parts
        )
        self.n_inputs_ = X.shape[1]
        with isolated_torch(seed, device):
            self.network_ = self._build()
            rows = parts[0]
            self._prepare(self.network_, X[rows], y[rows], None if weight is None else weight[rows])
            self.network_.to(device)
            tensor_weight = None if weight is None else torch.as_tensor(weight, dtype=torch.float32, device=device)
            self.history_ = train(
                self.network_,
                self._batch_loss(torch.as_tensor(X, device=device), y, tensor_weight, parts),
                train_rows,
                validation_rows,
                batch_size=self.batch_size,
                max_epochs=self.max_epochs,
                patience=self.patience,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                clip_norm=self.clip_norm,
                validation_batch=self.batch_size if self.plain_sums else VALIDATION_BATCH,
                verbose=self.verbose,
            )
        self._after_training(X, y, weight)
        return {"validation_patients": len(parts[1]), "seed": seed, **self.history_.summary()}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, (low, high, whole) in self.ranges.items():
            value = getattr(self, name)
            number = isinstance(value, int | np.integer) or (not whole and isinstance(value, float | np.floating))
            if not number or isinstance(value, bool) or not low <= value or not (value < high or high == math.inf):
                kind = "a whole number" if whole else "a number"
                limit = f"at least {low:g}" + ("" if high == math.inf else f" and below {high:g}")
                raise ValueError(f"{name} is {value!r}, but {kind} of {limit} is expected.")
        clip = self.clip_norm
        if clip is not None and not (isinstance(clip, numbers.Real) and 0 < clip < math.inf):
            raise ValueError(f"clip_norm is {clip!r}, but None or a number above 0 is expected.")
        _check_device(self.device)

    @torch.no_grad()
    def _forward(self, X: Features) -> Tensor:
        self.network_.eval()
        out: Tensor = self.network_(torch.as_tensor(X, device=self.device))
        return out

    def _to_saved(self) -> tuple[Header, Arrays]:
        weights = {f"network.{name}": value.cpu().numpy() for name, value in self.network_.state_dict().items()}
        architecture = {
            "network": type(self.network_).__name__,
            "inputs": self.n_inputs_,
            "weights": sum(value.numel() for value in self.network_.parameters()),
        }
        return {"architecture": architecture}, weights

    def _restore(self, header: Header, arrays: Arrays) -> None:
        prefix = "network."
        weights = {k[len(prefix) :]: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith(prefix)}
        for name, value in weights.items():
            if value.is_floating_point() and (value.dtype != torch.float32 or not value.isfinite().all()):
                raise ValueError(f"the weights {name} are not finite numbers of single precision.")
        self.n_inputs_ = int(header["architecture"]["inputs"])
        layers = sum(value for name, value in self.get_params().items() if name.endswith("layers"))
        if layers > len(weights):
            raise ValueError(f"{layers} layers are announced, but there are only {len(weights)} arrays of weights.")
        # Built without memory: the file's weights are the first to be allocated, and their shapes are checked.
        with torch.device("meta"):
            network = self._build()
        network.load_state_dict(weights, strict=True, assign=True)
        self.network_ = network.to(self.device).eval()


@dataclass(kw_only=True, repr=False, eq=False)
class GridEstimator(NetworkEstimator):
    """Base of the models with one hazard per node of a time grid.

    Parameters
    ----------
    n_nodes
        Number of output nodes, L.
    convention
        How the grid is laid, see :meth:`dcsurv.TimeGrid.make`, and where training starts: at the hazards of the cohort
        (default), or at one half for every node (paper).
    encoder_layers, encoder_size
        Dense layers before the decoder (0: none) and nodes in each.
    decoder_layers, decoder_size
        LSTM layers over the grid and nodes in each.
    recurrent_dropout
        Share of the recurrent connections dropped in training, the same ones at every node.
    """

    n_nodes: int = 40
    convention: Convention = "default"
    encoder_layers: int = 1
    encoder_size: int = 64
    decoder_layers: int = 1
    decoder_size: int = 32
    recurrent_dropout: float = 0.2

    interpolation: ClassVar[Interpolation] = "linear"
    ranges: ClassVar[dict[str, tuple[float, float, bool]]] = {
        **NetworkEstimator.ranges,
        "n_nodes": (1, math.inf, True),
        "encoder_layers": (0, math.inf, True),
        "encoder_size": (1, math.inf, True),
        "decoder_layers": (0, math.inf, True),
        "decoder_size": (1, math.inf, True),
        "recurrent_dropout": (0, 1, False),
    }

    def _spacing(self) -> Spacing:
        return "linear"

    def _architecture(self) -> dict[str, Any]:
        """Return the arguments of the network beyond those that all grid models have."""
        return {}

    @abstractmethod
    def _loss(
        self,
        logits: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch: hazard logits (n, L), bucket, event and weight (n,), what `_details` gives."""

    def _prepare(self, network: nn.Module, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        """Start at the hazards of the whole cohort, except in the paper's convention, where all start at one half.

        From one half at every node, survival starts at almost 0, and with few events the way back up can take so
        many epochs that training ends before it has learned to tell patients apart.
        """
        if self.convention == "paper":
            return
        assert isinstance(network, EncoderDecoder)
        survival = np.concatenate([[1.0], kaplan_meier(y, sample_weight=weight)(self.grid_.nodes)])
        hazard = 1.0 - survival[1:] / np.maximum(survival[:-1], _LEAST_SURVIVAL)
        network.start_at(np.clip(hazard, *_START_HAZARDS))

    def _bucket(self, y: Outcome) -> IntArray:
        """Return the first node, 0-based, at which a patient is not known to be alive; L beyond the grid."""
        return self.grid_.bucket(y["time"])

    def _details(
        self, y: Outcome, weight: Tensor | None, parts: Parts, device: torch.device
    ) -> Callable[[Tensor], Tensor] | None:
        """Return the function from rows to what the loss has to know of them besides bucket, event and weight."""
        return None

    def _build(self) -> nn.Module:
        return EncoderDecoder(
            self.n_inputs_,
            self.grid_.size,
            encoder_layers=self.encoder_layers,
            encoder_size=self.encoder_size,
            decoder_layers=self.decoder_layers,
            decoder_size=self.decoder_size,
            dropout=self.dropout,
            recurrent_dropout=self.recurrent_dropout,
            **self._architecture(),
        )

    def _fit(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        self.grid_ = TimeGrid.make(y, self._spacing(), self.n_nodes, self.convention)
        return super()._fit(X, y, weight)

    def _batch_loss(self, X: Tensor, y: Outcome, weight: Tensor | None, parts: Parts) -> BatchLoss:
        bucket = torch.as_tensor(self._bucket(y), device=X.device)
        event = torch.as_tensor(np.ascontiguousarray(y["event"]), device=X.device)
        details = self._details(y, weight, parts, X.device)

        def loss(network: nn.Module, rows: Tensor) -> Tensor:
            logits = network(X.index_select(0, rows))
            some = None if weight is None else weight.index_select(0, rows)
            detail = None if details is None else details(rows)
            return self._loss(logits, bucket.index_select(0, rows), event.index_select(0, rows), some, detail)

        return loss

    def _nodes(self) -> FloatArray:
        return self.grid_.nodes[self._kept()]

    def _survival(self, X: Features) -> npt.NDArray[Any]:
        survival = survival_from_logits(self._forward(X)).cpu().numpy()
        return survival[:, self._kept()]

    def _kept(self) -> npt.NDArray[np.bool_]:
        """Mark the nodes of the curves: the paper's rounded grids repeat times, of which the last counts."""
        return np.append(np.diff(self.grid_.nodes) > 0, True)

    def _numbers_per_row(self) -> int:
        # Hidden state, gates and an input of that size at every node and layer.
        width = max(self.encoder_size * (self.encoder_layers > 0), 8 * self.decoder_size * (self.decoder_layers > 0))
        return self.grid_.size * max(8, width)

    def _to_saved(self) -> tuple[Header, Arrays]:
        header, arrays = super()._to_saved()
        header["grid"] = {"spacing": self.grid_.spacing, "convention": self.convention, "size": self.grid_.size}
        return header, {**arrays, "grid.nodes": self.grid_.nodes}

    def _restore(self, header: Header, arrays: Arrays) -> None:
        self.grid_ = TimeGrid(arrays["grid.nodes"], header["grid"]["spacing"])
        super()._restore(header, arrays)
