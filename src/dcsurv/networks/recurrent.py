"""The recurrent decoder: LSTM layers unrolled over the nodes of the time grid."""

from __future__ import annotations

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from dcsurv.arithmetic import Value
from dcsurv.networks.dense import as_doubles, joined_dense

Array = np.ndarray[Any, np.dtype[np.float32]]

_BLOCK = 16  # see the layout in _lstm_kernels, which is imported on first use
_ROWS_PER_THREAD = 240  # fewer rows than this are not worth a thread
_NOTHING: Array = np.empty((2, 1, 0, 0), np.float32)  # for kernels' arguments that are left out


class RecurrentDecoder(nn.Module):
    r"""Stacked LSTM layers that unroll an encoding over the L nodes of the grid.

    .. math::

        (i, f, g, o)_l &= x_l W + b + (m \odot h_{l-1}) R \\
        c_l &= \sigma(f_l) \odot c_{l-1} + \sigma(i_l) \odot \tanh(g_l) \\
        h_l &= \sigma(o_l) \odot \tanh(c_l)

    with :math:`h_0 = c_0 = 0`. An encoding that is the same at every node is projected once. The recurrent dropout
    mask m is drawn once per forward pass, sample, layer and direction and is constant over the nodes (variational
    dropout [1]_); it scales what it keeps by 1 / (1 - p) and is 1 outside training.

    Input kernels start Glorot-uniform, recurrent kernels orthogonal, biases at 0 except 1 for the forget gates.

    Float32 on the CPU runs through compiled code, forward and backward (compiled on first use, some seconds, then kept
    on disk): a row gets the same bits whatever the number of threads and whichever rows share its batch. Anything
    else, and everything where the code does not compile, which a warning says, runs through an equivalent loop of torch
    operations.

    Parameters
    ----------
    input_size : int
        E, the length of an encoding.
    hidden_size : int
        H, the units of each layer and direction.
    num_layers : int
        Layers on top of each other.
    bidirectional : bool, default False
        Run every layer in both directions and concatenate: D = 2 instead of 1.
    recurrent_dropout : float, default 0.0
        The share p of h that is dropped in training, in [0, 1).

    Notes
    -----
    The parameters of a layer, both directions stacked, with the gates in the order i, f, g, o:
    ``layers.k.input_kernel`` (D, E or D H, 4 H), ``layers.k.recurrent_kernel`` (D, H, 4 H), ``layers.k.bias`` (D, 4 H).

    References
    ----------
    .. [1] Gal and Ghahramani, "A Theoretically Grounded Application of Dropout in Recurrent Neural Networks", 2016.

    Examples
    --------
    >>> import torch
    >>> from dcsurv.networks import RecurrentDecoder
    >>> RecurrentDecoder(8, 16, 1)(torch.zeros(3, 8), length=5).shape
    torch.Size([5, 3, 16])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        bidirectional: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if min(input_size, hidden_size, num_layers) < 1:
            raise ValueError(
                "A recurrent decoder needs at least one input, one unit and one layer; "
                f"got input_size={input_size}, hidden_size={hidden_size}, num_layers={num_layers}."
            )
        if not 0.0 <= recurrent_dropout < 1.0:
            raise ValueError(f"recurrent_dropout is a share in [0, 1); got {recurrent_dropout}.")
        self.input_size = input_size
        n_directions = 2 if bidirectional else 1
        sizes = [input_size] + [n_directions * hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(
            _RecurrentLayer(size, hidden_size, n_directions, recurrent_dropout) for size in sizes
        )

    def forward(self, encoding: Tensor, length: int) -> Tensor:
        """Unroll over ``length`` nodes.

        Parameters
        ----------
        encoding : Tensor
            Shape (B, E), the same at every node, or (L, B, E), one per node.
        length : int
            L, the number of nodes.

        Returns
        -------
        Tensor
            Shape (L, B, D H), contiguous: node by node, so that a dense layer on top is one product over L B rows.
        """
        if length < 1:
            raise ValueError(f"The decoder needs at least one node; got length={length}.")
        expected = (length,) if encoding.dim() == 3 else ()
        if encoding.dim() not in (2, 3) or (*encoding.shape[:-2], encoding.shape[-1]) != (*expected, self.input_size):
            raise ValueError(
                f"The decoder takes an encoding of shape (batch, {self.input_size}), the same at every node, or "
                f"({length}, batch, {self.input_size}), one per node; got {tuple(encoding.shape)}."
            )
        hidden = encoding
        for layer in self.layers:
            hidden = layer(hidden, length)
        return hidden

    @property
    def output_size(self) -> int:
        """How many numbers each node has in the end, D H."""
        last = self.layers[-1]
        assert isinstance(last, _RecurrentLayer)
        return int(last.recurrent_kernel.shape[0] * last.recurrent_kernel.shape[1])

    def arithmetic(
        self,
        encoding: Value,
        length: int,
        used: npt.NDArray[np.int64] | None = None,
        steps: npt.NDArray[np.float64] | None = None,
    ) -> Value:
        """Return what the trained layers compute as arithmetic.

        Parameters
        ----------
        encoding : Value
            (n, 1, E), the same at every node, or (n, L, E), one per node; with ``steps``, (n, E).
        length : int
            L, the number of nodes.
        used : array of int or None, default None
            Which of the E inputs the encoding holds; None: all.
        steps : array of float or None, default None
            One more input, which is different at every node, (L,).

        Returns
        -------
        Value
            Shape (n, L, D H).
        """
        hidden = encoding
        for layer in self.layers:
            assert isinstance(layer, _RecurrentLayer)
            input_kernel, recurrent_kernel, bias = (
                as_doubles(one) for one in (layer.input_kernel, layer.recurrent_kernel, layer.bias)
            )
            both = []
            for direction in range(len(bias)):
                kernel = input_kernel[direction] if used is None else input_kernel[direction][used]
                gates = joined_dense(hidden, kernel, bias[direction], steps)
                if hidden is encoding and steps is None:
                    gates = gates + np.zeros((length, 1))  # the same at every node is repeated
                recurrent = hidden.graph.constant(recurrent_kernel[direction])
                both.append(hidden.graph.apply("Lstm", gates, recurrent, backwards=direction == 1))
            hidden, used, steps = hidden.graph.concat(both), None, None
        return hidden


class _RecurrentLayer(nn.Module):
    """One LSTM layer, in one or both directions."""

    def __init__(self, input_size: int, hidden_size: int, n_directions: int, recurrent_dropout: float) -> None:
        super().__init__()
        self.recurrent_dropout = recurrent_dropout
        self._spare: list[_History] = []
        self.input_kernel = nn.Parameter(torch.empty(n_directions, input_size, 4 * hidden_size))
        self.recurrent_kernel = nn.Parameter(torch.empty(n_directions, hidden_size, 4 * hidden_size))
        self.bias = nn.Parameter(torch.zeros(n_directions, 4 * hidden_size))
        with torch.no_grad():
            for direction in range(n_directions):
                nn.init.xavier_uniform_(self.input_kernel[direction])
                nn.init.orthogonal_(self.recurrent_kernel[direction])
            self.bias[:, hidden_size : 2 * hidden_size] = 1.0

    def forward(self, x: Tensor, length: int) -> Tensor:
        """Map (B, E) or (L, B, E) to (L, B, D H)."""
        n_directions, hidden_size, _ = self.recurrent_kernel.shape
        keep: Tensor | None = None
        if self.training and self.recurrent_dropout > 0.0:
            keep = functional.dropout(x.new_ones(n_directions, x.shape[-2], hidden_size), self.recurrent_dropout)
        inputs = x if x.dim() == 3 else x.unsqueeze(0)
        operands = (inputs, self.input_kernel, self.recurrent_kernel, self.bias, keep)
        training = torch.is_grad_enabled()
        if not (inputs.is_cpu and self.bias.is_cpu and inputs.dtype == self.bias.dtype == torch.float32):
            return unroll(*operands, length)
        if not _compiles(training):
            return unroll(*operands, length)
        if training:
            out: Tensor = _CompiledLSTM.apply(*operands, length, self._spare)  # type: ignore[no-untyped-call]  # torch's
            return out
        return _compiled_forward(*operands, length, None)

    def train(self, mode: bool = True) -> _RecurrentLayer:
        """Set the mode; memory kept between training steps is let go at the end of training."""
        if not mode:
            self._spare.clear()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        """Leave that memory out of copies and pickles."""
        return {**self.__dict__, "_spare": []}


def unroll(
    inputs: Tensor, input_kernel: Tensor, recurrent_kernel: Tensor, bias: Tensor, keep: Tensor | None, length: int
) -> Tensor:
    """Run one layer as a plain loop of torch operations: the definition that the compiled code is tested against.

    Parameters
    ----------
    inputs : (L or 1, B, E)
        One per step, or the same for all.
    input_kernel, recurrent_kernel, bias : (D, E, 4 H), (D, H, 4 H), (D, 4 H)
    keep : (D, B, H)
        Factors of h_{l-1}: recurrent dropout.
    length
        L.

    Returns
    -------
    (L, B, D H)
    """
    n_directions, hidden_size, _ = recurrent_kernel.shape
    directions = []
    for direction in range(n_directions):
        projected = (inputs @ input_kernel[direction] + bias[direction]).expand(length, -1, -1).unbind()
        hidden = cell = inputs.new_zeros(inputs.shape[1], hidden_size)
        steps: list[Tensor] = [hidden] * length
        for step in range(length) if direction == 0 else range(length - 1, -1, -1):
            kept = hidden if keep is None else hidden * keep[direction]
            i, f, g, o = (projected[step] + kept @ recurrent_kernel[direction]).chunk(4, dim=1)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            steps[step] = hidden
        directions.append(torch.stack(steps))
    return torch.cat(directions, dim=2)


@cache
def _compiles(training: bool) -> bool:
    """Whether the compiled code can be had here, found out on the smallest layer; where not, a warning says so.

    It rests on interfaces of Numba that another version of it may have changed, and an import, a compilation or a call
    that fails then does so in ways that nobody can list.
    """
    operands = (torch.zeros(shape, dtype=torch.float32, device="cpu") for shape in ((1, 1, 1), (1, 1, 4), (1, 1, 4)))
    inputs, input_kernel, recurrent_kernel = operands
    bias = torch.zeros((1, 4), dtype=torch.float32, device="cpu", requires_grad=training)
    try:
        if training:
            out: Tensor = _CompiledLSTM.apply(inputs, input_kernel, recurrent_kernel, bias, None, 1, [])  # type: ignore[no-untyped-call]
            out.sum().backward()  # type: ignore[no-untyped-call]
        else:
            _compiled_forward(inputs, input_kernel, recurrent_kernel, bias, None, 1, None)
    except Exception as error:
        _warn_of_loop(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")
        return False
    return True


@cache
def _warn_of_loop(cause: str) -> None:
    warnings.warn(
        "the recurrent decoder could not be compiled on this machine and runs as plain torch operations, which give "
        f"the same curves up to rounding but take several times as long ({cause}). Another version of Numba may help.",
        UserWarning,
        stacklevel=2,
    )


def _array(tensor: Tensor) -> Array:
    """Look at the tensor's memory as a C-contiguous array."""
    return np.ascontiguousarray(tensor.numpy(force=True))


class _History:
    """The gates and cells of all steps, in the layout of the kernels, kept for the backward pass.

    This is most of what a training step allocates, and fetching fresh pages from the operating system in every step
    can take as long as the products. So after the backward pass it goes back to the layer, for the next step.
    """

    def __init__(self, shape: tuple[int, int, int, int], memory: Tensor) -> None:
        n_directions, length, batch, padded = self.shape = shape
        n_gates, n_cells = n_directions * length * batch * 4 * padded, n_directions * (length + 1) * batch * padded
        self.memory = memory if memory.numel() >= n_gates + n_cells else memory.new_empty(n_gates + n_cells)
        numbers = self.memory.numpy()
        self.gates: Array = numbers[:n_gates].reshape(n_directions, length, batch, 4 * padded)
        self.cells: Array = numbers[n_gates : n_gates + n_cells].reshape(n_directions, length + 1, batch, padded)

    @classmethod
    def take(cls, recurrent_kernel: Tensor, batch: int, length: int, spare: list[_History]) -> _History:
        """Take the spare history, or at least its memory, or make a new one."""
        n_directions, hidden_size, _ = recurrent_kernel.shape
        shape = (n_directions, length, batch, _BLOCK * (-(-hidden_size // _BLOCK)))
        try:
            old = spare.pop()
        except IndexError:
            return cls(shape, recurrent_kernel.new_empty(0))
        return old if old.shape == shape else cls(shape, old.memory)


def _compiled_forward(
    inputs: Tensor,
    input_kernel: Tensor,
    recurrent_kernel: Tensor,
    bias: Tensor,
    keep: Tensor | None,
    length: int,
    history: _History | None,
) -> Tensor:
    """Compute what ``unroll`` does, and fill the history, if there is one."""
    from dcsurv.networks import _lstm_kernels as kernels

    n_directions, hidden_size, _ = recurrent_kernel.shape
    batch = inputs.shape[1]
    out = inputs.new_empty(length, batch, n_directions * hidden_size)
    arrays = (
        _array(inputs),
        _array(input_kernel),
        _array(recurrent_kernel),
        _array(bias),
        _NOTHING[:n_directions, 0] if keep is None else _array(keep),
        _NOTHING[:n_directions] if history is None else history.gates,
        _NOTHING[:n_directions] if history is None else history.cells,
        out.numpy(),
    )
    # Rows do not depend on each other, and the kernel releases the interpreter lock.
    n_threads = min(torch.get_num_threads(), batch // _ROWS_PER_THREAD)
    if n_threads <= 1:
        kernels.forward(*arrays, 0, batch)
    else:
        bounds = [batch * k // n_threads for k in range(n_threads + 1)]
        with ThreadPoolExecutor(n_threads) as pool:
            for finished in [pool.submit(kernels.forward, *arrays, *rows) for rows in itertools.pairwise(bounds)]:
                finished.result()
    return out


class _CompiledLSTM(torch.autograd.Function):
    """``unroll`` with a hand-written backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        input_kernel: Tensor,
        recurrent_kernel: Tensor,
        bias: Tensor,
        keep: Tensor | None,
        length: int,
        spare: list[_History],
    ) -> Tensor:
        history = _History.take(recurrent_kernel, inputs.shape[1], length, spare)
        out = _compiled_forward(inputs, input_kernel, recurrent_kernel, bias, keep, length, history)
        ctx.save_for_backward(inputs, input_kernel, recurrent_kernel, bias, keep, out)
        ctx.history, ctx.spare = history, spare
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "The compiled recurrent decoder cannot be differentiated twice, which create_graph=True asks for. "
                "Convert the model and its inputs with .double(): that runs as plain torch operations."
            )
        from dcsurv.networks import _lstm_kernels as kernels

        inputs, input_kernel, recurrent_kernel, bias, keep, out = ctx.saved_tensors
        history, ctx.history = ctx.history, None
        if history is None:  # a second time, after retain_graph=True: the memory has been given back
            history = _History.take(recurrent_kernel, out.shape[1], out.shape[0], ctx.spare)
            _compiled_forward(inputs, input_kernel, recurrent_kernel, bias, keep, out.shape[0], history)
        d_inputs = out.new_empty(inputs.shape) if ctx.needs_input_grad[0] else None
        d_input_kernel, d_recurrent_kernel, d_bias = (
            out.new_empty(parameter.shape) for parameter in (input_kernel, recurrent_kernel, bias)
        )
        kernels.backward(
            _array(d_out),
            _array(inputs),
            _array(input_kernel),
            _array(recurrent_kernel),
            _NOTHING[: recurrent_kernel.shape[0], 0] if keep is None else _array(keep),
            history.gates,
            history.cells,
            _array(out),
            _NOTHING[0] if d_inputs is None else d_inputs.numpy(),
            d_input_kernel.numpy(),
            d_recurrent_kernel.numpy(),
            d_bias.numpy(),
        )
        ctx.spare[:] = [history]
        return d_inputs, d_input_kernel, d_recurrent_kernel, d_bias, None, None, None
