"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something in the data that deserves a look.

    Attributes
    ----------
    severity
        ``error``: a model cannot be fitted; ``warning``: it can, and may mislead; ``note``: good to know.
    code
        A short name that stays the same from release to release.
    message, advice
        What was found, and what to do.
    """

    severity: Severity
    code: str
    message: str
    advice: str = ""
    columns: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "advice": self.advice,
            "columns": list(self.columns),
            "numbers": self.numbers,
        }
