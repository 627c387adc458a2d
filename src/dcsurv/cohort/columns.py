"""What the columns of a table hold: guessed, open to correction, and the same for every later table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from dcsurv.cohort.cells import examples, level_texts, spellings, to_numbers, yes_and_no
from dcsurv.cohort.dates import holds_dates
from dcsurv.cohort.errors import CohortError, no_such_column
from dcsurv.cohort.identifiers import FEW_VALUES as _FEW_LEVELS
from dcsurv.cohort.identifiers import looks_like_identifier, looks_like_patient_codes
from dcsurv.messages import Message, listed, plural

ColumnKind: TypeAlias = Literal["number", "category", "yes/no", "left out"]
ColumnReason: TypeAlias = Literal[
    "no value", "few values", "dates", "constant", "constant or empty", "identifier", "row number", "free text",
    "half numbers", "mixed", "levels", "copy", "group",
]  # fmt: skip

# A column of words in which this share are numbers is one of numbers; the other words count as missing.
NUMBER_SHARE = 0.8
# As many different words as this, or as this share of the patients, are names or free text, not groups of patients.
MANY_LEVELS, _LEVEL_SHARE = 255, 0.2
# Fewer known values than this say nothing, and a part of the patients may well hold none of them.
FEW_VALUES, _KNOWN_SHARE, _LEAST_SHARE = 10, 0.05, 0.01
# A number with something around it: 12.5 mg, >90, 140?. A column of which at least half is written so, or plain, was
# meant to be one of numbers.
_NEARLY_NUMBER = r"[<>=~≤≥±]*\s*[+-]?\d+(?:[.,]\d+)?\s*[^\d\s]{0,6}(?:\s?[^\d\s]{0,6})?"
_MEANT_SHARE, _PLAIN_SHARE = 0.5, 0.2


@dataclass(frozen=True)
class Column:
    """One column: what it is taken as, and why.

    Parameters
    ----------
    name : str
        The name of the column.
    kind : {"number", "category", "yes/no", "left out"}
        What it is taken as.
    missing : float, default 0.0
        Share of the patients without a value.
    reason : {"no value", "few values", "dates", "constant", "constant or empty", "identifier", "row number", \
"free text", "half numbers", "mixed", "levels", "copy", "group"} or None, default None
        What its owner should know: why it is left out, or that it holds numbers and words, or levels.
    chosen : bool, default False
        Whether the kind was asked for rather than guessed.
    numbers : mapping of str to int, default {}
        The numbers behind the reason, by name.
    examples : tuple, default ()
        Values of the table behind the reason, for the screen only: they are not among what is stored.
    missing_values : tuple of str, default ()
        Values that mean that nothing is known, in this table and in every later one.
    spellings : mapping of str to str, default {}
        Spellings of levels that were put together, and the level; for the screen only.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.cohort import guess_columns
    >>> column, = guess_columns(pd.DataFrame({"clinic": ["Basel"] * 30}))
    >>> column.kind, column.reason, column.text
    ('left out', 'constant', "is always 'Basel'")
    """

    name: str
    kind: ColumnKind
    missing: float = 0.0
    reason: ColumnReason | None = None
    chosen: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[object, ...] = ()
    missing_values: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """The reason in words, without any value of the table."""
        return self._worded("the same")

    @property
    def text(self) -> str:
        """The reason in words for the owner of the table, with values of it."""
        if not self.examples:
            return self.note
        if self.reason in ("constant", "constant or empty"):
            return self._worded(listed(self.examples))
        return f"{self.note}: {listed(self.examples, 4 if self.reason == 'levels' else 3)}"

    def _worded(self, same: str) -> str:
        if self.reason is None:
            return ""
        count = self.numbers.get("count", 0)
        said = plural(count, *_COUNTED[self.reason]) if self.reason in _COUNTED else ""
        return _NOTES[self.reason].format(**{**self.numbers, "same": same, "said": said})

    def to_dict(self) -> dict[str, Any]:
        """Return what may be stored: nothing that quotes cells of the table."""
        return {
            "name": self.name,
            "kind": self.kind,
            "missing": self.missing,
            "reason": self.reason,
            "note": self.note,
            "chosen": self.chosen,
            "numbers": dict(self.numbers),
            "missing_values": list(self.missing_values),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Column:
        """Return a stored column.

        Parameters
        ----------
        saved : mapping of str
            From :meth:`to_dict`. Columns stored by version 0.1.0 have no reason.

        Returns
        -------
        Column
            Without the examples, which are not stored.
        """
        return cls(
            saved["name"], saved["kind"], saved["missing"], saved.get("reason"), saved["chosen"],
            saved.get("numbers", {}), missing_values=tuple(saved.get("missing_values", ())),
        )  # fmt: skip


_NOTES: dict[ColumnReason, str] = {
    "no value": "has no value",
    "few values": "has only {said} in {rows} rows",
    "dates": "holds dates; turn them into a number, such as an age or days since diagnosis",
    "constant": "is always {same}",
    "constant or empty": "is always {same} or empty; if empty means no, write no there",
    "identifier": "looks like an identifier: {said}",
    "row number": "looks like a row number",
    "free text": "looks like free text: {said}",
    "half numbers": "looks like numbers, but only {said} can be read",
    "mixed": "{said} as missing",
    "levels": "{said}",
    "copy": "says the same as another column",
    "group": "says which rows belong to one patient",
}
_COUNTED: dict[ColumnReason, tuple[str, ...]] = {
    "few values": ("value",),
    "identifier": ("different value",),
    "free text": ("different value",),
    "half numbers": ("value",),
    "mixed": ("value counts", "values count"),
    "levels": ("level",),
}


def guess_columns(
    frame: pd.DataFrame,
    *,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing_values: Mapping[str, Sequence[str]] | None = None,
) -> list[Column]:
    """Decide what each column is; the three lists overrule the guess.

    Parameters
    ----------
    frame : DataFrame
        One row per patient, without the columns of the outcome.
    categorical : sequence of str, default ()
        Columns to take as groups.
    numeric : sequence of str, default ()
        Columns to take as numbers.
    drop : sequence of str, default ()
        Columns to leave out.
    missing_values : mapping of str to sequence of str, or None, default None
        By column, values that mean that nothing is known.

    Returns
    -------
    list of Column
        One per column, in their order.

    Examples
    --------
    >>> from dcsurv.cohort import guess_columns
    >>> from dcsurv.datasets import load_flchain
    >>> X, _ = load_flchain()
    >>> {column.name: column.kind for column in guess_columns(X[["age", "sex", "mgus"]])}
    {'age': 'number', 'sex': 'category', 'mgus': 'yes/no'}
    """
    asked: dict[str, ColumnKind] = {}
    for names, kind, parameter in (
        (categorical, "category", "categorical"), (numeric, "number", "numeric"), (drop, "left out", "drop"),
    ):  # fmt: skip
        for name in names:
            if name not in frame.columns:
                raise no_such_column(name, parameter, [str(column) for column in frame.columns])
            if asked.setdefault(name, kind) != kind:  # type: ignore[arg-type]
                raise CohortError(
                    f"the column {name!r} was asked for in two ways, as {asked[name]} and as {kind}.",
                    parameter=parameter,
                    remedy="Choose one.",
                )
    return [_decide(frame[name], asked.get(name), (missing_values or {}).get(name, ())) for name in frame.columns]


def known_values(column: pd.Series, missing_values: Sequence[str]) -> pd.Series:
    """Return a column in which values that mean missing are missing.

    Parameters
    ----------
    column : Series
        Its cells.
    missing_values : sequence of str
        As text, in which 1 and 1.0 are the same.

    Returns
    -------
    Series
        The column itself if there are none.
    """
    if not missing_values:
        return column
    return column.where(~level_texts(column).isin(set(missing_values)))


def _decide(column: pd.Series, asked: ColumnKind | None, missing_values: Sequence[str]) -> Column:
    found = _kind_of(known_values(column, missing_values), asked)
    return replace(found, missing_values=tuple(missing_values)) if missing_values else found


def _kind_of(column: pd.Series, asked: ColumnKind | None) -> Column:
    name, missing = str(column.name), float(column.isna().mean())
    known = column.dropna()
    if asked == "left out":
        return Column(name, "left out", missing, chosen=True)
    if len(known) == 0:
        return Column(name, "left out", missing, "no value")
    if asked is None:
        return replace(_guess(known, len(column)), missing=missing)
    if asked == "number" and (bad := to_numbers(known).isna()).any():
        if bad.mean() > 1 - NUMBER_SHARE:
            raise CohortError(
                Message(
                    "{numeric} names the column {name!r}, but {bad} of its {known} values are not numbers, such as "
                    "{examples}.",
                    name=name,
                    bad=int(bad.sum()),
                    known=len(known),
                    examples=listed(examples(known[bad]), 3),
                ),
                parameter="numeric",
                remedy=Message("Leave it out of {numeric}, or repair it."),
            )
        return replace(_mixed(known, bad), missing=missing, chosen=True)
    return Column(name, asked, missing, chosen=True)


def _mixed(known: pd.Series, bad: pd.Series) -> Column:
    words = known[bad]
    return Column(
        str(known.name), "number", reason="mixed", numbers={"count": len(words)}, examples=tuple(examples(words))
    )


def _guess(known: pd.Series, n_rows: int) -> Column:
    name = str(known.name)
    few = min(FEW_VALUES, int(np.ceil(_KNOWN_SHARE * n_rows)))
    if len(known) < max(few, int(np.ceil(_LEAST_SHARE * n_rows))):
        return Column(name, "left out", reason="few values", numbers={"count": len(known), "rows": n_rows})
    if holds_dates(known):
        return Column(name, "left out", reason="dates")
    if all(isinstance(cell, bool | np.bool_) for cell in known.iloc[:1000]):
        return _constant(known) or Column(name, "yes/no")
    values = to_numbers(known)
    bad = values.isna()
    if bad.mean() <= 1 - NUMBER_SHARE and (not bad.any() or known[~bad].nunique() > 2):
        if bad.any():
            return _mixed(known, bad)
        return _constant(values) or _identifier(values) or Column(name, "number")
    return _guess_words(known, bad, n_rows)


def _guess_words(known: pd.Series, bad: pd.Series, n_rows: int) -> Column:
    """Decide what a column of words is, of which some may be numbers."""
    name, texts = str(known.name), level_texts(known)
    same = spellings(texts)
    levels = texts.replace(same) if same else texts
    distinct = int(levels.nunique())
    if distinct == 1:
        reason: ColumnReason = "constant" if len(known) == n_rows else "constant or empty"
        return Column(name, "left out", reason=reason, examples=(levels.iloc[0],))
    if yes_and_no(texts) is not None:
        return Column(name, "yes/no", spellings=same)
    if looks_like_patient_codes(levels):
        return Column(name, "left out", reason="identifier", numbers={"count": distinct})
    if distinct > MANY_LEVELS or distinct > max(_FEW_LEVELS, _LEVEL_SHARE * len(known)):
        if not bad.all() and _meant_as_numbers(texts, bad):
            words = tuple(examples(known[bad]))
            return Column(name, "left out", reason="half numbers", numbers={"count": int((~bad).sum())}, examples=words)
        reason = "identifier" if distinct > 0.9 * len(known) else "free text"
        return Column(name, "left out", reason=reason, numbers={"count": distinct})
    return Column(
        name, "category", reason="levels", numbers={"count": distinct}, examples=tuple(sorted(set(levels))),
        spellings=same,
    )  # fmt: skip


def _meant_as_numbers(texts: pd.Series, bad: pd.Series) -> bool:
    nearly = texts.str.fullmatch(_NEARLY_NUMBER)
    return bool(nearly.mean() >= _MEANT_SHARE and (~bad).mean() >= _PLAIN_SHARE)


def _constant(values: pd.Series) -> Column | None:
    first = values.iloc[0]
    if not (values == first).all():
        return None
    shown = bool(first) if isinstance(first, bool | np.bool_) else int(first) if first % 1 == 0 else float(first)
    return Column(str(values.name), "left out", reason="constant", examples=(shown,))


def _identifier(values: pd.Series) -> Column | None:
    """Recognise row numbers, and numbers of patients."""
    name = str(values.name)
    if len(values) >= _FEW_LEVELS and values.diff().iloc[1:].eq(1).all():
        return Column(name, "left out", reason="row number")
    if looks_like_identifier(values):
        return Column(name, "left out", reason="identifier", numbers={"count": int(values.nunique())})
    return None
