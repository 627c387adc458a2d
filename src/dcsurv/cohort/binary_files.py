"""Tables in Parquet files and Excel workbooks, whose cells have types of their own."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from dcsurv.cohort.errors import CohortError, listed
from dcsurv.cohort.formats import MISSING, TableFormat, clean_names


def inspect_parquet(path: Path) -> TableFormat:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.ParquetFile(path).schema_arrow.names
    except (pa.ArrowInvalid, OSError) as error:
        raise CohortError(f"{path.name} cannot be read as Parquet ({error}). Write it again.") from None
    columns, repeated, notes = clean_names(names)
    return TableFormat(path, "parquet", columns, repeated, notes)


def parquet_chunks(form: TableFormat, wanted: list[str], size: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    positions = [form.columns.index(name) for name in wanted]
    try:
        for batch in pq.ParquetFile(form.path).iter_batches(batch_size=size):
            kept = pa.table([batch.column(k) for k in positions], names=wanted)
            # As objects, because whole numbers beside a gap would become floats, and long identifiers others.
            yield _tidy_objects(kept.to_pandas(ignore_metadata=True, integer_object_nulls=True))
    except (pa.ArrowException, OSError) as error:
        raise CohortError(f"{form.path.name} is damaged ({error}). Write it again.") from None


def inspect_excel(path: Path, sheet: str | None) -> TableFormat:
    workbook = _workbook(path)
    names = workbook.sheetnames
    if sheet is not None and sheet not in names:
        raise CohortError(f"--sheet is {sheet!r}, but {path.name} has {listed(names)}.")
    notes = []
    if sheet is None and len(names) > 1:
        notes.append(f"The workbook has {len(names)} sheets; {names[0]!r} was read. Choose another with --sheet.")
    chosen = sheet or names[0]
    first = next((row for row in _excel_rows(workbook, chosen) if any(cell is not None for cell in row)), None)
    workbook.close()
    if first is None:
        raise CohortError(f"the sheet {chosen!r} of {path.name} is empty. Choose another with --sheet.")
    while first and first[-1] is None:
        first = first[:-1]
    columns, repeated, renamed = clean_names(["" if cell is None else str(cell) for cell in first])
    return TableFormat(path, "excel", columns, repeated, (*notes, *renamed), sheet=chosen)


def _workbook(path: Path) -> Any:
    from zipfile import BadZipFile

    import openpyxl
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        # Opened as a stream, because openpyxl goes by the file's name otherwise.
        return openpyxl.load_workbook(io.BytesIO(path.read_bytes()), read_only=True, data_only=True)
    except (BadZipFile, InvalidFileException, KeyError, OSError, ValueError) as error:
        raise CohortError(
            f"{path.name} cannot be read as an Excel workbook ({error}). Save it again as .xlsx."
        ) from None


def _excel_rows(workbook: Any, sheet: str) -> Iterator[tuple[Any, ...]]:
    worksheet = workbook[sheet]
    worksheet.reset_dimensions()  # what some programs write there is wrong
    yield from worksheet.iter_rows(values_only=True)


def excel_chunks(form: TableFormat, wanted: list[str], size: int) -> Iterator[pd.DataFrame]:
    workbook = _workbook(form.path)
    positions = [form.columns.index(name) for name in wanted]
    rows: list[list[Any]] = []
    header_seen = False
    for cells in _excel_rows(workbook, form.sheet or ""):
        if not any(cell is not None for cell in cells):
            continue
        if not header_seen:
            header_seen = True
            continue
        rows.append([cells[k] if k < len(cells) else None for k in positions])
        if len(rows) == size:
            yield _tidy_objects(pd.DataFrame(rows, columns=wanted, dtype=object))
            rows = []
    workbook.close()
    yield _tidy_objects(pd.DataFrame(rows, columns=wanted, dtype=object))


def _tidy_objects(chunk: pd.DataFrame) -> pd.DataFrame:
    """Trim text, and take the same cells for missing as in a text file; other types stay what they are."""
    for name in chunk.columns:
        column = chunk[name]
        if isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(column.dtype):
            column = column.astype(object)
        if column.dtype == object:
            is_text = column.map(lambda cell: isinstance(cell, str))
            text = column.where(is_text).str.strip() if is_text.any() else column
            column = column.where(~is_text, text)
            chunk[name] = column.where(~column.isin(MISSING) & column.notna())
    return chunk
