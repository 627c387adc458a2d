"""How numbers are written: which sign begins the decimals, and which one groups the thousands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dcsurv.messages import Message, Parameter

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+(?:[eE][+-]?\d+)?")
# By the decimal sign, numbers whose thousands are grouped by the other one. Beside decimal commas, 1.003 is a thousand
# and three; 0.003 cannot be.
GROUPED = {
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?"),
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"),
}
_WHOLE = re.compile(r"[+-]?\d+")
_LARGE = 1000


def groups_by_comma(cells: Sequence[str]) -> bool:
    """Tell whether commas in a column group thousands, as in 950 and 1,521: all decimals would have three digits.

    That takes a whole number below a thousand without a comma, and none above.
    """
    commas = [cell for cell in cells if "," in cell]
    whole = [int(cell) for cell in cells if _WHOLE.fullmatch(cell)]
    return bool(commas and whole) and all(map(GROUPED["."].fullmatch, commas)) and max(map(abs, whole)) < _LARGE


def remedy_for(examples: Sequence[str], *, from_text: bool) -> Message:
    """Say what to do about cells that are not numbers, judged by how they are written.

    Only for a text file can be told which sign begins the decimals; elsewhere such cells have to become numbers.
    """
    decimal = Parameter("decimal", ",")
    comma = next(filter(DECIMAL_COMMA.fullmatch, examples), "")
    if examples and all(map(GROUPED["."].fullmatch, examples)):
        first = examples[0]
        return Message(
            "The comma in {example} seems to group thousands: write {plain}; if it is a decimal comma, {otherwise}",
            example=repr(first),
            plain=first.replace(",", ""),
            otherwise=Message("give {decimal}", decimal=decimal) if from_text else f"{first.replace(',', '.')}.",
        )
    if comma and from_text:
        return Message("These are decimal commas, which are read with {decimal}", decimal=decimal)
    if comma:
        return Message(
            "These are texts with decimal commas: turn them into numbers, such as {point} for {comma!r}.",
            point=comma.replace(",", "."),
            comma=comma,
        )
    return Message("Write plain numbers, all in the same unit.")
