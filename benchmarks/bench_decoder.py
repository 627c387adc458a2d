"""Training step of the recurrent decoder against ``torch.nn.LSTM`` and against its matrix products alone.

One thread, batch 50, forward + backward + Adam, the same head, loss and optimiser on both sides. Repetitions alternate
between the sides, so that other work on the machine meets all of them; each ratio is the median over rounds of times
measured side by side.

    python benchmarks/bench_decoder.py
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from dcsurv.networks import RecurrentDecoder

BATCH = 50


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
    adam = torch.optim.Adam([*decoder.parameters(), *head.parameters()])

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


def products(shape: Shape) -> Callable[[], None]:
    """Do the matrix products that a training step cannot avoid, and nothing else."""
    rows, hidden, gates = shape.length * BATCH, shape.hidden, 4 * shape.hidden
    wide = shape.directions * hidden
    state, d_gates = torch.randn(BATCH, hidden), torch.randn(BATCH, gates)
    recurrent, recurrent_t = torch.randn(hidden, gates) / hidden, torch.randn(gates, hidden) / hidden
    out_gates, out_state = torch.empty(BATCH, gates), torch.empty(BATCH, hidden)
    all_gates, all_states = torch.randn(rows, gates), torch.randn(rows, hidden)
    d_kernel = torch.empty(hidden, gates)
    encoding, input_kernel = torch.randn(BATCH, shape.encoding), torch.randn(shape.encoding, gates)
    inputs, kernel, kernel_t = torch.randn(rows, wide), torch.randn(wide, gates), torch.randn(gates, wide)
    projected, d_inputs, d_input_kernel = torch.empty(rows, gates), torch.empty(rows, wide), torch.empty(wide, gates)
    top, head = torch.randn(rows, shape.head_inputs), torch.randn(shape.head_inputs, 1)
    hazards, d_hazards = torch.empty(rows, 1), torch.randn(rows, 1)
    d_top, d_head = torch.empty(rows, shape.head_inputs), torch.empty(shape.head_inputs, 1)

    def run() -> None:
        for layer in range(shape.layers):
            for _ in range(shape.directions):
                if layer == 0:
                    torch.mm(encoding, input_kernel, out=out_gates)
                    torch.mm(d_gates, input_kernel.t())
                    torch.mm(encoding.t(), d_gates)
                else:
                    torch.mm(inputs, kernel, out=projected)
                    torch.mm(all_gates, kernel_t, out=d_inputs)
                    torch.mm(inputs.t(), all_gates, out=d_input_kernel)
                for _ in range(shape.length):
                    torch.mm(state, recurrent, out=out_gates)
                for _ in range(shape.length):
                    torch.mm(d_gates, recurrent_t, out=out_state)
                torch.mm(all_states.t(), all_gates, out=d_kernel)
        torch.mm(top, head, out=hazards)
        torch.mm(d_hazards, head.t(), out=d_top)
        torch.mm(top.t(), d_hazards, out=d_head)

    return run


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run(rounds: int = 15) -> dict[str, dict[str, float]]:
    """Measure all shapes.

    Returns
    -------
    ``decoder_vs_nn_lstm``: the time of nn.LSTM over ours (higher is better), and ``decoder_vs_matmul``: our time over
    that of the matrix products alone (lower is better), by shape; ``milliseconds`` of our training step.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results: dict[str, dict[str, float]] = {"decoder_vs_nn_lstm": {}, "decoder_vs_matmul": {}, "milliseconds": {}}
    try:
        for shape in SHAPES:
            sides = [ours(shape), nn_lstm(shape), products(shape)]
            for side in sides:  # compile, allocate
                side()
            times = [[seconds(side) for side in sides] for _ in range(rounds)]
            results["decoder_vs_nn_lstm"][shape.name] = statistics.median(peer / mine for mine, peer, _ in times)
            results["decoder_vs_matmul"][shape.name] = statistics.median(mine / alone for mine, _, alone in times)
            results["milliseconds"][shape.name] = 1e3 * statistics.median(mine for mine, _, _ in times)
    finally:
        torch.set_num_threads(threads)
    return results


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
