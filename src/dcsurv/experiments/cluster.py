"""The way to a Dask cluster, for experiments and searches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from dcsurv.messages import needs_extra

_ANSWER_WITHIN: Final = "10s"


@contextlib.contextmanager
def connected(cluster: str, refusal: type[ValueError]) -> Iterator[Any]:
    """Yield a client of the scheduler at an address; raise ``refusal`` in words if there is none that can work."""
    with needs_extra("A Dask cluster", "cluster"):
        from distributed import Client
    try:
        client = Client(cluster, timeout=_ANSWER_WITHIN)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise refusal(f"no Dask scheduler answers at {cluster}: {error}.") from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise refusal(f"the Dask scheduler at {cluster} has no workers. Start some: dask worker {cluster}")
        yield client
