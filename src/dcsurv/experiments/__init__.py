"""Experiments over datasets, models, splits and seeds; the paper's tables and figures.

>>> from dcsurv.experiments import Plan, run, summary  # doctest: +SKIP
>>> results = run(Plan(datasets=["metabric"], models=["CoxPH", "DCS-quant"], splits=range(5)), "my-results")
>>> summary(results.rows)
"""

from dcsurv.experiments.plan import ABLATIONS, PAPER_MODELS, Plan, PlanError
from dcsurv.experiments.runner import Results, run
from dcsurv.experiments.tables import differences, printed_table, summary

__all__ = [
    "ABLATIONS",
    "PAPER_MODELS",
    "Plan",
    "PlanError",
    "Results",
    "differences",
    "printed_table",
    "run",
    "summary",
]
