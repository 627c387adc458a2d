"""The documentation's settings. `make docs` builds it into site/: warnings are errors, and nothing is fetched."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from numpydoc.xref import DEFAULT_LINKS

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE / "_extensions")]

import dcsurv  # noqa: E402

project = "dcsurv"
author = "dcsurv developers"
project_copyright = "dcsurv developers, MIT licence"
release = version = dcsurv.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    # Our own, in docs/_extensions.
    "formulas",
    "markdown_pages",
    "public_names",
]
exclude_patterns = ["_*", "**/rows", "Thumbs.db"]
templates_path = ["_templates"]
nitpicky = True  # a name in a docstring that leads nowhere is an error, too

# Pages: Markdown that also reads well as it is.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
smartquotes = False  # they would bend the quotes of code in types, and the dashes of options

# Reference: one page per public name, its signature as Python sees it, its parameters as their docstring says.
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
# Types of ours are links; nothing is asked about those of others, whose documentation is elsewhere.
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {word: word for word in DEFAULT_LINKS} | {
    name.rpartition(".")[2]: name
    for page in sorted((HERE / "api").glob("*.md"))
    for name in re.findall(r"(?m)^   (dcsurv\.[\w.]*\.?[A-Z]\w*)$", page.read_text(encoding="utf-8"))
}

# Look.
html_theme = "pydata_sphinx_theme"
html_title = "dcsurv"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "dcsurv", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navigation_depth": 2,
    "collapse_navigation": True,
    "show_toc_level": 2,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_context = {"default_mode": "auto"}
html_favicon = "_static/logo.svg"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-text) > div.highlight pre"  # what a block prints is not copied
