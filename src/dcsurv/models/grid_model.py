"""What the models on a time grid share: the grid, a network with outputs at its nodes, and a head that reads them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic import Value
from dcsurv.curves import Interpolation, SurvivalCurves
from dcsurv.grid import Convention, Spacing, TimeGrid
from dcsurv.models.base import Features
from dcsurv.models.heads import HazardHead, Head
from dcsurv.models.network import NetworkEstimator, Parts
from dcsurv.models.ranges import NoneOr, Range, WholeNumber
from dcsurv.models.tensors import networks, torch, training
from dcsurv.nonparametric import kaplan_meier
from dcsurv.persistence import Arrays, Header, read_array
from dcsurv.plain import declared
from dcsurv.target import FloatArray, IntArray, Outcome

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

# Hazards at which a network may start, so that the logit of each is one that training can move.
_START_HAZARDS = 1e-3, 0.5
_LEAST_SURVIVAL = 1e-6
_LEAST_NODES, _MOST_NODES, _EVENTS_PER_NODE = 10, 40, 10


class _Grid(msgspec.Struct):
    spacing: Spacing


class _State(msgspec.Struct):
    """What the header of a file has to say of a model on a grid, besides its network."""

    grid: _Grid


def nodes_for(n_events: int) -> int:
    """Return how many nodes a grid gets that follows the events: one for every ten, between 10 and 40.

    A hazard for each of forty intervals cannot be learnt from a few dozen events.
    """
    return int(np.clip(n_events // _EVENTS_PER_NODE, _LEAST_NODES, _MOST_NODES))


@dataclass(kw_only=True, repr=False, eq=False)
class GridEstimator(NetworkEstimator):
    """Base of the models whose network has outputs at the nodes of a time grid.

    The grid says when, the network (:meth:`build_network`) computes outputs, and the :attr:`head` says what they mean.

    Parameters
    ----------
    n_nodes : int or None, default 40
        Number of output nodes, L. None: one for every ten events, between 10 and 40.
    convention : {"default", "paper"}, default "default"
        How the grid is laid, see :meth:`dcsurv.TimeGrid.make`, and where training starts: at the hazards of the cohort
        (default), or at one half for every node (paper).

    Attributes
    ----------
    grid_ : TimeGrid
        The nodes.

    Examples
    --------
    >>> from dcsurv import DCS
    >>> from dcsurv.models import GridEstimator
    >>> issubclass(DCS, GridEstimator)
    True
    """

    n_nodes: int | None = 40
    convention: Convention = "default"

    head: ClassVar[Head] = HazardHead()
    interpolation: ClassVar[Interpolation] = "linear"
    ranges: ClassVar[dict[str, Range]] = {**NetworkEstimator.ranges, "n_nodes": NoneOr(WholeNumber(1))}

    @abstractmethod
    def loss(
        self,
        outputs: Tensor,
        bucket: Tensor,
        event: Tensor,
        weight: Tensor | None,
        detail: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch.

        Parameters
        ----------
        outputs : Tensor
            Outputs of the network, (n, L) or (n, L, width).
        bucket : Tensor
            What :meth:`bucket` gives, (n,).
        event : Tensor
            Event indicators, (n,).
        weight : Tensor or None
            Weights of the patients, (n,).
        detail : Tensor or None, default None
            What the function from :meth:`details` gives.

        Returns
        -------
        Tensor
            A scalar.
        """

    def node_spacing(self) -> Spacing:
        """Return how the nodes are placed.

        Returns
        -------
        {"linear", "log", "quantile"}
            See :meth:`dcsurv.TimeGrid.make`.
        """
        return "linear"

    def bucket(self, y: Outcome) -> IntArray:
        """Return the first node at which each patient is not known to be alive.

        Parameters
        ----------
        y : structured array
            Outcomes.

        Returns
        -------
        array of int
            0-based; L beyond the grid.
        """
        return self.grid_.bucket(y["time"])

    def details(
        self, y: Outcome, weight: Tensor | None, parts: Parts, device: torch.device
    ) -> Callable[[Tensor], Tensor] | None:
        """Return the function from rows to what the loss has to know of them besides bucket, event and weight.

        Parameters
        ----------
        y : structured array
            Outcomes of all rows.
        weight : Tensor or None
            Their weights.
        parts : tuple of array
            Rows to train on, and rows set aside for early stopping.
        device : device
            Where to compute.

        Returns
        -------
        callable or None
            None if there is nothing else to know.
        """
        return None

    def prepare_network(self, network: Module, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        """Start at the hazards of the whole cohort, except in the paper's convention, where all start at one half.

        From one half at every node, survival starts at almost 0, and with few events the way back up can take so
        many epochs that training ends before it has learned to tell patients apart.
        """
        if self.convention == "paper":
            return
        assert isinstance(network, networks.EncoderDecoder)
        survival = np.concatenate([[1.0], kaplan_meier(y, sample_weight=weight)(self.grid_.nodes)])
        hazard = np.clip(1.0 - survival[1:] / np.maximum(survival[:-1], _LEAST_SURVIVAL), *_START_HAZARDS)
        if network.nodes_share_outputs:
            hazard = hazard.mean(keepdims=True)
        network.start_at(self.head.outputs_for(hazard))

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        """Lay the grid and train the network; return a summary of training in plain numbers."""
        self.lay_grid(y)
        return super().fit_prepared(X, y, weight)

    def lay_grid(self, y: Outcome) -> None:
        """Lay the grid over the times of the training patients.

        Parameters
        ----------
        y : structured array
            Their outcomes.
        """
        n_nodes = nodes_for(int(y["event"].sum())) if self.n_nodes is None else self.n_nodes
        self.grid_ = TimeGrid.make(y, self.node_spacing(), int(n_nodes), self.convention)

    def batch_loss(self, X: Tensor, y: Outcome, weight: Tensor | None, parts: Parts) -> training.BatchLoss:
        """Return the loss of a batch of rows, given all rows and how they are split for validation."""
        bucket = torch.as_tensor(self.bucket(y), device=X.device)
        event = torch.as_tensor(np.ascontiguousarray(y["event"]), device=X.device)
        details = self.details(y, weight, parts, X.device)

        def loss(network: Module, rows: Tensor) -> Tensor:
            outputs = network(X.index_select(0, rows))
            some = None if weight is None else weight.index_select(0, rows)
            detail = None if details is None else details(rows)
            return self.loss(outputs, bucket.index_select(0, rows), event.index_select(0, rows), some, detail)

        return loss

    @property
    def nodes(self) -> FloatArray:
        """The times of the nodes; the paper's rounded grids repeat times, of which the last counts."""
        return self.grid_.nodes[self._kept()]

    def survival_at_nodes(self, X: Features) -> npt.NDArray[Any]:
        """Return S at the nodes for a chunk of patients, (n, T)."""
        survival = self.head.survival(self.outputs_of(X)).cpu().numpy()
        return survival[:, self._kept()]

    @classmethod
    def survival_of(cls, members: Sequence[Any], X: Features, times: FloatArray) -> Iterator[FloatArray]:
        """Yield S of each of some fitted models, all networks in one pass if they have the same shape, (T, n) each."""
        trained = [member.network_ for member in members]
        if not networks.StackedNetworks.accepts(trained):
            yield from super().survival_of(members, X, times)
            return
        for member, outputs in zip(members, networks.StackedNetworks(trained)(torch.as_tensor(X)), strict=True):
            rows = member.head.survival(outputs).t().numpy()[member._kept()]
            curves = SurvivalCurves.from_rows(member.nodes, rows, interpolation=member.interpolation)
            yield curves.evaluate_rows(times)

    def survival_arithmetic(self, prepared: Value) -> Value:
        """Return S at the nodes as arithmetic, if network and head have one."""
        if not isinstance(self.network_, networks.EncoderDecoder) or not isinstance(self.head, HazardHead):
            return super().survival_arithmetic(prepared)
        return self.head.arithmetic(self.network_.arithmetic(prepared)).take(np.flatnonzero(self._kept()))

    def _kept(self) -> npt.NDArray[np.bool_]:
        return np.append(np.diff(self.grid_.nodes) > 0, True)

    def get_state(self) -> tuple[Header, Arrays]:
        """Return network and grid."""
        header, arrays = super().get_state()
        header["grid"] = {"spacing": self.grid_.spacing, "convention": self.convention, "size": self.grid_.size}
        return header, {**arrays, "grid.nodes": self.grid_.nodes}

    def set_state(self, header: Header, arrays: Arrays) -> None:
        """Set network and grid from a file."""
        self.grid_ = TimeGrid(read_array(arrays, "grid.nodes", (None,)), declared(header, _State).grid.spacing)
        super().set_state(header, arrays)
