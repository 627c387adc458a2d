"""The command line: parse, call, print."""

from dcsurv.cli import data, demo, fitting, models, predicting, reproducing, tuning  # noqa: F401  (each adds its commands)
from dcsurv.cli.app import app, main

__all__ = ["app", "main"]
