"""What a search shows while it runs: a bar, or where there is no terminal a line now and then."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from dcsurv.experiments.tuning.study import Proposal, TrialStudy
from dcsurv.experiments.tuning.trials import TrialResult

# Seconds between two lines where there is no terminal.
_LINE_EVERY = 20.0


class TrialBar:
    """A bar over the trials of a study, with the best value so far and the time that is left."""

    def __init__(self, study: TrialStudy, n_trials: int, *, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._study, self._n_trials = study, n_trials
        self._counts = Counter(state for state, _ in study.courses())
        self._done_here = 0
        self._begin = self._said = time.monotonic()
        console = Console(stderr=True)
        self._lines = shown and not console.is_terminal
        columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = Bar(*columns, TimeElapsedColumn(), console=console, disable=not shown or self._lines)
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
        if outcome.state == "failed" and (self._lines or not self._bar.disable):
            text = f"trial {proposal.trial.number} failed: {outcome.cause}"
            self._bar.console.print(text, style="red", markup=False, highlight=False)
        self._show()

    def _show(self) -> None:
        done = sum(self._counts.values())
        now = time.monotonic()
        late = now - self._said > _LINE_EVERY or done == self._n_trials
        if self._bar.disable and not (self._lines and late):
            return
        parts = [self._best()] if self._counts["complete"] else []
        stopped = self._counts["pruned"] + self._counts["slow"]
        parts.append(f"{self._counts['complete']} complete, {stopped} stopped, {self._counts['failed']} failed")
        if self._done_here and done < self._n_trials:
            left = (now - self._begin) / self._done_here * (self._n_trials - done)
            parts.append(f"about {left / 60:.0f} min left" if left > 90 else f"about {left:.0f} s left")
        if self._lines:
            self._said = now
            text = f"{done} of {self._n_trials} trials; {'; '.join(parts)}"
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._bar.update(self._task, completed=min(done, self._n_trials), description="; ".join(parts))

    def _best(self) -> str:
        labels = self._study.criterion.labels
        best: list[Any] = self._study.optuna.best_trials
        if len(labels) > 1:
            return f"{len(best)} on the front"
        return f"best {labels[0]} {best[0].value:.4f} (trial {best[0].number})"
