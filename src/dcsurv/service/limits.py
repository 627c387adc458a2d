"""What a service bears: sizes, times, rates and how much at once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

# Addresses whose rate is remembered; the one that was quiet longest is forgotten first.
_ADDRESSES = 10_000


@dataclass(frozen=True)
class Limits:
    """Limits of a service; what goes beyond is refused, and says so.

    Parameters
    ----------
    max_rows : int, default 10000
        Patients of one JSON request.
    max_body : int, default 8000000
        Bytes of one JSON request.
    max_file : int, default 200000000
        Bytes of one CSV request.
    seconds : float, default 30.0
        For one answer, or for one piece of a streamed one; also in which a client has to take what is sent.
    rate : float, default 50.0
        Requests per second of one client address, over a few seconds; 0: any.
    concurrent : int, default 256
        Requests that are answered at the same time.
    explaining : int, default 8
        Explanations that wait or are computed; each takes about a second of one core.
    files : int, default 4
        CSV requests at the same time.
    connections : int, default 12000
        Open connections.
    header_seconds : float, default 10.0
        In which a client has to send the head of a request.
    body_seconds : float, default 30.0
        In which it has to send the body.
    idle_seconds : int, default 30
        After which a connection without a request is ended.

    Examples
    --------
    >>> from dcsurv.service import Limits
    >>> Limits(max_rows=100).max_rows
    100
    """

    max_rows: int = 10_000
    max_body: int = 8_000_000
    max_file: int = 200_000_000
    seconds: float = 30.0
    rate: float = 50.0
    concurrent: int = 256
    explaining: int = 8
    files: int = 4
    connections: int = 12_000
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    idle_seconds: int = 30

    @property
    def bodies(self) -> int:
        """Bytes of all JSON requests that are being received together."""
        return 16 * self.max_body

    @property
    def documents(self) -> int:
        """Bytes of all JSON requests that are being answered together: in memory they are many times larger."""
        return 4 * self.max_body


class Rate:
    """How many requests each address has sent lately.

    Parameters
    ----------
    per_second : float
        Requests per second in the long run; twice as many at once.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second, self._burst = per_second, max(1.0, 2 * per_second)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Count a request; return in how many seconds it may come again, 0 if it may pass."""
        if not self._per_second:
            return 0.0
        left, then = self._left.pop(address, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._per_second)
        passes = left >= 1
        self._left[address] = (left - passes, now)
        if len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        return 0.0 if passes else (1 - left) / self._per_second
