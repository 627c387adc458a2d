"""Dates in a table: recognising them, and reading them without mistaking a day for a month."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd

from dcsurv.cohort.errors import CohortError
from dcsurv.messages import Message, Parameter

# The order in which day, month and year are written, with the formats of each.
_ORDERS = {
    "year first": ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"),
    "day first": ("%d.%m.%Y", "%d/%m/%Y", "%d-%m-%Y", "%d.%m.%y", "%d/%m/%y", "%d-%b-%Y", "%d %b %Y"),
    "month first": ("%m/%d/%Y", "%m-%d-%Y", "%m/%d/%y"),
}
_SAMPLE = 2000
_DAY_FIRST, _MONTH_FIRST = Parameter("date_format", "%d/%m/%Y"), Parameter("date_format", "%m/%d/%Y")


def holds_dates(column: pd.Series) -> bool:
    """Tell whether (nearly) all known values of a column are dates."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return True
    known = column.dropna()
    if len(known) == 0 or pd.api.types.is_numeric_dtype(column.dtype):
        return False
    some = known.iloc[:_SAMPLE]
    if all(isinstance(cell, datetime.date) for cell in some):
        return True
    text = some.astype(str)
    if text.str.fullmatch(r"[+-]?\d*\.?\d*").all():  # 20190301 may as well be a number
        return False
    return any(_share(text, form) >= 0.95 for forms in _ORDERS.values() for form in forms)


def read_dates(column: pd.Series, parameter: str, date_format: str | None = None) -> pd.Series:
    """Return a column as dates, missing ones as NaT.

    Parameters
    ----------
    column : Series
        Dates, or text that can be read as dates.
    parameter : str
        The parameter that named the column, for messages.
    date_format : str or None, default None
        Such as ``%d/%m/%Y``; needed where day and month cannot be told apart.
    """
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return column
    known = column.dropna()
    if len(known) and all(isinstance(cell, datetime.date) for cell in known):
        return pd.to_datetime(column)
    text = known.astype(str)
    fitting: dict[str, str] = {}
    for order, forms in _ORDERS.items():
        for form in forms if date_format is None else (date_format,):
            if _share(text.iloc[:_SAMPLE], form) == 1.0 and _share(text, form) == 1.0:
                fitting.setdefault(order, form)
    if not fitting:
        culprit = next((cell for cell in text if pd.isna(_parse(cell, date_format))), text.iloc[0] if len(text) else "")
        raise CohortError(
            Message(
                "{parameter} names the column {column!r}, in which {culprit!r} is not a date in {shown}.",
                parameter=Parameter(parameter),
                column=str(column.name),
                culprit=culprit,
                shown=date_format or "any usual format",
            ),
            parameter=parameter,
            remedy=Message("Repair it, or say how dates are written, such as {date_format}.", date_format=_DAY_FIRST),
        )
    if date_format is None and {"day first", "month first"} <= set(fitting):
        one, other = (pd.to_datetime(text, format=fitting[order]) for order in ("day first", "month first"))
        if not one.equals(other):
            raise CohortError(
                f"the dates in {str(column.name)!r}, such as {text.iloc[0]!r}, can be read with the day or with the "
                "month first.",
                parameter="date_format",
                remedy=Message(
                    "Say which: {day_first} or {month_first}.", day_first=_DAY_FIRST, month_first=_MONTH_FIRST
                ),
            )
    parsed = pd.to_datetime(text, format=next(iter(fitting.values())))
    return parsed.reindex(column.index)


def _share(text: pd.Series, form: str) -> float:
    return float(pd.to_datetime(text, format=form, errors="coerce").notna().mean())


def _parse(cell: str, form: str | None) -> Any:
    forms = [form] if form else [f for some in _ORDERS.values() for f in some]
    return next((d for d in (pd.to_datetime(cell, format=f, errors="coerce") for f in forms) if not pd.isna(d)), pd.NaT)
