"""What the pages need beyond Markdown, so that they can be read without the site, too.

- A page with the line `<!-- contents -->` is the parent of the pages that its list items begin with a link to.
- Links that are right in the repository and lead out of docs/ are led to their place on the site.
- A results page (results/*/README.md) ends with a list of the files beside it, where links to their folders lead, and
  is the parent of the tables among them, which get their file's name as a title.
- `<!-- cli -->` becomes the command line's reference, from the program itself.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from command_line import command_reference

DOCS = Path(__file__).parents[1]
# Links that are right in the repository and lead elsewhere on the site.
_MOVED = {"benchmarks/quality.md": "benchmarks.md", "benchmarks/results.json": "benchmarks.md", "README.md": "index.md"}
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")
_ITEM = re.compile(r"(?m)^- (?:\*\*)?\[[^\]]+\]\(([^)#\s]+)\.md\)")
_FENCED = re.compile(r"(^```.*?^```[^\S\n]*$)", re.S | re.M)


def read_page(app: Any, docname: str, source: list[str]) -> None:
    """Rewrite a Markdown page when it is read."""
    if app.env.doc2path(docname).suffix != ".md":
        return
    parts = _FENCED.split(source[0])
    text = "".join(part if part.startswith("```") else _relinked(docname, part) for part in parts)
    children = _ITEM.findall(text) if "<!-- contents -->" in text else []
    if re.fullmatch(r"results/[\w-]+/README", docname):
        folder = DOCS / posixpath.dirname(docname)
        children += [page.relative_to(folder).with_suffix("").as_posix() for page in sorted(folder.glob("*/*.md"))]
        text += _files(folder)
    elif docname.startswith("results/"):
        text = f"# {posixpath.basename(docname)}\n\n{text}"
    if children:
        text += "\n```{toctree}\n:hidden:\n\n" + "\n".join(children) + "\n```\n"
    if "<!-- cli -->" in text:
        text = text.replace("<!-- cli -->", command_reference())
    source[0] = text


def _relinked(docname: str, text: str) -> str:
    here = posixpath.dirname(docname)

    def link(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target:
            return match[0]
        full = posixpath.normpath(posixpath.join("docs", here, target))
        inside = _MOVED.get(full) or full.removeprefix("docs/")
        anchor = ""
        if re.fullmatch(r"results/[\w-]+/\w+", inside) and (DOCS / inside).is_dir():
            inside, _, name = inside.rpartition("/")
            inside, anchor = f"{inside}/README.md", f"#{name}"
        return f"{match[1]}{posixpath.relpath(inside, here or '.')}{anchor}{match[3]}"

    return _LINK.sub(link, text)


def _files(folder: Path) -> str:
    """Return the list of a results folder's files, by subfolder."""
    lines = ["", "", "## Files", ""]
    for part in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
        names = sorted(path.name for path in part.iterdir() if path.is_file() and path.name != "README.md")
        if not names:
            continue
        if part != folder:
            lines += [f"### {part.name}", ""]
        lines += [f"- [{name}]({posixpath.join(part.relative_to(folder).as_posix(), name)})" for name in names]
        lines.append("")
    return "\n".join(lines)


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
