"""Figures from curves and tables: the paper's, those of an evaluation and of a Cox model, and the schematics.

Every function returns a :class:`matplotlib.figure.Figure` of its own; pyplot, its backend and the user's settings
are left alone. :func:`save` writes a figure as SVG and PNG, the same bytes every time. matplotlib is imported when
the first figure is drawn.
"""

from dcsurv.figures.cox import effects_over_time, hazard_ratios
from dcsurv.figures.paper import (
    censoring_schematic,
    comparable_pairs,
    events_per_node,
    metric_table,
    network_schematic,
    survival_curves,
)
from dcsurv.figures.style import DARK, GREY, PALE, PALETTE, RED, save

__all__ = [
    "DARK",
    "GREY",
    "PALE",
    "PALETTE",
    "RED",
    "censoring_schematic",
    "comparable_pairs",
    "effects_over_time",
    "events_per_node",
    "hazard_ratios",
    "metric_table",
    "network_schematic",
    "save",
    "survival_curves",
]
