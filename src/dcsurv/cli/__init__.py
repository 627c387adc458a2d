"""The command line: parse, call, print."""

from dcsurv.cli import (  # noqa: F401  (each adds its commands)
    calculating,
    data,
    demo,
    describing,
    evaluating,
    explaining,
    exporting,
    fitting,
    predicting,
    reporting,
    reproducing,
    serving,
    tuning,
    validating,
)
from dcsurv.cli.app import app, in_order, main

in_order(
    "demo", "check", "models", "tune", "validate", "fit", "predict", "explain", "evaluate", "recalibrate", "report",
    "serve", "calculator", "export", "info", "reproduce",
)  # fmt: skip

__all__ = ["app", "main"]
