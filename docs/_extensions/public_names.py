"""Public names: what the reference shows of them, and links to it from wherever they are written.

- In a page, code that is the name of something in the reference (`CoxPH`, `metrics.evaluate`) is a link.
- In a docstring, :class:`FollowUp` and the like may be written without the way to it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

# Names that too many things have to be links wherever they are written as code.
_NO_LINKS = {"load", "run", "save"}


def find(name: str, env: Any) -> str | None:
    """Return the full name of a documented object that is written as `name`."""
    objects = env.get_domain("py").objects
    for full in (name, f"dcsurv.{name}"):
        if full in objects:
            return full
    ends = [full for full in objects if full.endswith(f".{name}")]
    return min(ends, key=lambda full: (full.count("."), full)) if ends else _same_object(name, objects)


def _same_object(name: str, objects: Any) -> str | None:
    """Return the public name of an object that is written by the module where it is defined."""
    thing, last = named(name), name.rpartition(".")[2]
    if thing is None:
        return None
    return next((str(full) for full in objects if full.endswith(f".{last}") and named(full) is thing), None)


def named(name: str) -> Any:
    """Return what a module of dcsurv calls so; None if there is no such thing."""
    module, _, last = name.rpartition(".")
    if not module.startswith("dcsurv"):
        return None
    try:
        return getattr(import_module(module), last, None)
    except ImportError:
        return None


def resolve(app: Any, env: Any, node: Any, content: nodes.Node) -> nodes.Node | None:
    """Answer Sphinx for a reference in a docstring that it could not find."""
    if node.get("refdomain") != "py":
        return None
    if node["reftype"] == "mod" and find_spec(node["reftarget"]) is not None:
        return content  # modules have no page of their own
    full = find(node["reftarget"], env)
    if full is None:
        described = named(node["refdoc"].removeprefix("generated/"))
        # An attribute that its class describes in a list has no place of its own to lead to.
        return content if hasattr(described, node["reftarget"]) else None
    entry = env.get_domain("py").objects[full]
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, full)


class LinkNames(SphinxPostTransform):
    """Make links of the public names in the code of Markdown pages."""

    default_priority = 400

    def run(self, **kwargs: Any) -> None:
        if self.env.doc2path(self.env.docname).suffix != ".md" or self.app.builder.format != "html":
            return
        for node in list(self.document.findall(nodes.literal)):
            if isinstance(node.parent, nodes.reference | nodes.title):
                continue
            name = node.astext().removesuffix("()")
            full = f"dcsurv.{name.removeprefix('dcsurv.')}"
            entry = self.env.get_domain("py").objects.get(full)
            if entry is None or name in _NO_LINKS:
                continue
            reference = make_refnode(
                self.app.builder, self.env.docname, entry.docname, entry.node_id, node.deepcopy(), full
            )
            node.replace_self(reference)


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what classes have from other packages: scikit-learn, torch, named tuples."""
    function = getattr(thing, "fget", None) or getattr(thing, "func", None) or thing  # of a property
    return None if str(getattr(function, "__module__", "dcsurv")).startswith("dcsurv") else True


def setup(app: Any) -> dict[str, Any]:
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", skip)
    app.add_post_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
