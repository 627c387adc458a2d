"""What is wrong with a table, said so that its owner can repair it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class CohortError(ValueError):
    """A table of patients that cannot be used as asked: what was wrong, what arrived, what to do."""


def listed(items: Sequence[object], limit: int = 6) -> str:
    """Return a short list for a sentence: 'a', 'b' and 12 more."""
    shown = ", ".join(repr(item) if isinstance(item, str) else str(item) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def no_such_column(asked: str, option: str, columns: Sequence[str]) -> CohortError:
    """Say that a column does not exist, and which one may have been meant."""
    folded = {name.casefold(): name for name in columns}
    near = difflib.get_close_matches(asked.casefold(), list(folded), n=1, cutoff=0.6)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    return CohortError(
        f"{option} names the column {asked!r}, which the file does not have.{hint} It has {listed(columns, 12)}."
    )
