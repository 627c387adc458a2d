"""What the models with a network share: the choices of training."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
import numpy as np

from dcsurv._learn import check_random_state
from dcsurv.models.base import Features
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.ranges import NoneOr, Number, Range, WholeNumber
from dcsurv.models.tensors import torch, training
from dcsurv.persistence import Arrays, Header
from dcsurv.plain import Count, declared
from dcsurv.search_space import Choice, Float, Space
from dcsurv.target import FloatArray, IntArray, Outcome

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

# Rows to train on, and rows set aside for early stopping.
Parts: TypeAlias = tuple[IntArray, IntArray]

# What a search tries first: what matters most to a network, its training, on log scales where factors count.
TRAINING_SPACE: Space = {
    "learning_rate": Float(3e-4, 3e-2, log=True),
    "batch_size": Choice((32, 64, 128, 256)),
    "dropout": Float(0.0, 0.5),
    "weight_decay": Float(1e-6, 1e-1, log=True),
}
# A look at the output, not a result.
QUICK = {"max_epochs": 3}


class _Architecture(msgspec.Struct):
    inputs: Count


class _State(msgspec.Struct):
    """What the header of a file has to say of a network."""

    architecture: _Architecture


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


@dataclass(kw_only=True, repr=False, eq=False)
class NetworkEstimator(SurvivalEstimator):
    """Base of the models with a network.

    Parameters
    ----------
    batch_size : int, default 128
        Rows per step.
    max_epochs : int, default 100
        Largest number of epochs.
    patience : int, default 10
        Training ends after this many epochs without a better validation loss; the best weights are restored.
    learning_rate : float, default 0.001
        Step size of Adam.
    validation_fraction : float, default 0.1
        Share of the training rows set aside for early stopping, stratified by event. 0 watches the training loss.
    dropout : float, default 0.2
        Share of hidden nodes dropped in training.
    weight_decay : float, default 0.0
        Decoupled weight decay.
    clip_norm : float or None, default None
        Longest gradient; None: no limit.
    random_state : int, Generator, RandomState or None, default None
        Seed, generator or None. The same seed gives the same bits on a CPU.
    device : str, default "cpu"
        Where to compute: "cpu", "cuda", "mps".
    verbose : bool, default False
        Show a progress bar.

    Attributes
    ----------
    history_ : History
        Losses per epoch; ``history_.plot()``.

    Examples
    --------
    >>> from dcsurv import DeepSurv
    >>> from dcsurv.models import NetworkEstimator
    >>> issubclass(DeepSurv, NetworkEstimator)
    True
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
    ranges: ClassVar[dict[str, Range]] = {
        "batch_size": WholeNumber(1),
        "max_epochs": WholeNumber(1),
        "patience": WholeNumber(1),
        "learning_rate": Number(above=0),
        "validation_fraction": Number(least=0, below=1),
        "dropout": Number(least=0, below=1),
        "weight_decay": Number(least=0),
        "clip_norm": NoneOr(Number(above=0)),
    }

    @abstractmethod
    def build_network(self) -> Module:
        """Return the network, untrained; its sizes follow from the parameters and ``n_inputs_``.

        Returns
        -------
        Module
            The network.
        """

    @abstractmethod
    def batch_loss(self, X: Tensor, y: Outcome, weight: Tensor | None, parts: Parts) -> training.BatchLoss:
        """Return the loss of a batch of rows.

        Parameters
        ----------
        X : Tensor
            Prepared features of all rows, (n, columns).
        y : structured array
            Their outcomes.
        weight : Tensor or None
            Their weights.
        parts : tuple of array
            Rows to train on, and rows set aside for early stopping.

        Returns
        -------
        callable
            ``loss(network, rows)``.
        """

    def prepare_network(self, network: Module, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        """Set what the network takes from the rows to train on before training, such as the edges of bins.

        Parameters
        ----------
        network : Module
            The network, untrained.
        X : array of shape (n, columns)
            Prepared features of the rows to train on.
        y : structured array
            Their outcomes.
        weight : array or None
            Their weights.
        """

    def after_training(self, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        """Estimate what the network needs besides its weights, such as a baseline hazard.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        y : structured array
            Checked outcomes.
        weight : array or None
            One weight per patient, of mean 1; None is 1 for everybody.
        """

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        """Train the network; return a summary of training in plain numbers."""
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        device = torch.device(self.device)
        parts = training.validation_split(y, self.validation_fraction, seed, self.row_groups_)
        train_rows, validation_rows = (
            torch.as_tensor(rows[y["event"][rows]] if self.batches_of_events else rows, device=device) for rows in parts
        )
        with training.isolated_torch(seed, device):
            self.start_network(X, y, weight, parts)
            self.network_.to(device)
            tensor_weight = None if weight is None else torch.as_tensor(weight, dtype=torch.float32, device=device)
            self.history_ = training.train(
                self.network_,
                self.batch_loss(torch.as_tensor(X, device=device), y, tensor_weight, parts),
                train_rows,
                validation_rows,
                batch_size=self.batch_size,
                max_epochs=self.max_epochs,
                patience=self.patience,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                clip_norm=self.clip_norm,
                validation_batch=self.batch_size if self.plain_sums else training.VALIDATION_BATCH,
                verbose=self.verbose,
            )
        self.after_training(X, y, weight)
        return {"validation_patients": len(parts[1]), "seed": seed, **self.history_.summary()}

    def start_network(self, X: Features, y: Outcome, weight: FloatArray | None, parts: Parts) -> None:
        """Build the network and set what it takes from the rows to train on.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        y : structured array
            Their outcomes.
        weight : array or None
            Their weights.
        parts : tuple of array
            Rows to train on, and rows set aside for early stopping.
        """
        self.n_inputs_ = X.shape[1]
        self.network_ = self.build_network()
        rows = parts[0]
        self.prepare_network(self.network_, X[rows], y[rows], None if weight is None else weight[rows])

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        super().check_parameters()
        _check_device(self.device)

    def outputs_of(self, X: Features) -> Tensor:
        """Return the trained network's outputs.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        Tensor
            The outputs, one row per patient.
        """
        self.network_.eval()
        with torch.no_grad():
            out: Tensor = self.network_(torch.as_tensor(X, device=self.device))
        return out

    @property
    def n_columns(self) -> int:
        return self.n_inputs_

    def get_state(self) -> tuple[Header, Arrays]:
        """Return weights and sizes of the network."""
        weights = {f"network.{name}": value.cpu().numpy() for name, value in self.network_.state_dict().items()}
        architecture = {
            "network": type(self.network_).__name__,
            "inputs": self.n_inputs_,
            "weights": sum(value.numel() for value in self.network_.parameters()),
        }
        return {"architecture": architecture}, weights

    def set_state(self, header: Header, arrays: Arrays) -> None:
        """Build the network from the weights of a file."""
        prefix = "network."
        weights = {k[len(prefix) :]: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith(prefix)}
        self.n_inputs_ = declared(header, _State).architecture.inputs
        layers = sum(value for name, value in self.get_params().items() if name.endswith("layers"))
        if layers > len(weights):
            raise ValueError(f"{layers} layers are announced, but there are only {len(weights)} arrays of weights.")
        # Built without memory: the file's weights are the first to be allocated, and their shapes are checked.
        with torch.device("meta"):
            network = self.build_network()
        expected = {name: value.dtype for name, value in network.state_dict().items()}
        network.load_state_dict(weights, strict=True, assign=True)
        for name, value in weights.items():
            if value.dtype != expected[name] or not value.isfinite().all():
                raise ValueError(f"the weights {name} are not finite numbers of the type {expected[name]}.")
        self.network_ = network.to(self.device).eval()
