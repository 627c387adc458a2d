"""Tables in Parquet files and Excel workbooks, whose cells have types of their own."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pandas as pd

from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.files import TableFile
from dcsurv.cohort.formats import MISSING, TableFormat, clean_names
from dcsurv.messages import Message, listed, needs_extra


def inspect_parquet(file: TableFile) -> TableFormat:
    with needs_extra("A Parquet file", "parquet"):
        import pyarrow as pa

    try:
        names = parquet_file(file).schema_arrow.names
    except (pa.ArrowInvalid, OSError) as error:
        raise CohortError(f"{file.path.name} cannot be read as Parquet ({error}).", remedy="Write it again.") from None
    columns, repeated, notes = clean_names(names)
    return TableFormat(file, "parquet", columns, repeated, notes)


def parquet_file(file: TableFile) -> Any:
    """Open a Parquet file; what is not in memory is read piece by piece."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(file.path if file.content is None else pa.BufferReader(file.content))


def parquet_chunks(form: TableFormat, wanted: list[str], size: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa

    positions = [form.columns.index(name) for name in wanted]
    try:
        for batch in parquet_file(form.file).iter_batches(batch_size=size):
            kept = pa.table([batch.column(k) for k in positions], names=wanted)
            # As objects, because whole numbers beside a gap would become floats, and long identifiers others.
            yield tidy_objects(kept.to_pandas(ignore_metadata=True, integer_object_nulls=True))
    except (pa.ArrowException, OSError) as error:
        raise CohortError(f"{form.path.name} is damaged ({error}).", remedy="Write it again.") from None


def inspect_excel(file: TableFile, sheet: str | None) -> TableFormat:
    if file.content is None:
        file = TableFile.read(file.path)  # openpyxl needs all of it anyway
    workbook, path = _workbook(file), file.path
    names = workbook.sheetnames
    if sheet is not None and sheet not in names:
        raise CohortError(f"there is no sheet {sheet!r} in {path.name}; it has {listed(names)}.", parameter="sheet")
    notes: list[str] = []
    if sheet is None and len(names) > 1:
        notes.append(
            Message(
                "The workbook has {count} sheets; {first!r} was read. Choose another with {sheet}.",
                count=len(names),
                first=names[0],
            )
        )
    chosen = sheet or names[0]
    first = next((row for row in _excel_rows(workbook, chosen) if any(cell is not None for cell in row)), None)
    workbook.close()
    if first is None:
        raise CohortError(
            f"the sheet {chosen!r} of {path.name} is empty.",
            parameter="sheet",
            remedy=Message("Choose another with {sheet}."),
        )
    while first and first[-1] is None:
        first = first[:-1]
    columns, repeated, renamed = clean_names(["" if cell is None else str(cell) for cell in first])
    return TableFormat(file, "excel", columns, repeated, (*notes, *renamed), sheet=chosen)


def _workbook(file: TableFile) -> Any:
    from zipfile import BadZipFile

    import openpyxl
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        # As a stream, because openpyxl goes by the end of a name otherwise.
        return openpyxl.load_workbook(io.BytesIO(file.content or b""), read_only=True, data_only=True)
    except (BadZipFile, InvalidFileException, KeyError, OSError, ValueError) as error:
        raise CohortError(
            f"{file.path.name} cannot be read as an Excel workbook ({error}).", remedy="Save it again as .xlsx."
        ) from None


def _excel_rows(workbook: Any, sheet: str) -> Iterator[tuple[Any, ...]]:
    worksheet = workbook[sheet]
    worksheet.reset_dimensions()  # what some programs write there is wrong
    yield from worksheet.iter_rows(values_only=True)


def excel_chunks(form: TableFormat, wanted: list[str], size: int) -> Iterator[pd.DataFrame]:
    workbook = _workbook(form.file)
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
            yield tidy_objects(pd.DataFrame(rows, columns=wanted, dtype=object))
            rows = []
    workbook.close()
    yield tidy_objects(pd.DataFrame(rows, columns=wanted, dtype=object))


def tidy_objects(chunk: pd.DataFrame) -> pd.DataFrame:
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
