"""Processes of this machine, as joblib runs them.

joblib carries its own copy of loky and raises the errors of that copy, so a loky installed beside it would not do. This
is the one place that reaches into joblib for it.
"""

from __future__ import annotations

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.backend.reduction import dumps
from joblib.externals.loky.process_executor import TerminatedWorkerError

__all__ = ["ProcessPoolExecutor", "TerminatedWorkerError", "dumps"]
