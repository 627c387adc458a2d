"""The way to a Dask cluster, for experiments and searches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

_ANSWER_WITHIN: Final = "10s"


@contextlib.contextmanager
def connected(cluster: str, refusal: type[ValueError]) -> Iterator[Any]:
    """Yield a client of the scheduler at an address; raise ``refusal`` in words if there is none that can work."""
    try:
        from distributed import Client
    except ImportError:
        raise refusal("cluster= needs Dask: pip install 'dcsurv[cluster]'.") from None
    try:
        client = Client(cluster, timeout=_ANSWER_WITHIN)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise refusal(f"no Dask scheduler answers at {cluster}: {error}.") from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise refusal(f"the Dask scheduler at {cluster} has no workers. Start some: dask worker {cluster}")
        yield client
