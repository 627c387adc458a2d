"""Every block of README, CONTRIBUTING and docs runs and prints what is shown; the site builds without a warning."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from dcsurv import kinds

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import doc_blocks  # noqa: E402

PAGES = {page.relative_to(ROOT).as_posix(): page for page in doc_blocks.pages()}
WITH_CODE = [name for name, page in PAGES.items() if doc_blocks.blocks(page)]


@pytest.fixture(scope="session")
def fitted_model(tmp_path_factory):
    """The model that pages share, fitted by the first command of the page on fitting."""
    return doc_blocks.fit_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("name", WITH_CODE)
def test_blocks_run_and_print_what_is_shown(name, tmp_path, request, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    kinds.kinds()  # a model that a page registers is forgotten after it
    monkeypatch.setattr(kinds, "_kinds", dict(kinds._kinds))
    page = PAGES[name]
    model = request.getfixturevalue("fitted_model") if doc_blocks.needs_model(page) else None
    doc_blocks.prepare(page, tmp_path, model)
    shown = doc_blocks.outputs(page)
    for block, printed in doc_blocks.run_page(page, tmp_path, model):
        if block.line in shown:
            text = shown[block.line].text
            assert doc_blocks.same_output(text, printed), f"{block} shows\n{text}\nbut prints\n{printed}"


def test_every_block_is_run_or_listed():
    """A block is Python, commands, or output of the one before; a command is of dcsurv or in the table."""
    for page in PAGES.values():
        doc_blocks.outputs(page)
        for block in doc_blocks.blocks(page):
            assert block.is_output or block.language in ("python", "sh"), f"{block}: {block.language!r}"
            for command in doc_blocks.commands(block) if block.language == "sh" else ():
                assert command.startswith("dcsurv ") or command in doc_blocks.TESTED_AS, f"{block}: {command}"


def test_the_table_of_commands_holds_nothing_that_no_page_shows():
    shown = {command for page in PAGES.values() for command in doc_blocks.shell_commands(page)}
    assert set(doc_blocks.TESTED_AS) <= shown
    made = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    assert {command.split()[1] for command in shown if command.startswith("make ")} <= made


def test_outputs_that_differ_are_noticed():
    assert doc_blocks.same_output("C-td 0.671  yes", "C-td  0.672 yes\n")
    assert not doc_blocks.same_output("C-td 0.671 yes", "C-td 0.691 yes")
    assert not doc_blocks.same_output("C-td 0.671 yes", "C-td 0.671 no")
    assert not doc_blocks.same_output("3 patients", "4 patients")


def test_numbers_come_from_results():
    """A measured number stands in a table that the results fill, in a block that is run, or in a formula."""
    for name, page in PAGES.items():
        if name == "docs/paper.md":  # a reading of the results, each with the table that it comes from
            continue
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- /\1 -->", "", text, flags=re.S)
        text = re.sub(r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$", "", text, flags=re.S)
        allowed = {"3.11", "3.12", "3.13", "3.0", "0.3.0", "0.1.0"}  # versions
        found = set(re.findall(r"(?<![\w.])\d*\.\d+(?:\.\d+)*(?!\w)|\d+ ?%", text)) - allowed
        assert not found, f"{name} holds {sorted(found)} outside of tables that scripts/update_readme.py fills"


def test_tables_are_those_of_the_committed_results():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "update_readme.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site as `make docs` builds it: warnings, dead links, dead anchors and unknown names are errors.

    It is built once for all workers, from a copy, because the pages of the reference are written beside the others.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "site"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("generated"))
            (folder / "src").symlink_to(ROOT / "src")
            done = subprocess.run(
                [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "docs", "html"],
                capture_output=True, text=True, cwd=folder,
            )  # fmt: skip
            (folder / "problems").write_text("" if done.returncode == 0 else done.stdout + done.stderr)
    problems = (folder / "problems").read_text()
    assert not problems, problems
    return folder / "html"


def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        elements = re.findall(r"<(?:script|img|iframe|source|object|link)\s[^>]*>", text)
        loaded = [one for one in elements if re.search(r"\s(?:src|data|href)=[\"']?(?:https?:)?//", one)]
        assert not loaded, f"{page.name} loads {loaded}"
    for style in site.rglob("*.css"):
        loaded = re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", style.read_text(encoding="utf-8"))
        assert not loaded, f"{style.name} loads {loaded}"


def test_formulas_and_reference_are_set(site):
    science = (site / "science" / "models.html").read_text(encoding="utf-8")
    assert science.count("<math") > 20
    reference = (site / "generated" / "dcsurv.CalibratedEnsemble.html").read_text(encoding="utf-8")
    assert 'id="dcsurv.CalibratedEnsemble.predict_band"' in reference
    assert ":class:" not in reference
    # Names that are written as code are links to the reference.
    assert re.search(
        r'href="generated/dcsurv.CoxPH.html[^>]*><code', (site / "choose.html").read_text(encoding="utf-8")
    )
    for page in site.rglob("*.html"):
        assert "$$" not in page.read_text(encoding="utf-8"), f"{page.name} shows a formula as LaTeX"


def test_the_site_can_be_searched(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert '"dcsurv.CalibratedEnsemble"' in index
    assert "tasks/recalibrate" in index


def test_the_command_reference_is_that_of_the_program(site):
    import typer

    from dcsurv.cli import app

    text = (site / "cli.html").read_text(encoding="utf-8")
    for name in typer.main.get_command(app).commands:
        assert f'id="dcsurv-{name}"' in text


def test_the_gallery_shows_what_its_blocks_draw():
    """Every picture that a page shows is there, and is drawn by a block of the gallery."""
    text = PAGES["docs/gallery.md"].read_text(encoding="utf-8")
    drawn = {f"{name}.svg" for name in re.findall(r'figures\.save\([^\n]*"([\w-]+)"\)', text)}
    shown = {
        name
        for page in PAGES.values()
        for name in re.findall(r"gallery/([\w-]+\.svg)", page.read_text(encoding="utf-8"))
    }
    assert drawn == shown == {path.name for path in (ROOT / "docs" / "gallery").glob("*.svg")}


def test_pages_are_plain_markdown():
    """They are read in the repository, too, where links by the names of other tools would stand as they are."""
    for name, page in PAGES.items():
        prose = re.sub(r"```.*?```|`[^`]*`", "code", page.read_text(encoding="utf-8"), flags=re.S)
        assert not re.findall(r"\]\[|\{\w+\}code|^(?:!!!|:::)", prose, flags=re.M), name


def test_links_of_the_readme_lead_somewhere():
    """Sphinx checks those of the site."""
    for name in ("README.md", "CONTRIBUTING.md", "docs/paper.md"):
        path = ROOT / name
        prose = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)#]+)", prose):
            assert "://" in target or (path.parent / target).exists(), f"{name}: {target}"
