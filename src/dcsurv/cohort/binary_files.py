"""Tables in Parquet files and Excel workbooks, whose cells have types of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pandas as pd

from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.files import TableFile
from dcsurv.cohort.formats import MISSING, TableFormat, clean_names
from dcsurv.messages import Message, listed, needs_extra

# More than this inside a workbook is no table that anybody typed: to unpack it would take minutes and all memory.
_MOST_UNPACKED = 1 << 30


def inspect_parquet(file: TableFile) -> TableFormat:
    with needs_extra("A Parquet file", "parquet"):
        import pyarrow as pa

    try:
        schema = parquet_file(file).schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise CohortError(f"{file.path.name} cannot be read as Parquet ({error}).", remedy="Write it again.") from None
    used = cell_fields(schema)
    columns, repeated, notes = clean_names([schema.names[k] for k in used])
    others = [schema.names[k] for k in range(len(schema.names)) if k not in set(used)]
    if others and not used:
        raise CohortError(
            f"all columns of {file.path.name} hold lists, records or bytes: {listed(others)}.",
            remedy="Write a table with one number or word per cell.",
        )
    if others:
        notes += (
            f"Columns of lists, records or bytes were left out: {listed(others)}. To use what is in them, write "
            "columns with one number or word per cell.",
        )
    return TableFormat(file, "parquet", columns, repeated, notes)


def cell_fields(schema: Any) -> list[int]:
    """Return the positions of the columns of a Parquet file that have one number, word or date per cell."""
    import pyarrow as pa

    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    no_cell = pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary
    return [k for k, kind in enumerate(kinds) if not pa.types.is_nested(kind) and not any(one(kind) for one in no_cell)]


def parquet_file(file: TableFile) -> Any:
    """Open a Parquet file; what is not in memory is read piece by piece."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(file.place if file.content is None else pa.BufferReader(file.content))


def parquet_chunks(form: TableFormat, wanted: list[str], size: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa

    try:
        stored = parquet_file(form.file)
        position = dict(zip(form.columns, cell_fields(stored.schema_arrow), strict=True))
        for batch in stored.iter_batches(batch_size=size):
            kept = pa.table([batch.column(position[name]) for name in wanted], names=wanted)
            # As objects, because whole numbers beside a gap would become floats, and long identifiers others.
            yield tidy_objects(kept.to_pandas(ignore_metadata=True, integer_object_nulls=True))
    except (pa.ArrowException, OSError) as error:
        raise CohortError(f"{form.path.name} is damaged ({error}).", remedy="Write it again.") from None


def inspect_excel(file: TableFile, sheet: str | None) -> TableFormat:
    path = file.path
    with _workbook(file) as workbook:
        names = workbook.sheetnames
        if sheet is not None and sheet not in names:
            raise CohortError(f"there is no sheet {sheet!r} in {path.name}; it has {listed(names)}.", parameter="sheet")
        notes: list[str] = []
        if sheet is None and len(names) > 1:
            notes.append(
                Message(
                    "The workbook has {count} sheets; {first!r} was read. Choose another with {sheet}: {others}.",
                    count=len(names),
                    first=names[0],
                    others=listed(names[1:], 20),
                )
            )
        chosen = sheet or names[0]
        first = next((row for row in _excel_rows(workbook, chosen) if any(cell is not None for cell in row)), None)
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


@contextmanager
def _workbook(file: TableFile) -> Iterator[Any]:
    """Open a workbook; whatever is wrong with it, also further on, is said in words."""
    import openpyxl

    # As a stream, because openpyxl goes by the end of a name otherwise.
    with file.open() as stream:
        try:
            _refuse_no_workbook(stream, file.path.name)
            workbook = openpyxl.load_workbook(stream, read_only=True, data_only=True)
            yield workbook
            workbook.close()
        except (CohortError, MemoryError):
            raise
        # A damaged workbook makes openpyxl, and what it stands on, fail in any way.
        except Exception as error:
            raise CohortError(
                f"{file.path.name} cannot be read as an Excel workbook ({type(error).__name__}: {error}).",
                remedy="Open it in Excel or LibreOffice and save it again as .xlsx, or as CSV.",
            ) from None


def _refuse_no_workbook(stream: IO[bytes], name: str) -> None:
    """Look into the directory of an archive before anything of it is unpacked."""
    from zipfile import ZipFile

    with ZipFile(stream) as archive:
        inside = archive.infolist()
    unpacked, names = sum(one.file_size for one in inside), {one.filename for one in inside}
    if not any(one.startswith("xl/") for one in names):
        what = "an OpenDocument file" if "mimetype" in names else "an archive (zip)"
        raise CohortError(
            f"{name} is {what}, not a workbook of Excel.", remedy="Save the table as .xlsx or as CSV, and use that."
        )
    if unpacked > _MOST_UNPACKED:
        raise CohortError(
            f"{name} would unpack to {unpacked / 1e9:.1f} GB, and workbooks are read up to "
            f"{_MOST_UNPACKED / 1e9:.1f} GB.",
            remedy="Save the sheet as CSV or Parquet, which are read piece by piece, or remove what is not the table.",
        )


def _excel_rows(workbook: Any, sheet: str) -> Iterator[tuple[Any, ...]]:
    worksheet = workbook[sheet]
    worksheet.reset_dimensions()  # what some programs write there is wrong
    yield from worksheet.iter_rows(values_only=True)


def excel_chunks(form: TableFormat, wanted: list[str], size: int) -> Iterator[pd.DataFrame]:
    position = {name: k for k, name in enumerate(form.columns)}
    positions = [position[name] for name in wanted]
    rows: list[list[Any]] = []
    header_seen = False
    with _workbook(form.file) as workbook:
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
    yield tidy_objects(pd.DataFrame(rows, columns=wanted, dtype=object))


def tidy_objects(chunk: pd.DataFrame) -> pd.DataFrame:
    """Trim text, and take the same cells for missing as in a text file; other types stay what they are."""
    for name in chunk.columns:
        column = chunk[name]
        if isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_string_dtype(column.dtype):
            column = column.astype(object)
        if column.dtype == object:
            _refuse_no_cells(column)
            is_text = column.map(lambda cell: isinstance(cell, str))
            text = column.where(is_text).str.strip() if is_text.any() else column
            column = column.where(~is_text, text)
            chunk[name] = column.where(~column.isin(MISSING) & column.notna())
    return chunk


def _refuse_no_cells(column: pd.Series) -> None:
    """Refuse lists, records and the like, which no table of patients can hold."""
    for row, cell in enumerate(column, start=1):
        if isinstance(cell, list | dict | set | bytes | np.ndarray):
            raise CohortError(
                f"the column {column.name!r} holds a {type(cell).__name__} in row {row}, and one number, word or date "
                "per cell is expected.",
                remedy="Take it out of the table, or make columns of it.",
            )
