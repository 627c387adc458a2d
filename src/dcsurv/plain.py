"""Values as plain data: of NumPy and pandas for JSON and as text, and out of JSON as they were declared."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

_Declared = TypeVar("_Declared")

# What a number read from a file may be, for declarations. Neither NaN nor infinity lies between two numbers.
_LARGEST = sys.float_info.max
Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=_LARGEST)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def plain(value: Any, *, finite: bool = False, unknown: Callable[[Any], Any] | None = None) -> Any:
    """Return data as JSON can hold them: dicts, lists, texts and Python's own numbers.

    Parameters
    ----------
    value : object
        Mappings, lists, tuples, arrays and scalars in any nesting.
    finite : bool, default False
        Turn NaN and infinity, for which JSON has no word, into None.
    unknown : callable or None, default None
        Called with anything else; by default that is refused.

    Returns
    -------
    object
        The same as plain data; keys of mappings are texts.

    Raises
    ------
    TypeError
        If something is no plain data.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.plain import plain
    >>> plain({1: np.array([0.5, np.nan]), "n": np.int64(3)}, finite=True)
    {'1': [0.5, None], 'n': 3}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): plain(one, finite=finite, unknown=unknown) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one, finite=finite, unknown=unknown) for one in value]
    if isinstance(value, float) and finite and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if unknown is not None:
        return unknown(value)
    raise TypeError(f"{type(value).__name__} {value!r} is not plain data")


# Spreadsheets take a text that begins with one of these for a formula, and run it.
_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(text: str) -> str:
    """Return a text for a cell of a CSV file, with an apostrophe before it where a spreadsheet would run a formula.

    Parameters
    ----------
    text : str
        Any text; numbers stay as they are.

    Returns
    -------
    str
        The text of the cell, not yet quoted.

    Examples
    --------
    >>> from dcsurv.plain import safe_cell
    >>> safe_cell("=HYPERLINK(0)"), safe_cell("-1.5"), safe_cell("A-7")
    ("'=HYPERLINK(0)", '-1.5', 'A-7')
    """
    if not text.startswith(_BEGINS_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def csv_bytes(table: Any) -> bytes:
    """Return a DataFrame as the bytes of a CSV file that no spreadsheet runs, without its index."""

    def safe(cell: Any) -> Any:
        return safe_cell(cell) if isinstance(cell, str) else cell

    texts = {name: table[name].map(safe) for name in table.columns if table[name].dtype == object}
    written: str = table.assign(**texts).rename(columns=safe).to_csv(index=False)
    return written.encode("utf-8", "backslashreplace")


def declared(value: Any, kind: type[_Declared]) -> _Declared:
    """Return plain data, such as a part of a file, as what they were declared to be.

    Parameters
    ----------
    value : object
        Plain data.
    kind : type
        What they have to be: a ``msgspec.Struct``, or anything else that msgspec knows. Entries that it does not name
        may be there.

    Returns
    -------
    object
        Of that type.

    Raises
    ------
    ValueError
        If they are something else; it says where and what was expected.

    Examples
    --------
    >>> from dcsurv.plain import Positive, declared
    >>> declared({"1y": 365}, dict[str, Positive])
    {'1y': 365.0}
    >>> declared({"1y": -5.0}, dict[str, Positive])
    Traceback (most recent call last):
        ...
    ValueError: [...]: expected float > 0.0
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, where = str(error).replace("`", "").partition(" - at $")
        raise ValueError(f"{where.lstrip('.') or 'the whole'}: {what[:1].lower()}{what[1:]}") from None


def level_text(value: Hashable) -> str:
    """Name a level of a category: 1, 1.0 and "1" are the same one."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
