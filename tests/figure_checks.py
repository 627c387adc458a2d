"""What every figure must hold: no text is cut off, and none covers another."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def shown_texts(figure):
    """Return every piece of text that is drawn, with its box on the page."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    unseen = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not (axis.get_visible() and ax.axison and low <= tick.get_loc() <= high):
                    unseen |= {id(tick.label1), id(tick.label2)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and id(text) not in unseen]
    return [(text.get_text(), Text.get_window_extent(text, renderer)) for text in texts]


def check_texts(figure):
    texts = shown_texts(figure)
    assert len(texts) > 5
    page = figure.bbox
    for text, box in texts:
        assert box.x0 >= -1, f"{text!r} is cut off on the left"
        assert box.x1 <= page.x1 + 1, f"{text!r} is cut off on the right"
        assert box.y0 >= -1, f"{text!r} is cut off at the bottom"
        assert box.y1 <= page.y1 + 1, f"{text!r} is cut off at the top"
    for k, (text, box) in enumerate(texts):
        for other, other_box in texts[:k]:
            width = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
            height = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
            assert min(width, height) < 1, f"{text!r} and {other!r} overlap"
