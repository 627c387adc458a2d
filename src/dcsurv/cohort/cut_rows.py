"""Lines of a text file that end too early, as after an interrupted copy: the cells that they lack read as missing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import cast

import pandas as pd

from dcsurv.cohort.formats import TableFormat


class CutRows:
    r"""Finds the rows of a file whose lines have fewer fields than there are names.

    A file is only looked through for them once a row lacks its last cell.

    Parameters
    ----------
    form : TableFormat
        How the file is read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from dcsurv.cohort import inspect_table
    >>> from dcsurv.cohort.cut_rows import CutRows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "patients.csv")
    ...     _ = path.write_text("age,sex,stage\n61,f,\n70,m")
    ...     print(CutRows(inspect_table(path)).notes(pd.DataFrame({"stage": [None, None]}), 0))
    {1: 'the row is cut: 2 of 3 fields'}
    """

    def __init__(self, form: TableFormat) -> None:
        self._form = form
        self._fields: dict[int, int] | None = None

    def notes(self, chunk: pd.DataFrame, first: int) -> dict[int, str]:
        """Return what to say of rows that are cut, by their place in a chunk.

        Parameters
        ----------
        chunk : DataFrame
            Rows of the file, with its last column.
        first : int
            Number of the first of them in the file, counted from 0.
        """
        last = self._form.columns[-1]
        if self._form.kind != "csv" or last not in chunk.columns:
            return {}
        without = chunk[last].isna().to_numpy().nonzero()[0].tolist()
        if not without:
            return {}
        if self._fields is None:
            self._fields = dict(_short_records(self._form))
        names = len(self._form.columns)
        found = ((place, self._fields.get(first + place)) for place in without)
        return {place: f"the row is cut: {fields} of {names} fields" for place, fields in found if fields is not None}


def _short_records(form: TableFormat) -> Iterator[tuple[int, int]]:
    """Yield the numbers of rows with too few fields, and how many they have."""
    names, row = len(form.columns), -1
    with (
        form.file.open() as stream,
        io.TextIOWrapper(cast(io.BufferedReader, stream), encoding=form.encoding, errors="replace", newline="") as text,
    ):
        for _ in range(form.skipped):
            text.readline()
        try:
            for record in csv.reader(text, delimiter=form.delimiter or ","):
                if len(record) > 1 or (record and record[0].strip()):  # a blank line is no row
                    if row >= 0 and len(record) < names:
                        yield row, len(record)
                    row += 1
        except csv.Error:
            return  # such as a cell of a million characters: the rest is not looked through
