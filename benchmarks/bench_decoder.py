"""Training step of the recurrent decoder against ``torch.nn.LSTM`` and against its matrix products alone.

One thread, batch 50, forward + backward + Adam, the same head, loss and optimiser on both sides, the optimiser fused as
in the training loop. The sides take turns, so that other work on the machine meets all of them; a turn is some steps in
a row, as in training, where a step does not start with a cache full of something else. Times are those of the CPU,
which do not run while the process waits for its turn, and each ratio is one of medians.

    python benchmarks/bench_decoder.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional

from dcsurv.networks import RecurrentDecoder

BATCH = 50
STEPS_PER_TURN = 5

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """What is measured: L nodes, layers of H units, whether in both directions, whether the encoding skips."""

    length: int
    hidden: int
    layers: int = 1
    bidirectional: bool = False
    skip: bool = False

    @property
    def name(self) -> str:
        parts = [f"L={self.length}", f"{self.layers}x{self.hidden}"]
        parts += ["bidirectional"] * self.bidirectional + ["skip"] * self.skip
        return " ".join(parts)

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def encoding(self) -> int:
        return self.hidden

    @property
    def head_inputs(self) -> int:
        return self.directions * self.hidden + self.skip * self.encoding


SHAPES = (Shape(35, 64, bidirectional=True), Shape(140, 32), Shape(700, 64, layers=2, skip=True))


def training_step(shape: Shape, decoder: nn.Module, unrolled: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    """Forward, backward and Adam with a sigmoid hazard head; ``unrolled`` maps the encoding to (L, B, D H)."""
    generator = torch.Generator().manual_seed(0)
    encoding = torch.randn(BATCH, shape.encoding, generator=generator, requires_grad=True)
    target = torch.rand(shape.length, BATCH, generator=generator)
    torch.manual_seed(0)
    head = nn.Linear(shape.head_inputs, 1)
    adam = torch.optim.Adam([*decoder.parameters(), *head.parameters()], fused=True)

    def step() -> None:
        adam.zero_grad()
        encoding.grad = None
        hidden = unrolled(encoding)
        if shape.skip:
            hidden = torch.cat([hidden, encoding.expand(shape.length, -1, -1)], dim=2)
        hazard = torch.sigmoid(head(hidden)).squeeze(2)
        functional.mse_loss(hazard, target).backward()
        adam.step()

    return step


def ours(shape: Shape) -> Callable[[], None]:
    decoder = RecurrentDecoder(shape.encoding, shape.hidden, shape.layers, bidirectional=shape.bidirectional)
    return training_step(shape, decoder, lambda encoding: decoder(encoding, shape.length))


def nn_lstm(shape: Shape) -> Callable[[], None]:
    lstm = nn.LSTM(shape.encoding, shape.hidden, shape.layers, bidirectional=shape.bidirectional)
    return training_step(shape, lstm, lambda encoding: lstm(encoding.unsqueeze(0).expand(shape.length, -1, -1))[0])


@numba.njit
def blas_steps(
    n_steps: int, state: Array, kernel: Array, gates: Array, d_gates: Array, kernel_t: Array, d_state: Array
) -> None:
    """Do the products of all steps by SciPy's BLAS, without the interpreter in between."""
    for _ in range(n_steps):
        np.dot(state, kernel, gates)
    for _ in range(n_steps):
        np.dot(d_gates, kernel_t, d_state)


def torch_steps(
    n_steps: int, state: Tensor, kernel: Tensor, gates: Tensor, d_gates: Tensor, kernel_t: Tensor, d_state: Tensor
) -> None:
    """Do the products of all steps by torch's BLAS."""
    for _ in range(n_steps):
        torch.mm(state, kernel, out=gates)
    for _ in range(n_steps):
        torch.mm(d_gates, kernel_t, out=d_state)


def products(shape: Shape, steps: str) -> Callable[[], None]:
    """Do the matrix products that a training step cannot avoid, and nothing else.

    Those of the recurrence by ``steps``, "torch" or "blas" (which is faster depends on the size), the others, done once
    over all steps, by torch.
    """
    rows, hidden, gates = shape.length * BATCH, shape.hidden, 4 * shape.hidden
    wide = shape.directions * hidden

    def random(*size: int) -> Tensor:
        return torch.randn(size) / 10

    gate, d_gate = random(BATCH, gates), random(BATCH, gates)
    one_step = (
        random(BATCH, hidden),
        random(hidden, gates),
        gate,
        d_gate,
        random(gates, hidden),
        random(BATCH, hidden),
    )
    one_step_arrays = [tensor.numpy() for tensor in one_step]
    all_gates, all_states, d_kernel = random(rows, gates), random(rows, hidden), random(hidden, gates)
    encoding, encoding_kernel = random(BATCH, shape.encoding), random(shape.encoding, gates)
    d_encoding, d_encoding_kernel = random(BATCH, shape.encoding), random(shape.encoding, gates)
    inputs, input_kernel, input_kernel_t = random(rows, wide), random(wide, gates), random(gates, wide)
    projected, d_inputs, d_input_kernel = random(rows, gates), random(rows, wide), random(wide, gates)
    top, head, d_top = random(rows, shape.head_inputs), random(shape.head_inputs, 1), random(rows, shape.head_inputs)
    hazards, d_hazards, d_head = random(rows, 1), random(rows, 1), random(shape.head_inputs, 1)

    def run() -> None:
        for layer in range(shape.layers):
            for _ in range(shape.directions):
                if layer == 0:
                    torch.mm(encoding, encoding_kernel, out=gate)
                    torch.mm(d_gate, encoding_kernel.t(), out=d_encoding)
                    torch.mm(encoding.t(), d_gate, out=d_encoding_kernel)
                else:
                    torch.mm(inputs, input_kernel, out=projected)
                    torch.mm(all_gates, input_kernel_t, out=d_inputs)
                    torch.mm(inputs.t(), all_gates, out=d_input_kernel)
                if steps == "blas":
                    blas_steps(shape.length, *one_step_arrays)
                else:
                    torch_steps(shape.length, *one_step)
                torch.mm(all_states.t(), all_gates, out=d_kernel)
        torch.mm(top, head, out=hazards)
        torch.mm(d_hazards, head.t(), out=d_top)
        torch.mm(top.t(), d_hazards, out=d_head)

    return run


def seconds(step: Callable[[], None]) -> float:
    """Measure one turn: the CPU time of a step."""
    start = time.process_time()
    for _ in range(STEPS_PER_TURN):
        step()
    return (time.process_time() - start) / STEPS_PER_TURN


def run(seconds_per_shape: float = 6.0) -> dict[str, dict[str, float]]:
    """Measure all shapes.

    Returns
    -------
    ``decoder_vs_nn_lstm``: the time of nn.LSTM over ours (higher is better), and ``decoder_vs_matmul``: our time over
    that of the matrix products alone, by the faster of two libraries (lower is better), by shape;
    ``milliseconds``: of our training step.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results: dict[str, dict[str, float]] = {"decoder_vs_nn_lstm": {}, "decoder_vs_matmul": {}, "milliseconds": {}}
    try:
        with threadpool_limits(1):
            for shape in SHAPES:
                sides = [ours(shape), nn_lstm(shape), products(shape, "torch"), products(shape, "blas")]
                for side in sides:  # compile, allocate
                    side()
                rounds = max(7, int(seconds_per_shape / sum(STEPS_PER_TURN * seconds(side) for side in sides)))
                times = [[seconds(side) for side in sides] for _ in range(rounds)]
                mine, peer, *alone = (statistics.median(column) for column in zip(*times, strict=True))
                results["decoder_vs_nn_lstm"][shape.name] = peer / mine
                results["decoder_vs_matmul"][shape.name] = mine / min(alone)
                results["milliseconds"][shape.name] = 1e3 * mine
    finally:
        torch.set_num_threads(threads)
    return results


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
