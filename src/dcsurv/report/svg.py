"""A figure as a part of the page: inline SVG whose colours follow the page, light or dark."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from dcsurv.figures.style import DARK, GREY, PALE, PALETTE, RED, as_svg
from dcsurv.messages import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of the figures -> the page's variables; the sheet gives them a value for light and for dark.
_VARIABLES = {
    "#000000": "--ink",
    DARK: "--ink",
    GREY: "--mute",
    PALE: "--line",
    "#ffffff": "--card",
    RED: "--red",
    **{color: f"--c{k}" for k, color in enumerate(PALETTE[:-1])},
}
_COLOUR = re.compile("|".join(re.escape(color) for color in _VARIABLES), re.IGNORECASE)


def inline_svg(figure: Figure, name: str, alt: str) -> str:
    """Return a figure as an ``<svg>`` element: text stays text, identifiers are its own, nothing points outside.

    Parameters
    ----------
    name
        Prefix of the identifiers, so that several figures can live on one page.
    alt
        What the figure shows, in words.
    """
    text = as_svg(figure, letters="none").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    assert box is not None
    width = float(box[1]) / 72 * 96
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", body)
    body = body.replace("xlink:href", "href")
    # Only inside style attributes: a label may hold anything.
    body = re.sub(r'style="[^"]*"', _themed, body)
    style = f"--drawn: {width:.0f}px"
    return (
        f'<svg role="img" aria-label="{escape(printable(alt))}" viewBox="0 0 {box[1]} {box[2]}" style="{style}">{body}'
    )


def _themed(style: re.Match[str]) -> str:
    themed = _COLOUR.sub(lambda color: f"var({_lookup(color[0])})", style[0])
    # The page's own letters; those of the figure may not be on the reader's machine.
    return re.sub(r"font:\s*([^;\"]*?)([\d.]+px)[^;\"]*", r"font: \1\2 var(--letters)", themed)


def _lookup(color: str) -> str:
    return next(variable for key, variable in _VARIABLES.items() if key.lower() == color.lower())
