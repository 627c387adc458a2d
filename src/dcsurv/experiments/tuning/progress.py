"""What a search shows while it runs."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from dcsurv.experiments.tuning.study import Proposal, TrialStudy
from dcsurv.experiments.tuning.trials import TrialResult


class TrialBar:
    """A bar over the trials of a study, with the best value so far and the time that is left."""

    def __init__(self, study: TrialStudy, n_trials: int, *, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._study, self._n_trials = study, n_trials
        self._counts = Counter(state for state, _ in study.courses())
        self._done_here = 0
        self._begin = time.monotonic()
        columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=not shown)
        self._task = self._bar.add_task("", total=n_trials)

    def __enter__(self) -> TrialBar:
        self._bar.start()
        self._show()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, proposal: Proposal, outcome: TrialResult) -> None:
        """Count a trial that ended, and say so if it failed."""
        self._counts[outcome.state] += 1
        self._done_here += 1
        if outcome.state == "failed" and not self._bar.disable:
            text = f"trial {proposal.trial.number} failed: {outcome.cause}"
            self._bar.console.print(text, style="red", markup=False, highlight=False)
        self._show()

    def _show(self) -> None:
        if self._bar.disable:
            return
        done = sum(self._counts.values())
        parts = [self._best()] if self._counts["complete"] else []
        stopped = self._counts["pruned"] + self._counts["slow"]
        parts.append(f"{self._counts['complete']} complete, {stopped} stopped, {self._counts['failed']} failed")
        if self._done_here and done < self._n_trials:
            left = (time.monotonic() - self._begin) / self._done_here * (self._n_trials - done)
            parts.append(f"about {left / 60:.0f} min left" if left > 90 else f"about {left:.0f} s left")
        self._bar.update(self._task, completed=min(done, self._n_trials), description="; ".join(parts))

    def _best(self) -> str:
        labels = self._study.criterion.labels
        best: list[Any] = self._study.optuna.best_trials
        if len(labels) > 1:
            return f"{len(best)} on the front"
        return f"best {labels[0]} {best[0].value:.4f} (trial {best[0].number})"
