"""What a page consists of: sections of paragraphs, tables and figures, and how numbers are printed in them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from dcsurv.messages import fixed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_COMPUTED = "–"


@dataclass(frozen=True)
class Paragraph:
    """Text; ``kind`` is "plain", "convention" (how a number was computed), "warning" or "note"."""

    text: str
    kind: str = "plain"


@dataclass(frozen=True)
class TableBlock:
    """Texts in rows and columns; the first column names the row. ``indented`` rows belong to the one above them."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    indented: frozenset[int] = frozenset()
    wordy: bool = False  # columns of words, not of numbers
    widths: Sequence[str] = ()


@dataclass(frozen=True)
class Pairs:
    """Names and values, in as many columns as there is room for; ``long`` values get a line of their own."""

    caption: str
    pairs: Sequence[tuple[str, str]]
    long: bool = False


@dataclass(frozen=True)
class Bullets:
    """Sentences as a list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """A figure with the name of its files, what it shows for those who cannot see it, and its caption."""

    name: str
    figure: Figure
    alt: str
    caption: str


@dataclass(frozen=True)
class Pictures:
    """Figures side by side where there is room."""

    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Tiles:
    """A few numbers to be seen first: what, value, explanation."""

    tiles: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Answers:
    """Questions that a reader comes with, each with its answer."""

    answers: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Folded:
    """Blocks behind a line that opens them; on paper they are open."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = Paragraph | Bullets | TableBlock | Pairs | Pictures | Tiles | Answers | Folded


@dataclass
class Section:
    """A part of the report with a heading, and the numbers printed in it."""

    key: str
    title: str
    blocks: list[Block] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.blocks.append(Paragraph(text))

    def convention(self, text: str) -> None:
        """Say how the numbers of this section were computed."""
        self.blocks.append(Paragraph(text, "convention"))

    def warn(self, text: str) -> None:
        self.blocks.append(Paragraph(text, "warning"))

    def note(self, text: str) -> None:
        self.blocks.append(Paragraph(text, "note"))

    def table(self, caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], **more: Any) -> None:
        self.blocks.append(TableBlock(caption, header, rows, **more))

    def pairs(self, caption: str, pairs: Sequence[tuple[str, str]], *, long: bool = False) -> None:
        self.blocks.append(Pairs(caption, pairs, long))

    def show(self, *pictures: Picture) -> None:
        if pictures:
            self.blocks.append(Pictures(pictures))

    @contextmanager
    def folded(self, title: str) -> Iterator[None]:
        """Put what is added meanwhile behind a line that opens it."""
        shown, self.blocks = self.blocks, []
        try:
            yield
        finally:
            inside, self.blocks = self.blocks, shown
            if inside:
                self.blocks.append(Folded(title, inside))

    def pictures(self) -> list[Picture]:
        """Return the figures of this section, folded ones too."""
        return list(_pictures(self.blocks))

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Turn what cannot be computed, and what metrics warn about, into sentences of this section."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                yield
            except ValueError as error:  # the metrics say in words what they lack
                self.warn(f"{what} could not be computed: {error}")
        for warning in heard:
            if issubclass(warning.category, UserWarning):
                said = Paragraph(getattr(warning.message, "without_values", str(warning.message)), "note")
                if said not in self.blocks:
                    self.blocks.append(said)


def _pictures(blocks: Sequence[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Folded):
            yield from _pictures(block.blocks)
        elif isinstance(block, Pictures):
            yield from block.pictures


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table by column name."""
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def number(value: float | None, digits: int = 3) -> str:
    """Print a number with fixed digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return NOT_COMPUTED
    text = fixed(value, digits) if value > 0 else f"{value:.{digits}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text.replace("-", "−")


def with_interval(value: float | None, lower: float | None, upper: float | None, digits: int = 3) -> str:
    """Print "0.672 (0.641 to 0.701)", to be broken before the bracket only, or the value alone."""
    if lower is None or upper is None or not (math.isfinite(lower) and math.isfinite(upper)):
        return number(value, digits)
    return f"{number(value, digits)} ({number(lower, digits)}\u00a0to\u00a0{number(upper, digits)})"


def p_value(p: float) -> str:
    """Print a p-value: "p < 0.001", "p = 0.03", "p = 0.42"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.01 else f"p = {p:.2f}"


def percent(share: float | None, digits: int = 1) -> str:
    return NOT_COMPUTED if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f}%"
