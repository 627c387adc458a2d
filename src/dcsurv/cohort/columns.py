"""What the columns of a table hold: guessed, open to correction, and the same for every later table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from dcsurv.cohort.dates import holds_dates
from dcsurv.cohort.errors import CohortError, listed, no_such_column

ColumnKind: TypeAlias = Literal["number", "category", "yes/no", "left out"]

YES = frozenset(
    {
        "yes",
        "y",
        "true",
        "t",
        "ja",
        "j",
        "wahr",
        "oui",
        "vrai",
        "si",
        "sí",
        "sì",
        "sim",
        "+",
        "present",
        "pos",
        "positive",
    }
)
NO = frozenset(
    {"no", "n", "false", "f", "nein", "falsch", "non", "faux", "não", "nao", "nee", "absent", "neg", "negative"}
)

# A kind, a note, and the note with values of the table where they differ.
_Guess: TypeAlias = tuple[ColumnKind, str] | tuple[ColumnKind, str, str]

# A column of words in which this share are numbers is one of numbers; the other words count as missing.
_NUMBER_SHARE = 0.8
# As many different words as this, or as this share of the patients, are names or free text, not groups of patients.
_FEW_LEVELS, _MANY_LEVELS, _LEVEL_SHARE = 20, 255, 0.2
# Fewer known values than this say nothing, and a part of the patients may well hold none of them.
_FEW_VALUES, _KNOWN_SHARE = 10, 0.05
_ID_NAME = re.compile(
    r"(?:^|[\W_])(?:id|ids|mrn|pid|uid|uuid|key|index|patient|subject|row|nr|no|number|nummer|rownames)(?:$|[\W_])|ID$",
    re.I,
)


@dataclass(frozen=True)
class Column:
    """One column: what it is taken as, and why.

    Attributes
    ----------
    missing
        Share of the patients without a value.
    note
        What its owner should know, such as why it is left out; no value of a patient.
    shown
        The same with values from the table, for the screen only: it is not among what is stored.
    chosen
        Whether the kind was asked for rather than guessed.
    """

    name: str
    kind: ColumnKind
    missing: float = 0.0
    note: str = ""
    chosen: bool = False
    shown: str = ""

    @property
    def text(self) -> str:
        """The note for the owner of the table."""
        return self.shown or self.note

    def to_dict(self) -> dict[str, Any]:
        """Return what may be stored: nothing that quotes cells of the table."""
        return {"name": self.name, "kind": self.kind, "missing": self.missing, "note": self.note, "chosen": self.chosen}


def guess_columns(
    frame: pd.DataFrame,
    *,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> list[Column]:
    """Decide what each column is; the three lists overrule the guess."""
    asked: dict[str, ColumnKind] = {}
    for names, kind, option in (
        (categorical, "category", "--categorical"), (numeric, "number", "--numeric"), (drop, "left out", "--drop"),
    ):  # fmt: skip
        for name in names:
            if name not in frame.columns:
                raise no_such_column(name, option, list(frame.columns))
            if asked.setdefault(name, kind) != kind:  # type: ignore[arg-type]
                raise CohortError(
                    f"the column {name!r} was asked for in two ways, as {asked[name]} and as {kind}. Choose one."
                )
    return [_decide(frame[name], asked.get(name)) for name in frame.columns]


def _decide(column: pd.Series, asked: ColumnKind | None) -> Column:
    name, missing = str(column.name), float(column.isna().mean())
    known = column.dropna()
    if asked == "left out":
        return Column(name, "left out", missing, "asked for with --drop", chosen=True)
    if len(known) == 0:
        return Column(name, "left out", missing, "has no value")
    if asked is not None:
        if asked == "number" and (bad := _not_numbers(known)).any():
            if bad.mean() > 1 - _NUMBER_SHARE:
                raise CohortError(
                    f"--numeric names the column {name!r}, but {bad.sum()} of its {len(known)} values are no numbers, "
                    f"such as {listed(_examples(known[bad]), 3)}. Leave it out of --numeric, or repair it."
                )
            note, shown = _count_as_missing(known[bad])
            return Column(name, "number", missing, note, chosen=True, shown=shown)
        return Column(name, asked, missing, chosen=True)
    found = _guess(known, len(column))
    return Column(name, found[0], missing, found[1], shown=found[2] if len(found) == 3 else "")


def _count_as_missing(bad: pd.Series) -> tuple[str, str]:
    """Say that values are no numbers: without them, and with some of them."""
    said = f"{len(bad):,} {'value counts' if len(bad) == 1 else 'values count'} as missing"
    return said, f"{said}: {listed(_examples(bad), 3)}"


def _guess(known: pd.Series, n_rows: int) -> _Guess:
    if len(known) < min(_FEW_VALUES, int(np.ceil(_KNOWN_SHARE * n_rows))):
        return "left out", f"has a value in {len(known)} of {n_rows} rows only"
    if holds_dates(known):
        return "left out", "holds dates; turn them into a number, such as an age or days since diagnosis"
    if all(isinstance(cell, bool | np.bool_) for cell in known.iloc[:1000]):
        return _constant(known) or ("yes/no", "")
    bad = _not_numbers(known)
    if bad.mean() <= 1 - _NUMBER_SHARE and (known[~bad].nunique() > 2 or not bad.any()):
        values = to_numbers(known[~bad])
        if not bad.any() and (found := _constant(values) or _identifier(values, str(known.name))):
            return found
        return ("number", *_count_as_missing(known[bad])) if bad.any() else ("number", "")
    texts = level_texts(known)
    distinct = texts.nunique()
    if distinct == 1:
        or_empty = "" if len(known) == n_rows else " or empty; if empty means no, write no there"
        return "left out", f"is always the same{or_empty}", f"is always {texts.iloc[0]!r}{or_empty}"
    folded = set(texts.str.casefold())
    if len(folded) == 2 and folded & YES and folded & NO:  # of Y, N and X, the third may mean anything
        return "yes/no", ""
    if distinct > _MANY_LEVELS or distinct > max(_FEW_LEVELS, _LEVEL_SHARE * len(known)):
        what = "looks like an identifier" if distinct > 0.9 * len(known) else "looks like free text"
        return "left out", f"{what}: {distinct} different values"
    return "category", f"{distinct} levels", f"{distinct} levels: {listed(sorted(set(texts)), 4)}"


def _constant(values: pd.Series) -> _Guess | None:
    first = values.iloc[0]
    if (values == first).all():
        shown = str(first) if isinstance(first, bool | np.bool_) else f"{first:g}"
        return "left out", "is always the same", f"is always {shown}"
    return None


def _identifier(values: pd.Series, name: str) -> _Guess | None:
    """Recognise row numbers, and whole numbers of which everybody has an own one under a name that says so."""
    if len(values) < _FEW_LEVELS or (values % 1 != 0).any() or values.duplicated().any():
        return None
    run = values.diff().iloc[1:].eq(1).all()
    if run or _ID_NAME.search(name) or name.startswith("unnamed column"):
        return "left out", "looks like a row number" if run else "looks like an identifier: every value is different"
    return None


@dataclass(frozen=True)
class Odd:
    """Values of a column that are not what the column holds, and therefore count as missing."""

    column: str
    what: str
    count: int
    examples: tuple[str, ...]

    def describe(self) -> str:
        """Return a sentence for the user."""
        values = "value" if self.count == 1 else "values"
        return (
            f"{self.count:,} {values} of {self.column!r} {'is' if self.count == 1 else 'are'} {self.what}, such as "
            f"{listed(self.examples, 5)}, and {'counts' if self.count == 1 else 'count'} as missing."
        )

    def __add__(self, other: Odd) -> Odd:
        examples = tuple(dict.fromkeys(self.examples + other.examples))
        return Odd(self.column, self.what, self.count + other.count, examples)


def apply_columns(
    frame: pd.DataFrame, columns: Iterable[Column], levels: Mapping[str, Sequence[str]] | None = None
) -> tuple[pd.DataFrame, list[Odd]]:
    """Return the features in their types, and what had to be taken for missing.

    Parameters
    ----------
    levels
        Known levels of categories; others count as missing.

    Raises
    ------
    CohortError
        If a column is not there, or holds something else than before.
    """
    used = [column for column in columns if column.kind != "left out"]
    require_columns(used, [str(name) for name in frame.columns])
    parts: dict[str, pd.Series] = {}
    odd: list[Odd] = []
    for column in used:
        values, found = _apply(frame[column.name], column, (levels or {}).get(column.name))
        parts[column.name] = values
        if found:
            odd.append(found)
    return pd.DataFrame(parts, index=frame.index), odd


def require_columns(columns: Iterable[Column], present: Sequence[str]) -> None:
    """Refuse a table that lacks columns of the model."""
    known = set(present)
    absent = [column.name for column in columns if column.kind != "left out" and column.name not in known]
    if absent:
        raise CohortError(
            f"the model needs {listed(absent, 12)}, which the file does not have. It has {listed(present, 12)}. "
            "Columns are found by name, in any order: rename or add them."
        )


def _apply(values: pd.Series, column: Column, levels: Sequence[str] | None) -> tuple[pd.Series, Odd | None]:
    known = values.dropna()
    if column.kind == "category":
        out = level_texts(values)
        bad = pd.Series(False, index=known.index) if levels is None else ~out[known.index].isin(set(levels))
        out = out.where(~bad.reindex(values.index, fill_value=False))
        what = "unknown to the model"
    elif column.kind == "number":
        bad = _not_numbers(known)
        out = to_numbers(values)
        what = "no number"
    else:
        folded = level_texts(known).str.casefold()
        positive, negative = folded.isin(YES | {"1"}), folded.isin(NO | {"0"})
        bad = ~(positive | negative)
        words = pd.Series(np.where(positive, "yes", "no"), index=known.index).where(~bad)
        out = words.reindex(values.index).astype(pd.CategoricalDtype(["no", "yes"]))
        what = "neither yes nor no"
    if not bad.any():
        return out, None
    odd = Odd(column.name, what, int(bad.sum()), tuple(_examples(known[bad])[:5]))
    if bad.mean() > 1 - _NUMBER_SHARE and len(known) >= _FEW_VALUES:
        kind = {"number": "numbers", "yes/no": "yes and no"}.get(column.kind, f"one of {listed(levels or (), 8)}")
        raise CohortError(
            f"{odd.count} of {len(known)} values of {column.name!r} are {what}, such as {listed(odd.examples, 3)}, "
            f"where the model expects {kind}. Check that it is the right column; decimal commas are read with "
            "--decimal ,"
        )
    return out, odd


def to_numbers(values: pd.Series) -> pd.Series:
    """Return numbers, NaN where a value is missing or no finite number."""
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "fiu":
        out = values.astype(np.float64)
    else:
        out = pd.Series(
            pd.to_numeric(values.astype(object), errors="coerce").to_numpy(np.float64, na_value=np.nan),
            index=values.index,
        )
    return out.where(np.isfinite(out))


def level_texts(values: pd.Series) -> pd.Series:
    """Return levels as text, in which 1, 1.0 and "1.0" are the same; missing ones stay missing."""
    uniques = {value: _level_text(value) for value in values.dropna().unique()}
    return values.map(uniques).astype(object)


def _level_text(value: Any) -> str:
    text = str(value)
    return text.split(".")[0] if re.fullmatch(r"[+-]?\d+\.0+", text) else text


def _not_numbers(known: pd.Series) -> pd.Series:
    return to_numbers(known).isna()


def _examples(values: pd.Series) -> list[str]:
    return [str(value) for value in values.value_counts().index]
