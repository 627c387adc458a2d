"""Which values a numeric parameter may have, written so that it reads as a sentence."""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


class Range(ABC):
    """What a parameter may be."""

    @abstractmethod
    def holds(self, value: Any) -> bool:
        """Whether a value is allowed."""

    @abstractmethod
    def __str__(self) -> str:
        """Return what is allowed, for a sentence."""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is not allowed, in words."""
        if not self.holds(value):
            raise ValueError(f"{name} is {value!r}, but {self} is expected.")


@dataclass(frozen=True)
class WholeNumber(Range):
    """A whole number, Python's or NumPy's, of at least ``least``."""

    least: int

    def holds(self, value: Any) -> bool:
        """Whether a value is allowed."""
        return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= self.least

    def __str__(self) -> str:
        return f"a whole number of at least {self.least}"


@dataclass(frozen=True)
class Number(Range):
    """A finite number of at least ``least``, or above ``above``, and below ``below``, or of at most ``most``."""

    least: float = -math.inf
    above: float = -math.inf
    below: float = math.inf
    most: float = math.inf

    def holds(self, value: Any) -> bool:
        """Whether a value is allowed."""
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        return self.least <= float(value) <= self.most and self.above < float(value) < self.below

    def __str__(self) -> str:
        limits = {"of at least": self.least, "above": self.above, "below": self.below, "at most": self.most}
        return "a number " + " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if math.isfinite(limit))


@dataclass(frozen=True)
class NoneOr(Range):
    """None, or what another range allows."""

    other: Range

    def holds(self, value: Any) -> bool:
        """Whether a value is allowed."""
        return value is None or self.other.holds(value)

    def __str__(self) -> str:
        return f"None or {self.other}"
