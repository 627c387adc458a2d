"""What a check has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dcsurv.messages import Speaker, say

Severity: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something in the data that deserves a look.

    Parameters
    ----------
    severity : {"error", "warning", "note"}
        ``error``: a model cannot be fitted; ``warning``: it can, and may mislead; ``note``: good to know.
    code : str
        A short name that stays the same from release to release.
    message : str
        What was found.
    remedy : str, default ""
        What to do.
    parameter : str or None, default None
        The parameter that the remedy is about, if it is one.
    columns : tuple of str, default ()
        The columns concerned.
    numbers : mapping of str to float, default {}
        The numbers behind the message, by name.

    Examples
    --------
    >>> from dcsurv.cohort import Cohort, check_cohort
    >>> from dcsurv.datasets import load_flchain
    >>> X, y = load_flchain()
    >>> cohort = Cohort.from_frame(X.assign(days=y["time"], died=y["event"]), time="days", event="died")
    >>> for finding in check_cohort(cohort)[:3]:
    ...     print(finding.severity, finding.code, dict(finding.numbers))
    warning time-zero {'rows': 3}
    note some-missing {}
    note last-usable-horizon {'time': 4990.0}
    """

    severity: Severity
    code: str
    message: str
    remedy: str = ""
    parameter: str | None = None
    columns: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self, speaker: Speaker = str) -> dict[str, Any]:
        """Return all of it as plain data.

        Parameters
        ----------
        speaker : callable, default str
            Says a parameter in the words of those who will read it.

        Returns
        -------
        dict
            Texts, lists and numbers, by name.
        """
        return {
            "severity": self.severity,
            "code": self.code,
            "message": say(self.message, speaker),
            "remedy": say(self.remedy, speaker),
            "parameter": self.parameter,
            "columns": list(self.columns),
            "numbers": dict(self.numbers),
        }
