"""What a search of settings may try: named parameters and their ranges."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dcsurv.messages import InputError

# A parameter is searched only while others have one of these values.
When: TypeAlias = Mapping[str, Sequence[Any]]


class TuningError(InputError):
    """A search that cannot be run, found out before anything is trained.

    Parameters
    ----------
    message : str
        What was wrong and what arrived.
    parameter : str or None, default None
        The parameter concerned, if it is one.
    remedy : str, default ""
        What to do.
    """


@dataclass(frozen=True)
class Float:
    """A number within a range.

    Parameters
    ----------
    low : float
        Lowest value.
    high : float
        Highest value.
    log : bool, default False
        Whether it is drawn on a log scale.
    when : mapping, default {}
        Values of other parameters, by name, with which this one counts; empty: it always does.

    Examples
    --------
    >>> from dcsurv.search_space import Float
    >>> Float(1e-4, 1e-1, log=True).holds(0.01)
    True
    """

    low: float
    high: float
    log: bool = False
    when: When = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range(self)

    def suggest(self, trial: Any, name: str) -> float:
        """Let an Optuna trial choose a value.

        Parameters
        ----------
        trial : Trial
            Optuna's.
        name : str
            Of the parameter.

        Returns
        -------
        float
            The value.
        """
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def holds(self, value: Any) -> bool:
        """Whether a value lies in the range.

        Parameters
        ----------
        value : object
            Any value.

        Returns
        -------
        bool
            False for what is no number.
        """
        return is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Int:
    """A whole number within a range.

    Parameters
    ----------
    low : int
        Lowest value.
    high : int
        Highest value.
    log : bool, default False
        Whether it is drawn on a log scale.
    when : mapping, default {}
        Values of other parameters, by name, with which this one counts; empty: it always does.

    Examples
    --------
    >>> from dcsurv.search_space import Int
    >>> Int(1, 4).holds(2.5)
    False
    """

    low: int
    high: int
    log: bool = False
    when: When = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range(self)

    def suggest(self, trial: Any, name: str) -> int:
        """Let an Optuna trial choose a value.

        Parameters
        ----------
        trial : Trial
            Optuna's.
        name : str
            Of the parameter.

        Returns
        -------
        int
            The value.
        """
        return trial.suggest_int(name, self.low, self.high, log=self.log)

    def holds(self, value: Any) -> bool:
        """Whether a value lies in the range.

        Parameters
        ----------
        value : object
            Any value.

        Returns
        -------
        bool
            False for what is no number.
        """
        return is_number(value) and value == int(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """One of some plain values.

    Parameters
    ----------
    options : tuple
        The values.
    when : mapping, default {}
        Values of other parameters, by name, with which this one counts; empty: it always does.
    otherwise : object, default None
        What the parameter is set to where ``when`` does not hold; None leaves it as the estimator has it.

    Examples
    --------
    >>> from dcsurv.search_space import Choice
    >>> Choice((32, 64)).holds(64)
    True
    """

    options: tuple[Any, ...]
    when: When = field(default_factory=dict)
    otherwise: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        plain = all(option is None or isinstance(option, bool | int | float | str) for option in self.options)
        if not self.options or not plain:
            raise TuningError(
                f"options is {self.options!r}, but one or more numbers, texts, True, False or None are expected."
            )

    def suggest(self, trial: Any, name: str) -> Any:
        """Let an Optuna trial choose a value.

        Parameters
        ----------
        trial : Trial
            Optuna's.
        name : str
            Of the parameter.

        Returns
        -------
        object
            The value.
        """
        return trial.suggest_categorical(name, self.options)

    def holds(self, value: Any) -> bool:
        """Whether a value is one of the options.

        Parameters
        ----------
        value : object
            Any value.

        Returns
        -------
        bool
            1 and True are different options.
        """
        return any(value == option and isinstance(value, bool) == isinstance(option, bool) for option in self.options)


Dimension: TypeAlias = Float | Int | Choice
Space: TypeAlias = dict[str, Dimension]


def prefixed(prefix: str, space: Space) -> Space:
    """Return a space for the parameters of a part, such as ``estimator__``."""
    out: Space = {}
    for name, dimension in space.items():
        parts = vars(dimension) | {"when": {prefix + other: values for other, values in dimension.when.items()}}
        out[prefix + name] = type(dimension)(**parts)
    return out


def is_number(value: Any) -> bool:
    """Whether a value is a number, which True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _check_range(dimension: Float | Int) -> None:
    low, high = dimension.low, dimension.high
    kind, what = (numbers.Integral, "whole numbers") if isinstance(dimension, Int) else (numbers.Real, "numbers")
    if not (isinstance(low, kind) and isinstance(high, kind) and math.isfinite(low) and math.isfinite(high)):
        raise TuningError(f"a range from {low!r} to {high!r} was given, but two finite {what} are expected.")
    if low > high or (dimension.log and low <= 0):
        raise TuningError(
            f"a range from {low!r} to {high!r} was given{' on a log scale' if dimension.log else ''}; low must not be "
            "above high, and on a log scale it must be above 0."
        )
