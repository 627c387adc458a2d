"""Why a model predicts what it predicts for one patient, one after the other and never on the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.durations import Horizon
from dcsurv.explanation import explain
from dcsurv.service.asking import Asked
from dcsurv.service.problems import Problem
from dcsurv.service.served import ServedModel

# With more features than this, fewer orders of them are tried, so that an explanation stays affordable.
_WIDE, _WORK, _LEAST_ORDERS = 100, 20_000, 16


class Reasons:
    """Explains patients in a thread of its own, in front of which only a few may wait.

    Parameters
    ----------
    most : int
        How many are explained or wait.
    """

    def __init__(self, most: int) -> None:
        self._most, self._waiting = most, 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dcsurv-explain")

    async def explain(self, served: ServedModel, asked: Asked, horizon: Horizon) -> dict[str, Any]:
        """Return what each feature makes of the risk of a patient."""
        if self._waiting >= self._most:
            raise Problem(503, "Too many explanations are asked for. Try again.", headers={"Retry-After": "2"})
        self._waiting += 1
        job = asyncio.get_running_loop().run_in_executor(self._pool, _explained, served, asked, horizon)
        job.add_done_callback(self._ended)
        return await job

    def _ended(self, job: asyncio.Future[Any]) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """End the thread, after what it is at."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _explained(served: ServedModel, asked: Asked, horizon: Horizon) -> dict[str, Any]:
    features = pd.DataFrame(asked.values, copy=False)
    width = len(asked.values)
    pairs = max(_LEAST_ORDERS, _WORK // width) if width > _WIDE else None
    try:
        found = explain(served.model, features, times=[horizon.time], n_pairs=pairs)
    except ValueError:  # its words are for those who call from Python
        detail = "This model cannot be explained: its file does not say what its training patients were like."
        raise Problem(422, detail) from None
    risk = found.at(horizon.time)
    values = risk.values[0]
    errors = None if risk.error is None else risk.error[0].tolist()
    order = np.argsort(-np.abs(values), kind="stable").tolist()
    patient = served.patients(asked, served.predict(asked.values, asked.how))[0]
    return {
        "model": served.identity,
        "horizon": horizon.to_dict(),
        "base": float(risk.base),
        "risk": float(risk.predicted[0]),
        "contributions": [
            {
                "feature": risk.features[k],
                "value": risk.texts[0][k],
                "effect": float(values[k]),
                "error": None if errors is None else errors[k],
            }
            for k in order
        ],
        "background": found.background,
        "method": found.method,
        "usable": patient["usable"],
        "notes": patient["notes"],
    }
