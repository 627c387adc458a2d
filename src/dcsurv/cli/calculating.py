"""``dcsurv calculator``: a model as a page that needs no server."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.groups import described
from dcsurv.cli.serving import UnlikeOptions
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
            help="Your own words, as JSON: title, notice, event, and labels, units and help of features. "
            "Default: model.words.json beside model.safetensors, if there is one.",
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
    from dcsurv.persistence import load
    from dcsurv.service import Policy, read_owner_words, write_calculator
    from dcsurv.service.files import name_and_version
    from dcsurv.service.wording import refuse_strange_words, words_beside

    words = words or words_beside(model)
    given = [one for one in (model, words) if one is not None]
    o.check_output(output, *given, suffixes=(".html",))
    fitted = load(model)
    own = None if words is None else read_owner_words(words)
    if own is not None:
        refuse_strange_words(own, fitted)
    name, version = name_and_version(model)
    policy = Policy(unlike.out_of_range.value, unlike.unknown_level.value, unlike.missing.value)
    with shell.steps() as step:
        step(f"writing {output}")
        made = write_calculator(
            fitted, output, name=name, version=version, digest=hashlib.sha256(model.read_bytes()).hexdigest(),
            words=own, policy=policy, language=language, languages=languages,
        )  # fmt: skip
    shell.say(
        f"{output}: the calculator, {made.size / 1e6:.1f} MB. It holds no row of a patient. A reader could learn:"
    )
    for text in made.tells:
        shell.say(f"  - {text}")
    shell.result({"output": str(output), "size": made.size, "tells": made.tells})
