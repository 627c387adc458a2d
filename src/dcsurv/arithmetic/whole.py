"""A whole fitted model as arithmetic: from the features of patients to their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from dcsurv.arithmetic.graph import Doubles, Graph
from dcsurv.arithmetic.readable import ReadableCurves

# The inputs besides the features: times that curves are read at, (m,), and the level of their band, a number.
TIMES, LEVEL = "times", "level"


class FeatureInput(NamedTuple):
    """A feature that a graph takes, (n,): numbers with NaN where one is missing, or places among levels.

    Attributes
    ----------
    name : str
        Of the feature.
    value : str
        Of the input of the graph.
    levels : tuple of str or None
        What the places 0, 1, ... stand for, in a category; any other level counts as missing. None: it is a number.

    Examples
    --------
    >>> from dcsurv.arithmetic import FeatureInput
    >>> FeatureInput("stage", "feature 1", ("I", "II")).levels.index("II")
    1
    """

    name: str
    value: str
    levels: tuple[str, ...] | None


@dataclass(frozen=True)
class Arithmetic:
    """A fitted model as a graph, and what reads its results.

    The graph takes the features, ``times`` and ``level``, and has the outputs

    - ``curve``: S at the knots, before the maps that follow reading, (n, K),
    - ``survival``: S at the times, (n, m),
    - ``lower``, ``upper``: the ends of its band, if the model has one; times must ascend,
    - ``group``: the group of alike follow-up, and ``followed_to``, until when such patients were followed, (n, 1).

    Parameters
    ----------
    kind : str
        Name of the class of the model.
    graph : Graph
        The arithmetic.
    features : sequence of FeatureInput
        In the order of the model.
    curves : ReadableCurves
        The curves themselves.
    numbers_per_row : int
        About how many numbers are held at once for each patient.
    early : array of float or None, default None
        Of bounds of times: for each share of 0.005 and its multiples, the S (as ``curve`` has it) at which to read.
    until : array of float or None, default None
        The time at which bounds end, of each group of alike follow-up.
    about : mapping, default {}
        What else to tell: plain data.

    Examples
    --------
    >>> from dcsurv import CoxPH
    >>> from dcsurv.datasets import load_metabric
    >>> whole = CoxPH().fit(*load_metabric()).arithmetic()
    >>> whole.kind, len(whole.features), sorted(whole.graph.outputs)
    ('CoxPH', 9, ['curve', 'followed_to', 'group', 'survival'])
    """

    kind: str
    graph: Graph
    features: Sequence[FeatureInput]
    curves: ReadableCurves
    numbers_per_row: int
    early: Doubles | None = None
    until: Doubles | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_band(self) -> bool:
        """Whether there is a band around survival."""
        return "lower" in self.graph.outputs


class Computable(Protocol):
    """What can be written as arithmetic: a fitted model."""

    def arithmetic(self) -> Arithmetic:
        """Return the model as arithmetic."""
