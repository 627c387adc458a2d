"""``dcsurv calculator``: a model as a page that needs no server."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.groups import OptionGroup, described
from dcsurv.cli.shell import Shell

if TYPE_CHECKING:
    from dcsurv.service import Policy

_PAGE = "Page"


class Unlike(StrEnum):
    """What is done with a value that the model has not learnt from."""

    NOTE = "note"
    REFUSE = "refuse"


@dataclass(frozen=True)
class UnlikeOptions(OptionGroup, panel="Values unlike training"):
    """What a calculator does with values that the model has not learnt from."""

    out_of_range: Annotated[
        Unlike, described(help="Numbers outside the range of the training patients.", show_default=True)
    ] = Unlike.NOTE
    unknown_level: Annotated[
        Unlike,
        described(help="Levels that the model does not know; with a note they count as missing.", show_default=True),
    ] = Unlike.NOTE
    missing: Annotated[Unlike, described(help="Values that are not known.", show_default=True)] = Unlike.NOTE

    def policy(self) -> Policy:
        """Return them as the library takes them."""
        from dcsurv.service import Policy

        return Policy(self.out_of_range.value, self.unknown_level.value, self.missing.value)


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
    languages: Annotated[
        Path | None,
        described(metavar="FOLDER", help="Folder with the page's words in further languages: fr.json.", panel=_PAGE),
    ] = None,
    unlike: UnlikeOptions,
    output: Annotated[Path, o.written_to("Page to write, .html.")],
    shell: Shell,
) -> None:
    """Write the risk calculator as one HTML file that needs no server and sends nothing: the model is inside.

    The page is that of `dcsurv serve`. Whoever has the file can compute with the model and look into it; what it tells
    about the patients behind the model is listed.
    """  # fmt: skip
    from dcsurv.cohort.card import levels_of
    from dcsurv.explanation.mixing import feature_names
    from dcsurv.persistence import load
    from dcsurv.service import read_own_words, write_calculator

    given = [one for one in (model, words) if one is not None]
    o.check_output(output, *given, suffixes=(".html",))
    fitted = load(model)
    levels = levels_of(fitted)
    own = None if words is None else read_own_words(words, {name: levels.get(name) for name in feature_names(fitted)})
    with shell.steps() as step:
        step(f"writing {output}")
        made = write_calculator(
            fitted, output, name=model.stem, digest=hashlib.sha256(model.read_bytes()).hexdigest(), words=own,
            policy=unlike.policy(), language=language, languages=languages,
        )  # fmt: skip
    shell.say(
        f"{output}: the calculator, {made.size / 1e6:.1f} MB. It holds no row of a patient. A reader could learn:"
    )
    for text in made.tells:
        shell.say(f"  - {text}")
    shell.result({"output": str(output), "size": made.size, "tells": made.tells})
