"""What every test stands on: nothing that is drawn, measured or ordered by chance decides whether it passes."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and no limit on the time that one takes.
settings.register_profile(
    "dcsurv", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dcsurv")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests in each, in random order")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    rng = random.Random(seed)
    files = {item.path: rng.random() for item in items}
    items.sort(key=lambda item: (files[item.path], str(item.path), rng.random()))
