"""How a table is kept in a file, and what its columns are called."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dcsurv.cohort.files import TableFile
from dcsurv.messages import listed

# Cells that mean "not known". The word None is not among them: it is a level of many a clinical column.
MISSING = ("", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "NULL", "null", "<NA>", "#N/A", "#NA", ".", "?", "-")
UNNAMED = "unnamed column"
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}

Kind = Literal["csv", "parquet", "excel"]


@dataclass(frozen=True)
class TableFormat:
    r"""How a file is read.

    Parameters
    ----------
    file : TableFile
        The file.
    kind : {"csv", "parquet", "excel"}
        What kind of file it is.
    columns : tuple of str
        Names as they are used from here on: trimmed, in one Unicode form, each only once.
    repeated : tuple of str, default ()
        Names that the file has more than once.
    notes : tuple of str, default ()
        What was guessed or renamed and deserves a look.
    encoding : str or None, default None
        Of a text file.
    delimiter : str or None, default None
        Of a text file.
    decimal : str, default "."
        Of a text file.
    sheet : str or None, default None
        Of an Excel workbook.
    skipped : int, default 0
        Lines of a text file before the one with the names.
    thousands : tuple of str, default ()
        Columns of a text file in which the sign that is not the decimal one groups digits: beside decimal commas, 1.003
        is a thousand and three.
    verbatim : tuple of str, default ()
        Columns of a text file in which decimal signs stay as they are, such as identifiers to be copied.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dcsurv.cohort import inspect_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "patients.csv")
    ...     _ = path.write_bytes("größe;age\n1,75;61\n".encode("cp1252"))
    ...     form = inspect_table(path)
    >>> form.describe(), form.columns
    ('CSV, semicolons, decimal comma, cp1252', ('größe', 'age'))
    """

    file: TableFile
    kind: Kind
    columns: tuple[str, ...]
    repeated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    encoding: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    sheet: str | None = None
    skipped: int = 0
    thousands: tuple[str, ...] = ()
    verbatim: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.file.path

    def describe(self) -> str:
        """Return the format in a few words, such as ``CSV, semicolon, decimal comma, utf-8``."""
        if self.kind == "parquet":
            return "Parquet"
        if self.kind == "excel":
            return f"Excel, sheet {self.sheet!r}"
        word = DELIMITERS.get(self.delimiter or "", repr(self.delimiter))
        return f"CSV, {word}s, decimal {'comma' if self.decimal == ',' else 'point'}, {self.encoding}"


def clean_names(raw: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return names that are trimmed, composed (NFC), filled in and unique; those that were repeated; notes."""
    trimmed = [clean_name(name) for name in raw]
    counts = Counter(name for name in trimmed if name)
    repeated = tuple(name for name, count in counts.items() if count > 1)
    names: list[str] = []
    taken: set[str] = set()
    for position, name in enumerate(trimmed, start=1):
        proposed = name or f"{UNNAMED} {position}"
        number = 1
        while proposed in taken or (number > 1 and proposed in counts):
            number += 1
            proposed = f"{name or f'{UNNAMED} {position}'} ({number})"
        names.append(proposed)
        taken.add(proposed)
    notes = []
    if repeated:
        notes.append(f"Columns named more than once were numbered: {listed([f'{name} (2)' for name in repeated])}.")
    return tuple(names), repeated, tuple(notes)


def clean_name(name: str) -> str:
    """Return a column name trimmed, on one line, with its accents composed."""
    return " ".join(unicodedata.normalize("NFC", str(name)).replace("\ufeff", "").split())
