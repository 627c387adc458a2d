"""The calculator as one HTML file: the page of the service with the model inside, computed in the browser."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

from dcsurv.arithmetic import packed
from dcsurv.models import SurvivalModel
from dcsurv.service.card import model_card
from dcsurv.service.inside import compared_with, readings_of, told
from dcsurv.service.page import assemble
from dcsurv.service.policy import Policy
from dcsurv.writing import write_atomically

# In the order in which they run: numbers, values, requests, explanations, answers, and the engine that the page asks.
_SCRIPTS: Final = ("arithmetic.js", "reading.js", "asking.js", "shapley.js", "answering.js", "in_page.js")
_ALIGNMENT: Final = 8


class CalculatorFile(NamedTuple):
    """A calculator that was written.

    Attributes
    ----------
    path : Path
        Where it is.
    size : int
        Its size in bytes.
    tells : list of str
        In sentences, what a reader of the file could learn about the patients behind the model.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dcsurv.service import CalculatorFile
    >>> CalculatorFile(Path("calculator.html"), 1_500_000, []).size
    1500000
    """

    path: Path
    size: int
    tells: list[str]


def write_calculator(
    model: SurvivalModel,
    path: str | PathLike[str],
    *,
    name: str = "model",
    version: str = "1",
    digest: str = "",
    words: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    language: str | None = None,
    languages: Path | None = None,
) -> CalculatorFile:
    """Write a calculator that needs no server: one HTML file with the model inside, which asks nobody for anything.

    The page is that of the service. Its predictions are those of `dcsurv predict` within a millionth, and its
    explanations those of :func:`dcsurv.explain`.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    path : str or path-like
        File to write, such as ``calculator.html``.
    name : str, default "model"
        What the page calls it.
    version : str, default "1"
        Which of several models of that name.
    digest : str, default ""
        SHA-256 of the model's file, by which predictions can be traced to it.
    words : mapping or None, default None
        The owner's: title, notice, labels and units of features.
    policy : Policy or None, default None
        What is done with values unlike training; None: notes.
    language : str or None, default None
        The language in which the page opens; None: that of the reader's browser.
    languages : Path or None, default None
        A folder with further files of words.

    Returns
    -------
    CalculatorFile
        Where it is, how large it is, and what a reader could learn from it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.service import write_calculator
    >>> X, y = load_metabric(labels="measured")
    >>> model = dcsurv.CoxPH(time_unit="days").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write_calculator(model, Path(folder) / "calculator.html", words={"title": "Breast cancer"})
    >>> print(made.tells[-1])
    100 made-up patients to compare with, drawn from quantiles and levels of the features; nobody's row.
    """
    tells = told(model)
    card = model_card(model, name=name, version=version, digest=digest, words=words, policy=policy)
    description, block = packed(model)
    inside = {
        "card": {**card, "inside": tells},
        "readings": readings_of(model),
        "compared": compared_with(model),
        "arithmetic": description,
    }
    page = assemble(
        scripts=_SCRIPTS,
        data={"packed": _packed(inside, block)},
        title=name,
        language=language,
        languages=languages,
    )
    target = Path(path)
    content = page.encode()
    write_atomically(target, content)
    return CalculatorFile(target, len(content), tells)


def _packed(description: Mapping[str, Any], block: bytes) -> str:
    """Return data for the page: the length of a JSON text, the text, and arrays, deflated and as letters."""
    text = json.dumps(description, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + _ALIGNMENT) % _ALIGNMENT)
    whole = len(text).to_bytes(_ALIGNMENT, "little") + text + block
    return base64.b64encode(zlib.compress(whole, 9)).decode()
