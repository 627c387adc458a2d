"""Where the time of a default fit goes: by family, and within one step of the stacked networks.

python benchmarks/bench_profile.py
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import dcsurv
from dcsurv.calibration import cross_fitting
from dcsurv.losses import StackedOutcomes, stacked_likelihood_ranking
from dcsurv.networks import EncoderDecoder, NetworksInTraining

NETWORKS, BATCH, COLUMNS, BINS, WIDTH, NODES = 5, 128, 23, 8, 64, 40
STEPS = 200


def by_family(cohort: str) -> dict[str, float]:
    """Return the CPU seconds of the parts of a fit to the training part of a cohort."""
    X, y = dcsurv.datasets.load(cohort)
    train, _ = dcsurv.train_test_indices(y, random_state=0)
    seconds: dict[str, float] = {}
    usual = cross_fitting.train_members

    def timed(members: Any, *arguments: Any) -> Any:
        start = time.process_time()
        out = usual(members, *arguments)
        name = type(members[0]).__name__
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - start
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcsurv.CalibratedEnsemble(random_state=0).fit(X.iloc[train[:400]], y[train[:400]])  # compiles
        cross_fitting.train_members = timed
        try:
            start = time.process_time()
            dcsurv.CalibratedEnsemble(random_state=0).fit(X.iloc[train], y[train])
            whole = time.process_time() - start
        finally:
            cross_fitting.train_members = usual
    return {**seconds, "preparing, weights and maps": whole - sum(seconds.values()), "all": whole}


def by_part_of_a_step() -> dict[str, float]:
    """Return the CPU milliseconds of the parts of one training step of five networks, with those of its products."""
    rng = np.random.default_rng(0)
    networks = []
    for _ in range(NETWORKS):
        sizes = {"encoder_layers": 2, "encoder_size": WIDTH, "decoder_layers": 0, "feature_bins": BINS, "dropout": 0.2}
        network = EncoderDecoder(COLUMNS, NODES, **sizes)  # type: ignore[arg-type]
        assert network.embedding is not None
        network.embedding.set_bins(rng.normal(size=(500, COLUMNS)).astype(np.float32))
        networks.append(network)
    stack = NetworksInTraining(networks)
    rngs = [np.random.Generator(np.random.SFC64(k)) for k in range(NETWORKS)]
    x = torch.randn(NETWORKS, BATCH, COLUMNS)
    shape = NETWORKS, BATCH
    outcomes = StackedOutcomes.of(
        torch.from_numpy(rng.integers(0, NODES + 1, shape)),
        torch.rand(shape) < 0.6,
        torch.rand(shape),
        torch.ones(shape),
    )
    optimizer = torch.optim.AdamW([stack.weights], fused=True)
    keep = stack.draw(rngs, BATCH)
    outputs, hidden = stack.step(x, keep)
    _, slope = stacked_likelihood_ranking(outputs, outcomes, lam=0.5, sigma=1.0)
    assert slope is not None
    widths = [hidden[0].shape[2], WIDTH, WIDTH, NODES]
    parts: dict[str, Callable[[], object]] = {
        "dropout": lambda: stack.draw(rngs, BATCH),
        "bins": lambda: stack.inputs(x),
        "forward, with bins": lambda: stack.step(x, keep),
        "loss and its gradient": lambda: stacked_likelihood_ranking(outputs, outcomes, lam=0.5, sigma=1.0),
        "backward": lambda: stack.backward(slope, hidden),
        "optimiser": optimizer.step,
        "matrix products alone": _products(widths),
    }
    with torch.no_grad():
        return {name: _milliseconds(part) for name, part in parts.items()}


def _products(widths: list[int]) -> Callable[[], object]:
    """Return the products of a step and nothing else: forward, to the weights, and back to all inputs but the first."""
    ends = list(itertools.pairwise(widths))
    kernels = [torch.randn(NETWORKS, *pair) for pair in ends]
    taken = [torch.randn(NETWORKS, BATCH, before) for before, _ in ends]
    slopes = [torch.randn(NETWORKS, BATCH, after) for _, after in ends]

    def products() -> None:
        for k, (kernel, one, slope) in enumerate(zip(kernels, taken, slopes, strict=True)):
            torch.bmm(one, kernel)
            torch.bmm(one.transpose(1, 2), slope)
            if k:
                torch.bmm(slope, kernel.transpose(1, 2))

    return products


def _milliseconds(part: Callable[[], object]) -> float:
    part()
    turns = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(STEPS):
            part()
        turns.append((time.process_time() - start) / STEPS)
    return 1000 * float(np.median(turns))


def run() -> dict[str, Any]:
    """Return both profiles."""
    torch.set_num_threads(1)
    return {
        "fit_profile": {cohort: by_family(cohort) for cohort in ("metabric", "support")},
        "step_profile": by_part_of_a_step(),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
