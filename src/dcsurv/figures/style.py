"""What all figures share: size, colours, style, files, and a few small drawing helpers.

matplotlib is imported inside the functions, so that importing figures costs nothing.
"""

from __future__ import annotations

import functools
import io
import os
import textwrap
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, cast

import pandas as pd

from dcsurv import durations
from dcsurv.messages import printable
from dcsurv.writing import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

P = ParamSpec("P")

# Two columns of a paper, in inches; a slide shows it well, too.
WIDTH = 7.2
# A panel that is still readable on a phone.
PANEL_WIDTH, PANEL_HEIGHT = 4.4, 3.1
# Paul Tol's vibrant colours, made to stay distinct in colour blindness, and black; red is kept for the odd one out.
PALETTE = ("#0077BB", "#EE7733", "#009988", "#EE3377", "#33BBEE", "#000000")
RED, DARK, GREY, PALE = "#CC3311", "#333333", "#888888", "#DDDDDD"
_PNG_DPI = 200
STYLE = {
    **dict.fromkeys(("font.size", "figure.labelsize", "axes.titlesize"), 9),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8),
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": DARK,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.2,
    "savefig.dpi": _PNG_DPI,
    "svg.hashsalt": "dcsurv",  # without one, identifiers inside an SVG are random
}
DASHED = (0, (4, 3))
_NAME_LETTERS = 24
_LETTERS = 26


def style_context() -> AbstractContextManager[None]:
    from matplotlib import style

    return style.context(["default", STYLE])


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    @functools.wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style_context():
            return draw(*args, **kwargs)

    return inner


def save(figure: Figure, path_without_suffix: str | os.PathLike[str]) -> list[Path]:
    """Write a figure as SVG and as PNG (200 dpi); the same figure gives the same bytes.

    Each file appears when it is complete, or not at all. The folder must exist.

    Parameters
    ----------
    figure : Figure
        Any figure of matplotlib.
    path_without_suffix : str or path-like
        Where to write it; ``.svg`` and ``.png`` are added.

    Returns
    -------
    list of Path
        The two files.

    Examples
    --------
    >>> from dcsurv import figures
    >>> [path.name for path in figures.save(figures.censoring_schematic(), "censoring")]
    ['censoring.svg', 'censoring.png']
    """
    target = Path(path_without_suffix)
    out = []
    for suffix, drawn in ((".svg", as_svg(figure)), (".png", _as_png(figure))):
        whole = target.with_name(target.name + suffix)
        write_atomically(whole, drawn)
        out.append(whole)
    return out


# A date or a version would change the bytes of an unchanged figure. ``Figure.savefig`` gives the same bytes, but draws
# everything twice for them.
def as_svg(figure: Figure, *, letters: Literal["path", "none"] = "path") -> bytes:
    """Return a figure as SVG, its letters as paths or, with "none", as text in the reader's fonts."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer, canvas = io.BytesIO(), cast("Any", FigureCanvasSVG(figure))
    with style_context(), rc_context({"svg.fonttype": letters}):
        canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _as_png(figure: Figure) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer, canvas, dpi = io.BytesIO(), cast("Any", FigureCanvasAgg(figure)), figure.dpi
    try:
        figure.dpi = _PNG_DPI
        with style_context():
            canvas.print_png(buffer, metadata={"Software": None})
    finally:
        figure.dpi = dpi
    return buffer.getvalue()


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def mark(label: str, **style: Any) -> Line2D:
    """Return an entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **({"linestyle": "none"} | style))


def plain(name: object, letters: int = _LETTERS) -> str:
    """Return a name from the data as matplotlib should print it: short, no formula, and nothing that breaks a file."""
    text = printable(" ".join(str(name)[:10_000].split())) or " "
    text = text if len(text) <= letters else text[: letters - 1] + "…"
    return text.replace("$", r"\$")


def time_label(unit: str | None) -> str:
    """Return the label of an axis of time in a unit that the user named."""
    return durations.time_label(plain(unit) if unit else None)


def wrapped(model: str) -> str:
    return "\n".join(textwrap.wrap(model, _NAME_LETTERS))


def check_columns(table: Any, needed: Iterable[str], what: str) -> None:
    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"{what} is a {type(table).__name__}, but a DataFrame is expected.")
    missing = [column for column in needed if column not in table]
    if missing:
        raise ValueError(f"{what} lacks the columns {missing}; it has {list(table.columns)}.")
    if table.empty:
        raise ValueError(f"{what} has no rows, so there is nothing to draw.")
