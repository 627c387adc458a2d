"""Predictions as a file, all or nothing: CSV, Parquet or Excel."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from dcsurv._compile import pays
from dcsurv.cohort.binary_files import cell_fields, parquet_file
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.formats import TableFormat
from dcsurv.cohort.predictions import Predictor
from dcsurv.cohort.reading import read_chunks
from dcsurv.messages import needs_extra
from dcsurv.plain import safe_cell
from dcsurv.target import FloatArray
from dcsurv.writing import written_atomically

# Up to so many numbers, pandas has written them before compiled code is ready; larger ones it writes anyway.
_FEW, _BILLION = 100_000, 1e9
# Lines of a sheet, of which one has the names.
_EXCEL_ROWS = 1_048_576


def write_predictions(
    predictor: Predictor, form: TableFormat, path: Path, *, strict: bool = False, may_be_empty: bool = False
) -> Iterator[int]:
    """Write the predictions of a file to CSV, Parquet or Excel, all or nothing.

    Parameters
    ----------
    predictor : Predictor
        The model and what is predicted.
    form : TableFormat
        How the file with the patients is read, from :func:`inspect_table`.
    path : Path
        The file to write, ``.csv``, ``.parquet`` or ``.xlsx``.
    strict : bool, default False
        Whether rows that are not like those of training are refused before anything is predicted.
    may_be_empty : bool, default False
        Whether a file without patients becomes one without predictions; otherwise it is refused.

    Yields
    ------
    int
        The number of rows so far; the file is there when there are no more.
    """
    writer = {".parquet": _parquet_writer, ".xlsx": _excel_writer}.get(path.suffix.lower(), _csv_writer)
    from dcsurv.training import one_thread

    if strict:
        predictor.refuse_unlike(form)
    # Threads have chunks of their own, so that none needs help with its products.
    with one_thread(), written_atomically(path) as stream, writer(stream, predictor, form) as write:
        for predicted in predictor.chunks(form):
            write(predicted)
            yield predictor.rows
        if predictor.rows == 0 and not may_be_empty:
            raise _no_rows(form)


def csv_parts(predictor: Predictor, form: TableFormat) -> Iterator[bytes]:
    """Yield the predictions of a file as the bytes of a CSV file, in parts.

    Parameters
    ----------
    predictor : Predictor
        The model and what is predicted.
    form : TableFormat
        How the file with the patients is read, from :func:`inspect_table`.

    Yields
    ------
    bytes
        What :func:`write_predictions` would write next; the names of the columns come with the first patients.
    """
    stream = io.BytesIO()
    with _csv_writer(stream, predictor, form) as write:
        for predicted in predictor.chunks(form):
            write(predicted)
            yield stream.getvalue()
            stream.seek(0)
            stream.truncate()
    if predictor.rows == 0:
        raise _no_rows(form)


def _no_rows(form: TableFormat) -> CohortError:
    return CohortError(
        f"{form.path.name} has column names but no rows.", remedy="Name a file with patients to predict."
    )


@contextmanager
def _csv_writer(stream: BinaryIO, predictor: Predictor, form: TableFormat) -> Iterator[Callable[[pd.DataFrame], None]]:
    header = True

    def write(predicted: pd.DataFrame) -> None:
        nonlocal header
        for name in predictor.keep:  # dates are written alike in every chunk
            text = predicted[name].map(str, na_action="ignore")
            predicted[name] = text if predictor.formulas else text.map(safe_cell, na_action="ignore")
            predictor.escaped += int((predicted[name] != text)[text.notna()].sum())
        numbers = predicted[predictor.numbers()].to_numpy().T
        plain = pays(numbers.size, _FEW) and not ((numbers < 0) | (numbers >= _BILLION)).any()
        names = [name if predictor.formulas else safe_cell(name) for name in predicted.columns]
        (predicted.head(0) if plain else predicted).to_csv(stream, index=False, header=names if header else False)
        header = False
        if plain:
            stream.write(_lines(predicted, predictor.keep, numbers))

    yield write


def _lines(predicted: pd.DataFrame, keep: Sequence[str], numbers: FloatArray) -> bytes:
    """Return the bytes that pandas would write for numbers of at most six decimals, below a billion, much quicker."""
    from dcsurv.cohort._kernels import WIDTH, write_numbers

    first = int(predicted["row"].iloc[0])
    values = np.ascontiguousarray(numbers)
    out = np.empty(len(predicted) * (WIDTH * (len(values) + 1) + 2), dtype=np.uint8)
    noted = predicted["notes"].to_numpy()
    quoted = {text: _quoted(text) for text in set(noted.tolist())}
    if not keep:
        written = out[: write_numbers(values, first, out)].tobytes()
        if list(quoted) == [""]:
            return written.replace(b"\n", b",\n")
        lines = written.decode("ascii").splitlines()
        columns = [lines]
    else:
        lines = out[: write_numbers(values, 0, out)].tobytes().decode("ascii").splitlines()
        kept = ([_quoted(cell) for cell in predicted[name]] for name in keep)
        columns = [[str(row) for row in predicted["row"]], *kept, lines]
    text = "\n".join(map(",".join, zip(*columns, map(quoted.__getitem__, noted), strict=True)))
    return f"{text}\n".encode()


def _quoted(cell: Any) -> str:
    """Return a cell as pandas writes it."""
    if not isinstance(cell, str):
        return ""  # missing: all others are text
    return '"' + cell.replace('"', '""') + '"' if any(sign in cell for sign in ',"\r\n') else cell


@contextmanager
def _parquet_writer(
    stream: BinaryIO, predictor: Predictor, form: TableFormat
) -> Iterator[Callable[[pd.DataFrame], None]]:
    with needs_extra("A Parquet file", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    kept = _kept_types(form, predictor.keep)
    texts = [name for name in predictor.keep if pa.types.is_string(kept[name])]
    numbers = {name: pa.float64() for name in predictor.numbers()}
    columns = {"row": pa.int64(), **{name: kept[name] for name in predictor.keep}, **numbers, "notes": pa.string()}
    schema = pa.schema(columns)

    def write(predicted: pd.DataFrame) -> None:
        for name in texts:
            predicted[name] = predicted[name].map(str, na_action="ignore").astype(object)
        file.write_table(pa.Table.from_pandas(predicted, schema=schema, preserve_index=False))

    with pq.ParquetWriter(stream, schema) as file:
        yield write


@contextmanager
def _excel_writer(
    stream: BinaryIO, predictor: Predictor, form: TableFormat
) -> Iterator[Callable[[pd.DataFrame], None]]:
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    workbook = Workbook(write_only=True)
    sheet = workbook.create_sheet("predictions")

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return None if pd.isna(value) else str(value) if getattr(value, "tzinfo", None) else value
        if not value:
            return None
        written = WriteOnlyCell(sheet, ILLEGAL_CHARACTERS_RE.sub("", value))
        written.data_type = "s"  # text, also where it looks like a formula
        return written

    def write(predicted: pd.DataFrame) -> None:
        if predictor.rows >= _EXCEL_ROWS:
            raise CohortError(
                f"{form.path.name} has more rows than a sheet of Excel can have ({_EXCEL_ROWS:,}).",
                parameter="path",
                remedy="Write the predictions to a file that ends in .csv or .parquet.",
            )
        for row in predicted.astype(object).itertuples(index=False):
            sheet.append([cell(value) for value in row])

    sheet.append([cell(name) for name in ["row", *predictor.keep, *predictor.names()[1:]]])
    yield write
    workbook.save(stream)


def _kept_types(form: TableFormat, keep: Sequence[str]) -> dict[str, Any]:
    """Return the types of columns that are copied: their own if each has one, else text, which can be anything."""
    import pyarrow as pa

    out = {name: pa.string() for name in keep}
    present = [name for name in keep if name in form.columns]
    if form.kind == "parquet":
        schema = parquet_file(form.file).schema_arrow
        position = dict(zip(form.columns, cell_fields(schema), strict=True))
        for name in present:
            own = schema.field(position[name]).type
            if pa.types.is_primitive(own):  # numbers, truth values, dates and times
                out[name] = own
    elif form.kind == "excel" and present:
        chunks = list(read_chunks(form, columns=present))
        for name in present:
            cells = [cell for chunk in chunks for cell in chunk[name].dropna()]
            if len({type(cell) for cell in cells}) == 1 and not isinstance(cells[0], str):
                out[name] = pa.array(cells).type
    return out
