"""What every test stands on: nothing that is drawn, measured or ordered by chance decides whether it passes."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from typing import Final

# One thread a process: the workers share the cores already, and threads that wait for each other on a busy machine make
# the suite several times slower. Set before NumPy and torch are imported, and handed on to subprocesses.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Dask's processes may take their time to answer on a busy machine; but who calls a worker that was just killed waits as
# long.
os.environ.setdefault("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "60s")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from undrawing import undrawn_reports  # noqa: E402

# The same examples in every run, and no limit on the time that one takes.
settings.register_profile(
    "dcsurv", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dcsurv")

# Files whose tests take longest come first, so that no process is left alone with one of them in the end.
LONG: Final = (
    "test_wheel",
    "test_docs",
    "test_tuning",
    "test_experiments",
    "test_report",
    "test_cli_robust",
    "test_parallel",
    "test_cli",
    "test_reproduce",
    "test_reference",
    "test_models",
    "test_unchanged",
    "test_own",
    "test_all_commands",
    "test_validation",
)

# A job that a script starts in the background ignores Ctrl-C, and so would the commands that the tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _same_random_state() -> None:
    """Begin every test with the same global random states, whichever test was before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture
def undrawn() -> Iterator[None]:
    with undrawn_reports():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests in each, in random order")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if r"\x" in item.nodeid:
            raise pytest.UsageError(
                f"{item.nodeid} is named by raw bytes, which may differ between processes. Give its parameters ids."
            )
    seed = config.getoption("--shuffle")
    if seed is None:
        items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))
        return
    rng = random.Random(seed)
    files = {item.path: rng.random() for item in items}
    items.sort(key=lambda item: (files[item.path], rng.random()))
