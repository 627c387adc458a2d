"""Reading a table of patients from CSV, Parquet or Excel, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dcsurv.cohort.binary_files import excel_chunks, inspect_excel, inspect_parquet, parquet_chunks
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.formats import TableFormat
from dcsurv.cohort.text_files import csv_chunks, first_bytes, inspect_csv

# Chunks hold about this many cells, so that a chunk of text takes at most some hundred megabytes.
_CHUNK_CELLS, _CHUNK_ROWS = 1_000_000, 20_000


@dataclass(frozen=True)
class Table:
    """A table and how it was read."""

    frame: pd.DataFrame
    format: TableFormat
    notes: list[str] = field(default_factory=list)


def read_table(path: str | Path, **options: Any) -> Table:
    """Read a whole table.

    Parameters
    ----------
    path
        ``.csv``, ``.tsv``, ``.txt`` (also with ``.gz``), ``.parquet`` or ``.xlsx``.
    **options
        ``delimiter``, ``decimal``, ``encoding`` (text files), ``sheet`` (Excel); what is not given is guessed.
    """
    form = inspect_table(path, **options)
    chunks = list(read_chunks(form))
    if not chunks:
        raise CohortError(f"{form.path.name} has column names but no rows. At least two patients are needed.")
    return Table(pd.concat(chunks, ignore_index=True), form, list(form.notes))


def inspect_table(
    path: str | Path,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> TableFormat:
    """Find out how a file is to be read, without reading all of it; see :func:`read_table`."""
    path = Path(path)
    if path.is_dir():
        raise CohortError(f"{path} is a folder. Name the file with the table of patients.")
    if not path.is_file():
        raise CohortError(f"there is no file {path}. Check the name and the folder that you are in.")
    if path.stat().st_size == 0:
        raise CohortError(f"{path.name} is empty (0 bytes). Export the table again.")
    suffix = [part.lower() for part in path.suffixes]
    start = first_bytes(path)
    if start[:4] == b"PAR1" or suffix[-1:] in ([".parquet"], [".pq"]):
        return inspect_parquet(path)
    if start[:4] == b"PK\x03\x04":
        return inspect_excel(path, sheet)
    if start == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" or suffix[-1:] == [".xls"]:
        raise CohortError(f"{path.name} is a workbook of an old Excel. Save it as .xlsx or as CSV and use that.")
    return inspect_csv(path, delimiter, decimal, encoding)


def read_chunks(
    form: TableFormat, *, columns: Sequence[str] | None = None, rows: int | None = None
) -> Iterator[pd.DataFrame]:
    """Yield the table in chunks of rows, all columns or only some, in the order of the file."""
    wanted = [name for name in form.columns if columns is None or name in set(columns)]
    size = rows or max(100, min(_CHUNK_ROWS, _CHUNK_CELLS // max(1, len(wanted))))
    readers = {"csv": csv_chunks, "parquet": parquet_chunks, "excel": excel_chunks}
    for chunk in readers[form.kind](form, wanted, size):
        if len(chunk):
            yield chunk
