"""Formulas as MathML, which browsers set themselves: no script, no font and no picture is loaded."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)


def _set(translator: Any, node: nodes.Element, *, as_block: bool) -> None:
    try:
        translator.body.append(tex2mathml(node.astext().strip(), as_block=as_block))
    except MathError as error:
        logger.warning("%s in the formula %s", error, node.astext(), location=node)
    raise nodes.SkipNode


def _inline(translator: Any, node: nodes.math) -> None:
    _set(translator, node, as_block=False)


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    try:
        _set(translator, node, as_block=True)
    finally:
        translator.body.append("</div>\n")


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
