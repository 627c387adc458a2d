"""Reading a table of patients from CSV, Parquet or Excel, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from dcsurv.cohort.binary_files import excel_chunks, inspect_excel, inspect_parquet, parquet_chunks
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.files import TableFile
from dcsurv.cohort.formats import TableFormat
from dcsurv.cohort.text_files import (
    csv_chunks,
    has_grouped_digits,
    inspect_csv,
    measurements,
    raw_chunks,
    with_thousands,
)

# Chunks hold about this many cells, so that a chunk of text takes at most some hundred megabytes.
_CHUNK_CELLS, _CHUNK_ROWS = 1_000_000, 20_000
# With more columns than this all that can be numbers are: as text they would take ten times the time and memory.
_WIDE = 1000
# What files of Office before 2007 begin with, and the envelopes of newer ones that are encrypted.
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@dataclass(frozen=True)
class Table:
    r"""A table and how it was read.

    Parameters
    ----------
    frame : DataFrame
        One row per patient. Cells of a text file are text still, missing ones NaN; where there are very many rows,
        columns of numbers with more different ones than a category can have are numbers, and of more than 1,000 columns
        all that hold numbers.
    format : TableFormat
        How the file was read.
    digest : str or None, default None
        SHA-256 of the bytes of the file, its fingerprint.
    notes : list of str, default []
        What was guessed or renamed and deserves a look.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dcsurv.cohort import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "patients.tsv")
    ...     _ = path.write_bytes(b"age\tsex\n61.5\tf\nNA\tm\n")
    ...     table = read_table(path)
    >>> table.frame["age"].tolist(), table.digest[:8]
    (['61.5', nan], '69346e77')
    """

    frame: pd.DataFrame
    format: TableFormat
    digest: str | None = None
    notes: list[str] = field(default_factory=list)


def read_table(path: str | Path, **options: Any) -> Table:
    """Read a whole table; a file that is not very large is opened, hashed, looked at and parsed once.

    Parameters
    ----------
    path : str or Path
        ``.csv``, ``.tsv``, ``.txt`` (also with ``.gz``), ``.parquet`` or ``.xlsx``; a named pipe; or ``-`` for what is
        piped into the program.
    **options : dict
        ``delimiter``, ``decimal``, ``encoding`` (text files), ``sheet`` (Excel); what is not given is guessed.

    Returns
    -------
    Table
        The cells, and how they were read.

    Raises
    ------
    CohortError
        If there is no such file, or it is no table.
    """
    file = TableFile.read(Path(path))
    form = _inspect(file, **options)
    if form.kind == "csv":
        if has_grouped_digits(form):
            form = with_thousands(form, raw_chunks(form, list(form.columns), _chunk_rows(form.columns)))
        frame = _joined(_csv_chunks(form))
    else:
        frame = _joined(read_chunks(form))
    if not len(frame):
        raise CohortError(f"{form.path.name} has column names but no rows.", remedy="Export it again, with patients.")
    form = replace(form, file=TableFile(file.path))  # without the bytes, which nobody needs any more
    return Table(frame, form, file.digest, list(form.notes))


def _csv_chunks(form: TableFormat) -> Iterator[pd.DataFrame]:
    """Yield the rows of a text file; if rows or columns are very many, with columns of measurements as numbers."""
    wanted, size = list(form.columns), _chunk_rows(form.columns)
    if len(wanted) > _WIDE:
        yield from (chunk for chunk in csv_chunks(form, wanted, size, wanted) if len(chunk))
        return
    first = next(csv_chunks(form, wanted, size), None)
    if first is None or not len(first):
        return
    if len(first) < size:
        yield first
        return
    yield from (chunk for chunk in csv_chunks(form, wanted, size, set(measurements(first))) if len(chunk))


def _joined(chunks: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return chunks of rows as one table, column by column, so that there are never two whole ones."""
    chunks = iter(chunks)
    first = next(chunks, None)
    if first is None:
        return pd.DataFrame()
    if first.shape[1] > _WIDE:  # where a column by itself costs more than its few rows
        return pd.concat([first, *chunks], ignore_index=True)
    chunks = chain([first], chunks)
    parts: dict[str, list[pd.Series]] = {}
    for chunk in chunks:
        for name, column in chunk.items():
            parts.setdefault(str(name), []).append(column.copy())
    # Taken out one after the other, which lets go of the parts.
    whole = {name: pd.concat(parts.pop(name), ignore_index=True) for name in list(parts)}
    return pd.DataFrame(whole, copy=False)


def inspect_table(
    path: str | Path | TableFile,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> TableFormat:
    """Find out how a file is to be read, without keeping it: for tables that are larger than memory.

    Parameters
    ----------
    path : str, Path or TableFile
        See :func:`read_table`.
    delimiter : str or None, default None
        What separates the columns of a text file: a character, or ``tab``, ``space``; guessed by default.
    decimal : str or None, default None
        Decimal sign of a text file, ``.`` or ``,``; guessed by default.
    encoding : str or None, default None
        Encoding of a text file, such as ``cp1252``; guessed by default.
    sheet : str or None, default None
        Sheet of an Excel workbook; by default the first.

    Returns
    -------
    TableFormat
        What :func:`read_chunks` needs.
    """
    file = path if isinstance(path, TableFile) else TableFile.find(Path(path))
    form = _inspect(file, delimiter=delimiter, decimal=decimal, encoding=encoding, sheet=sheet)
    if form.kind == "csv" and has_grouped_digits(form):
        # A point decides for a whole column, so all of the file is looked at.
        return with_thousands(form, raw_chunks(form, list(form.columns), _CHUNK_ROWS))
    return form


def _inspect(
    file: TableFile,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> TableFormat:
    suffix = file.path.suffix.lower()
    with file.open() as stream:
        start = stream.read(8)
    if start[:4] == b"PAR1" or suffix in (".parquet", ".pq"):
        return inspect_parquet(file)
    if start[:4] == b"PK\x03\x04":
        return inspect_excel(file, sheet)
    if start == _OLD_OFFICE and _is_locked(file):
        raise CohortError(
            f"{file.path.name} is protected by a password.", remedy="Save it without one, as .xlsx or as CSV."
        )
    if start == _OLD_OFFICE or suffix == ".xls":
        raise CohortError(
            f"{file.path.name} is a workbook of an old Excel.", remedy="Save it as .xlsx or as CSV and use that."
        )
    return inspect_csv(file, delimiter, decimal, encoding)


def _is_locked(file: TableFile) -> bool:
    """Tell whether a file of the old kind is the envelope of an encrypted workbook, which names its parts."""
    with file.open() as stream:
        return "EncryptedPackage".encode("utf-16-le") in stream.read(1 << 20)


def read_chunks(
    form: TableFormat, *, columns: Sequence[str] | None = None, rows: int | None = None, numbers: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
    """Yield a table in chunks of rows, in the order of the file.

    Parameters
    ----------
    form : TableFormat
        How the file is read, from :func:`inspect_table`.
    columns : sequence of str or None, default None
        Columns to read; by default all.
    rows : int or None, default None
        Rows of a chunk; by default, and at most, as many as make a chunk of moderate size.
    numbers : sequence of str, default ()
        Columns that should hold numbers. Those of a text file come as numbers then, which is much quicker; words among
        them stay words.

    Yields
    ------
    DataFrame
        The next rows.
    """
    asked = None if columns is None else set(columns)
    wanted = [name for name in form.columns if asked is None or name in asked]
    size = min(rows or _CHUNK_ROWS, _chunk_rows(wanted))
    if form.kind == "csv":
        chunks = csv_chunks(form, wanted, size, set(numbers).intersection(wanted))
    else:
        chunks = parquet_chunks(form, wanted, size) if form.kind == "parquet" else excel_chunks(form, wanted, size)
    for chunk in chunks:
        if len(chunk):
            yield chunk


def _chunk_rows(columns: Sequence[str]) -> int:
    return max(100, min(_CHUNK_ROWS, _CHUNK_CELLS // max(1, len(columns))))
