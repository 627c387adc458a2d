"""What the documentation site needs beyond mkdocs: formulas, links out of docs/, the command line's reference.

mkdocs calls the functions named on_* (see mkdocs.yml).
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Links that are right in the repository and lead elsewhere on the site.
_MOVED = {"benchmarks/quality.md": "benchmarks.md", "benchmarks/results.json": "benchmarks.md", "README.md": "index.md"}
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
_SUM_BESIDE = re.compile(r"<msub>(<mo>&#x0(?:2211|220F);</mo>(?:<m[in]>[^<]*</m[in]>|<mrow>.*?</mrow>))</msub>")
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")


def on_config(config: Any) -> Any:
    """List every results page that was committed."""
    results = next(part["Results"] for part in config.nav if "Results" in part)
    for page in sorted((ROOT / "docs" / "results").glob("*/README.md")):
        name = page.parent.name
        results.append({f"Tables and figures: {name}": f"results/{name}/README.md"})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page that lists the files of each results folder, so that links to folders lead somewhere."""
    for folder in sorted((ROOT / "docs" / "results").glob("*/*/")):
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        if not names:
            continue
        lines = [f"# {folder.parent.name}: {folder.name}", "", *(f"- [{name}]({name})" for name in names)]
        path = f"results/{folder.parent.name}/{folder.name}/index.md"
        page = File.generated(config, path, content="\n".join(lines) + "\n")
        page.inclusion = page.inclusion.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to their place on the site and write the command line's reference."""
    here = posixpath.dirname(page.file.src_uri)

    def relinked(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target:
            return match[0]
        full = posixpath.normpath(posixpath.join("docs", here, target))
        inside = _MOVED.get(full) or (full[5:] if full.startswith("docs/") else None)
        if inside is None:
            return match[0]
        if (ROOT / "docs" / inside).is_dir():
            inside = f"{inside}/index.md"
        return f"{match[1]}{posixpath.relpath(inside, here or '.')}{match[3]}"

    parts = re.split(r"(^```.*?^```[^\S\n]*$)", markdown, flags=re.S | re.M)
    markdown = "".join(part if part.startswith("```") else _LINK.sub(relinked, part) for part in parts)
    if "<!-- cli -->" in markdown:
        markdown = markdown.replace("<!-- cli -->", command_reference())
    return markdown


def on_page_content(html_text: str, page: Any, config: Any, files: Files) -> str:
    """Turn formulas into MathML."""
    return _FORMULA.sub(_mathml, html_text)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Leave no formula unset: a reader would meet raw LaTeX."""
    if 'class="arithmatex"' in output:
        raise ValueError(f"{page.file.src_uri}: a formula was not set.")
    return output


def _mathml(match: re.Match[str]) -> str:
    latex = html.unescape(match[3]).strip()
    if match[2] == "(":
        return convert(latex)
    # latex2mathml puts the limits of a sum inside left-right pairs beside it.
    return _SUM_BESIDE.sub(r"<munder>\1</munder>", convert(latex, display="block"))


def command_reference() -> str:
    """Return the commands of `dcsurv` with their arguments and options, as the program itself describes them."""
    import typer
    from typer.cli import get_docs_for_click

    from dcsurv.cli import app

    root = typer.main.get_command(app)
    with root.make_context("dcsurv", [], resilient_parsing=True) as context:
        text = get_docs_for_click(obj=root, ctx=context, name="dcsurv")
    # The page has a title of its own, and entities are typer's, not ours.
    return html.unescape(text.partition("\n")[2]).replace("```console", "```text")
