"""What a calculator does with values that the model has not learnt from: as its owner set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

NoteOrRefuse: TypeAlias = Literal["note", "refuse"]


@dataclass(frozen=True)
class Policy:
    """Whether values unlike those of training are predicted with a note or refused.

    Parameters
    ----------
    out_of_range : {"note", "refuse"}, default "note"
        Numbers outside the range of the training patients.
    unknown_level : {"note", "refuse"}, default "note"
        Levels that the model does not know; with a note they count as missing.
    missing : {"note", "refuse"}, default "note"
        Values that are not known.

    Examples
    --------
    >>> from dcsurv.service import Policy
    >>> Policy(out_of_range="refuse").to_dict()
    {'out_of_range': 'refuse', 'unknown_level': 'note', 'missing': 'note'}
    """

    out_of_range: NoteOrRefuse = "note"
    unknown_level: NoteOrRefuse = "note"
    missing: NoteOrRefuse = "note"

    def to_dict(self) -> dict[str, str]:
        """Return it as plain data."""
        return asdict(self)
