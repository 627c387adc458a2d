"""Tables in text files: encoding, delimiter and decimal sign are guessed where nobody says them.

Cells stay text here (missing ones become NaN): what a column holds is decided once for the whole column in
:mod:`dcsurv.cohort.columns`, never anew in each chunk.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import IO, cast

import numpy as np
import pandas as pd

from dcsurv.cohort.cells import to_numbers
from dcsurv.cohort.columns import MANY_LEVELS
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.files import TableFile
from dcsurv.cohort.formats import DELIMITERS, MISSING, TableFormat, clean_names
from dcsurv.cohort.notation import DECIMAL_COMMA, DECIMAL_POINT, GROUPED, groups_by_comma
from dcsurv.messages import Message, Parameter, listed

_DELIMITER_WORDS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
_SAMPLE_BYTES, _SAMPLE_ROWS = 1 << 17, 200
# A sample has so many lines at least, however long they are: tens of thousands of names fill a megabyte. But lines that
# are longer than this are no table.
_SAMPLE_LINES, _MOST_SAMPLED = 6, 1 << 28
_LONGEST_NUMBER = 40  # letters of a number with its groups


def inspect_csv(file: TableFile, delimiter: str | None, decimal: str | None, encoding: str | None) -> TableFormat:
    path = file.path
    notes: list[str] = []
    if encoding is None:
        encoding = _guess_encoding(file)
        if encoding not in ("utf-8", "utf-8-sig", "utf-16"):
            notes.append(
                Message(
                    "The file is not UTF-8; it was read as {guess}. If letters look wrong, give {encoding}.",
                    guess=encoding,
                )
            )
    try:
        with file.open() as stream:
            sample = codecs.getincrementaldecoder(encoding)().decode(_first_lines(stream))
    except LookupError:
        raise CohortError(
            Message("{encoding} is {given!r}, which is unknown.", given=encoding),
            parameter="encoding",
            remedy="Try utf-8, cp1252 or latin-1.",
        ) from None
    except UnicodeError as error:
        raise CohortError(
            f"{path.name} cannot be read as {encoding} ({error}).",
            parameter="encoding",
            remedy=Message("Leave {encoding} out to guess."),
        ) from None
    if not sample.strip():
        raise CohortError(f"{path.name} holds nothing but blank lines.", remedy="Export the table again.")
    if delimiter is None:
        delimiter = _guess_delimiter(sample)
    else:
        delimiter = _DELIMITER_WORDS.get(delimiter.lower(), delimiter)
        if len(delimiter) != 1:
            raise CohortError(
                Message("{delimiter} is {given!r}, but one character (or 'tab') is expected.", given=delimiter),
                parameter="delimiter",
            )
    records, skipped = _records(sample, delimiter)
    header, body = records[0], records[1:]
    if len(header) == 1:
        _refuse_single_column(path, header[0], sample, delimiter)
    header = _fit_header(header, body)
    if decimal is None:
        decimal = _guess_decimal(delimiter, body)
    elif decimal not in (",", "."):
        raise CohortError(
            Message("{decimal} is {given!r}, but '.' or ',' is expected.", given=decimal), parameter="decimal"
        )
    elif decimal == delimiter:
        raise CohortError(
            Message("{decimal} and {delimiter} are both ','."),
            parameter="decimal",
            remedy="One of them must be another character.",
        )
    columns, repeated, renamed = clean_names(header)
    return TableFormat(
        file, "csv", columns, repeated, (*notes, *renamed), encoding=encoding, delimiter=delimiter, decimal=decimal,
        skipped=skipped,
    )  # fmt: skip


def _first_lines(stream: IO[bytes]) -> bytes:
    """Return the beginning of a text, long enough to hold some lines, or all of it."""
    found = stream.read(_SAMPLE_BYTES)
    while max(found.count(b"\n"), found.count(b"\r")) < _SAMPLE_LINES and len(found) < _MOST_SAMPLED:
        more = stream.read(len(found))
        if not more:
            break
        found += more
    return found


def _guess_encoding(file: TableFile) -> str:
    """Return utf-8 if all of the file is, else what Windows writes in western Europe."""
    with file.open() as stream:
        start = stream.read(4)
        if start.startswith(codecs.BOM_UTF8):
            return "utf-8-sig"
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if b"\x00" in start + stream.read(_SAMPLE_BYTES):
            raise CohortError(
                f"{file.path.name} is not a text file.",
                remedy="Tables are read from CSV, Parquet (.parquet) and Excel (.xlsx).",
            )
        stream.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while block := stream.read(1 << 22):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252" if _decodes(file, "cp1252") else "latin-1"
    return "utf-8"


def _decodes(file: TableFile, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    with file.open() as stream:
        try:
            while block := stream.read(1 << 22):
                decoder.decode(block)
        except UnicodeDecodeError:
            return False
    return True


def _records(sample: str, delimiter: str) -> tuple[list[list[str]], int]:
    """Return the first records of a text, and how many lines without a word come before them.

    The last record may be cut and is left out where there are others.
    """
    found: list[list[str]] = []
    skipped = 0
    longest = csv.field_size_limit(len(sample) + 1)  # a whole text may be one cell
    try:
        reader = csv.reader(io.StringIO(sample), delimiter=delimiter)
        for record in reader:
            if any(cell.strip() for cell in record):
                found.append(record)
            elif not found:
                skipped = reader.line_num
            if len(found) > _SAMPLE_ROWS:
                return found[:-1], skipped
    except csv.Error:
        pass  # pandas will say what is wrong, and where
    finally:
        csv.field_size_limit(longest)
    return found[:-1] if len(found) > 2 and len(sample) >= _SAMPLE_BYTES // 4 else found or [[""]], skipped


def _guess_delimiter(sample: str) -> str:
    """Choose the delimiter by which most lines have as many fields as the first one, and more than one."""
    best, best_score = ",", (0.0, 0)
    for candidate in DELIMITERS:
        widths = [len(record) for record in _records(sample, candidate)[0]]
        if widths[0] < 2:
            continue
        usual, _ = Counter(widths).most_common(1)[0]
        agree = sum(width == usual for width in widths) / len(widths)
        score = (round(agree, 2) if abs(usual - widths[0]) <= 1 else 0.0, widths[0])
        if score > best_score:
            best, best_score = candidate, score
    return best


def _guess_decimal(delimiter: str, body: list[list[str]]) -> str:
    if delimiter == ",":
        return "."
    columns = [[cell.strip() for cell in column] for column in zip_longest(*body, fillvalue="")]
    by_comma = [groups_by_comma(column) for column in columns]
    cells = [cell for column, grouped in zip(columns, by_comma, strict=True) if not grouped for cell in column]
    grouped = [cell for cell in cells if GROUPED[","].fullmatch(cell)]
    commas = sum(DECIMAL_COMMA.fullmatch(cell) is not None for cell in cells) + sum("," in cell for cell in grouped)
    points = sum(DECIMAL_POINT.fullmatch(cell) is not None for cell in cells)
    if commas:  # then a point before three digits is no sign of decimal points
        points -= sum(DECIMAL_POINT.fullmatch(cell) is not None for cell in grouped)
    # Where the sample does not tell, a semicolon does: programs write it because the comma is taken.
    undecided = commas == points == 0 and not any(by_comma)
    return "," if commas > points or (undecided and delimiter == ";") else "."


def _refuse_single_column(path: Path, header: str, sample: str, delimiter: str) -> None:
    other = [name for sign, name in DELIMITERS.items() if sign != delimiter and sign in header]
    better = _guess_delimiter(sample)
    remedy = (
        Message(
            "It looks separated by {name}s: leave {delimiter} out, or give {right}.",
            name=DELIMITERS[better],
            right=Parameter("delimiter", {"\t": "tab"}.get(better, better)),
        )
        if other and better != delimiter
        else Message(
            "Say which character separates the columns, such as {delimiter}.",
            delimiter=Parameter("delimiter", "space"),
        )
    )
    raise CohortError(
        f"{path.name} seems to have one column only: {header[:60]!r}.", parameter="delimiter", remedy=remedy
    )


def _fit_header(header: list[str], body: list[list[str]]) -> list[str]:
    """Give a name to the one field more that lines have where row names or a last delimiter were written."""
    if body and all(len(record) == len(header) + 1 for record in body):
        if all(not record[-1].strip() for record in body):
            return [*header, ""]
        if len({record[0] for record in body}) == len(body):  # else they are no names, and nobody knows whose cells
            return ["", *header]
    return header


def with_thousands(form: TableFormat, chunks: Iterable[pd.DataFrame]) -> TableFormat:
    """Find the columns of a file in which points group digits, beside decimal commas, or commas do, and say so.

    Parameters
    ----------
    form : TableFormat
        How the file is read.
    chunks : iterable of DataFrame
        All of its cells, as they are written.
    """
    sign, other = (".", "comma") if form.decimal == "," else (",", "point")
    name_of_sign = "points" if sign == "." else "commas"
    grouped, otherwise = dict[str, str](), set[str]()
    for chunk in chunks:
        for name in chunk.columns:
            cells = chunk[name].dropna().str.strip()
            cells = cells[cells.str.contains(sign, regex=False) & ~cells.isin(MISSING)]
            fits = cells.str.fullmatch(GROUPED[form.decimal])
            if fits.any():
                grouped.setdefault(str(name), str(cells[fits].iloc[0]))
            if not fits.all():
                otherwise.add(str(name))
    notes = list(form.notes)
    thousands = tuple(name for name in grouped if name not in otherwise)
    if thousands:
        shown = listed([f"{name} ({grouped[name]})" for name in thousands], 4)
        notes.append(
            f"Decimals are written with a {other}, so {name_of_sign} were read as grouping thousands in {shown}. If "
            f"they are decimal {name_of_sign}, write the file with one decimal sign only."
        )
    unclear = [name for name in grouped if name in otherwise]
    if unclear:
        shown = listed([f"{name} ({grouped[name]})" for name in unclear], 4)
        left = ", and where the cell is a number then, read as decimal points" if sign == "." else ""
        notes.append(
            f"Decimals are written with a {other}, but there are {name_of_sign} of more than one kind in {shown}; they "
            f"were left as they are{left}. Check these columns."
        )
    return replace(form, notes=tuple(notes), thousands=thousands)


def has_grouped_digits(form: TableFormat) -> bool:
    """Tell whether there is a sign, other than that of decimals, before three digits anywhere."""
    grouped = r"[1-9]\d{0,2}\.\d{3}(?!\d)" if form.decimal == "," else r"[1-9]\d{0,2},\d{3}(?!\d)"
    if form.delimiter == ",":  # only in quotes is a comma part of a cell
        grouped = r'" *[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)? *"'
    tail = ""
    with (
        form.file.open() as stream,
        io.TextIOWrapper(cast(io.BufferedReader, stream), encoding=form.encoding, errors="replace") as text,
    ):
        while block := text.read(1 << 20):
            if re.search(grouped, tail + block):
                return True
            tail = block[-_LONGEST_NUMBER:]
    return False


def csv_chunks(
    form: TableFormat, wanted: list[str], size: int, measured: Collection[str] = ()
) -> Iterator[pd.DataFrame]:
    measured = set(measured).difference(form.thousands) if form.decimal == "." else ()
    for chunk in raw_chunks(form, wanted, size, measured):
        yield tidy_text(chunk, form, measured)


def raw_chunks(
    form: TableFormat, wanted: list[str], size: int, measured: Collection[str] = ()
) -> Iterator[pd.DataFrame]:
    """Yield the cells as they are written; those of columns of measurements as numbers, where they are."""
    if not wanted:
        return
    try:
        with warnings.catch_warnings(), form.file.open() as stream:
            warnings.simplefilter("error", pd.errors.ParserWarning)
            reader = pd.read_csv(
                stream,
                sep=form.delimiter,
                encoding=form.encoding,
                header=0,
                skiprows=form.skipped,
                names=list(form.columns),
                index_col=False,  # with usecols, pandas would cut lines that are too long without a word
                dtype={name: str for name in form.columns if name not in measured},
                float_precision="high",  # the same numbers as pandas makes of text
                low_memory=False,  # a column has one type in a chunk
                keep_default_na=False,
                na_values=list(MISSING),
                skipinitialspace=True,
                chunksize=size,
            )
            for chunk in reader:
                yield chunk[wanted].copy(deep=False)
    except pd.errors.EmptyDataError:
        return
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise _explained(form, str(error)) from None
    except UnicodeError as error:
        raise CohortError(
            f"{form.path.name} cannot be read as {form.encoding}: {error}.",
            parameter="encoding",
            remedy=Message("Give {encoding}."),
        ) from None


def tidy_text(chunk: pd.DataFrame, form: TableFormat, measured: Collection[str] = ()) -> pd.DataFrame:
    """Trim cells, and write decimal commas as points; columns of measurements are numbers already."""
    out: dict[str, pd.Series] = {}
    for name in chunk.columns:
        if name in measured:
            out[name] = _measured(chunk[name])
            continue
        column = chunk[name].str.strip()
        if name in form.thousands and name not in form.verbatim:
            with_groups = column.str.fullmatch(GROUPED[form.decimal], na=False)
            sign = "." if form.decimal == "," else ","
            column = column.where(~with_groups, column.str.replace(sign, "", regex=False))
        if form.decimal == "," and name not in form.verbatim:
            with_comma = column.str.fullmatch(DECIMAL_COMMA, na=False)
            column = column.where(~with_comma, column.str.replace(",", ".", regex=False))
        out[name] = column.where(~column.isin(MISSING))
    return pd.DataFrame(out, index=chunk.index, copy=False)


def measurements(first: pd.DataFrame) -> list[str]:
    """Return the columns of a chunk of text in which all cells are numbers, more different ones than levels may be.

    What such a column is does not depend on how its numbers are written, and as text they take ten times the memory.
    """
    return [
        str(name)
        for name in first.columns
        if first[name].nunique() > MANY_LEVELS and not (to_numbers(first[name]).isna() & first[name].notna()).any()
    ]


def _measured(column: pd.Series) -> pd.Series:
    """Return numbers; words among them stay words, also true and false."""
    if column.dtype == np.dtype(bool):
        return column.astype(str).astype(object)
    if column.dtype != np.dtype(object) and not np.isinf(column.to_numpy()).any():
        return to_numbers(column)
    text = column.astype(str).str.strip().where(column.notna())
    numbers, text = to_numbers(text), text.where(~text.isin(MISSING))
    words = numbers.isna() & text.notna()
    return numbers.astype(object).where(~words, text) if words.any() else numbers


def _explained(form: TableFormat, error: str) -> CohortError:
    """Return what pandas says about a line, which it says in words only, as an error of ours."""
    if "inside string" in error:
        return CohortError(
            f"{form.path.name} has a quotation mark that is never closed ({error.strip()}).", remedy="Repair that line."
        )
    place = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", error)
    return CohortError(
        f"line {place[2]} of {form.path.name} has {place[3]} fields, but the first line names {place[1]} columns "
        f"({form.describe()})."
        if place
        else f"{form.path.name} cannot be read as a table ({form.describe()}): some lines have more fields than there "
        "are column names.",
        parameter="delimiter",
        remedy=Message("A delimiter inside a value needs quotes; or give another {delimiter}."),
    )
