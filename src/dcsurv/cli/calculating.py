"""``dcsurv calculator``: a model as a page that needs no server."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.groups import described
from dcsurv.cli.shell import Shell

_PAGE = "Page"


@command
def calculator(
    model: o.ModelFile,
    *,
    words: Annotated[
        Path | None,
        described(
            metavar="FILE",
            help="Your own words, as JSON: title, notice, event, and labels, units and help of features.",
            panel=_PAGE,
        ),
    ] = None,
    language: Annotated[
        str | None,
        described(
            metavar="CODE",
            help="Language in which the page opens, such as de. Default: that of the reader's browser.",
            panel=_PAGE,
        ),
    ] = None,
    output: Annotated[Path, o.written_to("Page to write, .html.")],
    shell: Shell,
) -> None:
    """Write the risk calculator as one HTML file that needs no server and sends nothing: the model is inside."""
    from dcsurv.persistence import load
    from dcsurv.service import write_calculator
