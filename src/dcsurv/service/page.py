"""The calculator's page: its files as a service gives them out, or all of it as one HTML text.

There is one page. Served, it links its style and scripts and asks the service. Whole, they are inside, with the model:
then its content-security-policy lists the hash of each, so that nothing else runs. A language is a file of words.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dcsurv.messages import InputError, did_you_mean, listed, shortened

_FOLDER: Final = Path(__file__).parent / "page"
# In the order in which they are loaded; in place of the engine's mark come the scripts that ask the model.
_ENGINE: Final = "<!-- engine -->"
_OVER_HTTP: Final = ("over_http.js",)
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="([\w.]+)">')
_SCRIPT: Final = re.compile(r'<script src="([\w.]+)" defer></script>\n')
_PLACE: Final = re.compile(r"\{(\w+)\}")
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_LARGEST: Final = 1_000_000  # bytes of a file of words
_MEDIA: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json"}

# Of the served page. Its own files and its own service, nothing else, and nobody else's frame.
SERVED_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Words = dict[str, Any]


@dataclass(frozen=True)
class PageFile:
    """A file of the page.

    Parameters
    ----------
    media_type : str
        What a service says that it is.
    content : bytes
        What is in it.

    Examples
    --------
    >>> from dcsurv.service import PageFile
    >>> PageFile("text/css; charset=utf-8", b"body { margin: 0; }").media_type
    'text/css; charset=utf-8'
    """

    media_type: str
    content: bytes


def page_files(languages: Path | None = None) -> dict[str, PageFile]:
    """Return the files of the page by their path below the address of the service.

    Parameters
    ----------
    languages : Path or None, default None
        A folder with further files of words, such as ``fr.json``; one named as ours replaces ours.

    Returns
    -------
    dict of str to PageFile
        ``""`` is the page itself, the others are what it asks for: ``page.css``, ``page.js``, ``words/de.json``.

    Examples
    --------
    >>> from dcsurv.service import page_files
    >>> files = page_files()
    >>> files["words/de.json"].media_type
    'application/json; charset=utf-8'
    """
    words = read_languages(languages)
    names = json.dumps({code: one["language"] for code, one in words.items()}, ensure_ascii=False)
    page = _page_with(_OVER_HTTP)
    texts = {"": page.replace('data-languages=""', f'data-languages="{html.escape(names)}"')}
    texts |= {name: _read(name) for name in (*_STYLE.findall(page), *_SCRIPT.findall(page))}
    texts |= {f"words/{code}.json": json.dumps(one, ensure_ascii=False) for code, one in words.items()}
    return {
        name: PageFile(f"{_MEDIA[Path(name).suffix or '.html']}; charset=utf-8", text.encode())
        for name, text in texts.items()
    }


def assemble(
    *,
    scripts: Sequence[str],
    data: Mapping[str, Any],
    title: str,
    language: str | None = None,
    languages: Path | None = None,
) -> str:
    """Return the whole page as one HTML text that asks nobody for anything.

    Parameters
    ----------
    scripts : sequence of str
        Scripts of the page's folder that set ``window.dcsurvEngine``, in the order in which they are to run.
    data : mapping of str to object
        Plain data for them, by the id of the element that holds it as JSON: a script reads
        ``JSON.parse(document.getElementById(id).textContent)``.
    title : str
        Of the document, until the card of the model is read.
    language : str or None, default None
        In which the page opens; None: that of the reader's browser.
    languages : Path or None, default None
        A folder with further files of words, as for :func:`page_files`.

    Returns
    -------
    str
        HTML with a content-security-policy in which each script and the style are named by their hashes.

    Examples
    --------
    >>> from dcsurv.service import assemble
    >>> page = assemble(scripts=[], data={"packed": {"numbers": [1, 2]}}, title="Risk after surgery")
    >>> "<title>Risk after surgery</title>" in page, "connect-src" in page
    (True, False)
    """
    page = _page_with(scripts)
    style = "\n".join(_read(name) for name in _STYLE.findall(page))
    code = [_read(name) for name in _SCRIPT.findall(page)]
    for text in code:
        if "</script" in text.lower() or "<!--" in text:
            raise ValueError("a script that is put into the page may not hold the end of a script.")
    words = read_languages(languages)
    if language is not None and language not in words:
        known = f"There are {listed(list(words))}."
        raise InputError(f"the page has no words in {shortened(repr(language))}.", parameter="language", remedy=known)
    for key in data:
        if f'id="{key}"' in page or key == "words":
            raise ValueError(f"the page has an element {key!r} of its own; the data need another id.")
    held = {"words": words, **data}
    blocks = [
        f'<script type="application/json" id="{html.escape(key)}">{_json(one)}</script>' for key, one in held.items()
    ]
    blocks += [f"<script>{text}</script>" for text in code]
    policy = (
        f"default-src 'none'; script-src {' '.join(_hash(text) for text in code)}; style-src {_hash(style)}; "
        # A script may compute beside the page, in a worker that it makes of the page's own text.
        "worker-src blob:; img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta name="referrer" content="no-referrer">'
    )
    page = _SCRIPT.sub("", page)
    if language is not None:
        page = page.replace('data-languages=""', f'data-languages="" data-language="{html.escape(language)}"')
    page = page.replace('<meta name="referrer" content="no-referrer">', head)
    page = re.sub("<title>.*?</title>", lambda _: f"<title>{html.escape(title)}</title>", page)
    page = _STYLE.sub(lambda _: f"<style>{style}</style>", page, count=1)
    return page.replace("</body>", "\n".join(blocks) + "\n</body>")


def read_languages(languages: Path | None = None) -> dict[str, Words]:
    """Return the words of each language, English first; what a language does not have is there in English.

    Parameters
    ----------
    languages : Path or None, default None
        A folder with further files of words.

    Returns
    -------
    dict of str to dict
        By the code of the language: ``"en"``, ``"de"`` and those of the folder.

    Raises
    ------
    InputError
        If a file is not one of words.

    Examples
    --------
    >>> from dcsurv.service import read_languages
    >>> list(read_languages())
    ['en', 'de']
    """
    english: Words = json.loads(_read("words/en.json"))
    found = {"en": english, "de": _checked(_FOLDER / "words" / "de.json", english)}
    if languages is not None:
        if not languages.is_dir():
            raise InputError(f"{languages} is no folder with files of words.", parameter="languages")
        for path in sorted(languages.glob("*.json")):
            found[path.stem] = _checked(path, english)
    return found


def _checked(path: Path, english: Words) -> Words:
    """Read a file of words, which may leave out some but may not invent any."""

    def no(text: str) -> InputError:
        return InputError(f"{path.name}: {text}", parameter="languages", remedy="Start from a copy of words/en.json.")

    if not _LANGUAGE.fullmatch(path.stem):
        raise no("a file of words is named by its language, such as fr.json or pt-BR.json.")
    try:
        if path.stat().st_size > _LARGEST:
            raise no("it is too large for a file of words.")
        own = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise no(f"it cannot be read: {shortened(str(error))}.") from error
    if not isinstance(own, dict) or not isinstance(own.get("language"), str):
        raise no('it has to be a JSON object of words with at least "language", the name of the language in itself.')
    for key, text in own.items():
        if key not in english:
            raise no(f"{shortened(repr(key))} is not a word of the page.{did_you_mean(key, list(english))}")
        if key == "said":
            texts = list(text.values()) if isinstance(text, dict) else [None]
            unknown: set[str] = set()
        else:
            texts = list(text.values()) if isinstance(text, dict) else [text]
            unknown = set(_PLACE.findall(" ".join(str(one) for one in texts))) - _places(english[key])
        if not all(isinstance(one, str) for one in texts):
            raise no(f"{key} has to be a text, or texts by the forms of the plural.")
        if unknown:
            raise no(f"{key} speaks of {{{min(unknown)}}}, which is not known there.")
    return {**english, **own}


def _places(text: Any) -> set[str]:
    """Return the names in braces of a text, or of any of its plural forms."""
    return set(_PLACE.findall(" ".join(text.values()) if isinstance(text, dict) else text))


def _page_with(scripts: Sequence[str]) -> str:
    lines = "".join(f'<script src="{html.escape(name)}" defer></script>\n' for name in scripts)
    return _read("index.html").replace(f"{_ENGINE}\n", lines)


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """Return JSON that cannot end the element that holds it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
