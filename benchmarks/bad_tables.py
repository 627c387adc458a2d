"""Bad and odd tables through `check`, `fit` and `predict`: none ends in a traceback, and none passes without a word.

Every table is made by code from one cohort of 150 patients and a seed. What is expected of it is written beside it:
that it works, that something is said about it, or that it is refused, with words that must be there.

    python benchmarks/bad_tables.py

Writes ``docs/results/bad_tables``: every table with what became of it, and the counts.
"""

from __future__ import annotations

import io
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from dcsurv.cli import app
from studies import RESULTS, markdown

OUT = RESULTS / "bad_tables"
OUTCOME = ("--time", "days", "--event", "died")
COX = ("--model", "coxph", "--evaluate", "none")
N = 150
# Either: it is a matter of taste whether such a file is read.
Expected = Literal["works", "noted", "refused", "either"]
ENDS = ("worked", "worked with notes", "refused with words", "UNEXPECTED")


@dataclass(frozen=True)
class BadTable:
    """A file, the options that it is read with, what is expected, and words that must then be there."""

    name: str
    content: bytes
    expected: Expected = "works"
    words: str = ""
    suffix: str = ".csv"
    options: tuple[str, ...] = OUTCOME

    def write(self, folder: Path) -> Path:
        """Write the file into a folder."""
        path = folder / f"table{self.suffix}"
        path.write_bytes(self.content)
        return path


@dataclass(frozen=True)
class Run:
    """What became of one command."""

    end: str
    text: str

    @property
    def refused(self) -> bool:
        return self.end == "refused with words"


def cohort() -> pd.DataFrame:
    """Return the cohort that all tables are made from."""
    rng = np.random.default_rng(16)
    age = rng.normal(60, 10, N).round(1)
    smoker = rng.choice(["yes", "no"], N)
    event = rng.exponential(900 * np.exp(-(age - 60) / 12) * np.where(smoker == "yes", 0.6, 1.3)) + 1
    lost = rng.exponential(1500, N) + 1
    return pd.DataFrame(
        {
            "age": age,
            "stage": rng.choice(["I", "II", "III"], N),
            "smoker": smoker,
            "days": np.minimum(event, lost).round(),
            "died": (event <= lost).astype(int),
        }
    )


def tables() -> list[BadTable]:
    """Return all tables, in the order of their families."""
    made: list[BadTable] = []
    for family in (
        _encodings,
        _text_files,
        _headers,
        _sizes,
        _outcomes,
        _cells,
        _codes,
        _words,
        _identifiers,
        _copies,
        _workbooks,
        _parquet,
    ):
        made += family(cohort(), np.random.default_rng(len(made)))
    return made


def _csv(frame: pd.DataFrame, **options: Any) -> bytes:
    return str(frame.to_csv(index=False, **options)).encode()


def _encodings(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    letters = frame.assign(ward=rng.choice(["Köln", "Zürich", "Liège"], N))
    text = _csv(letters).decode()
    for name in ("utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1", "mac-roman", "cp850"):
        yield BadTable(f"encoding {name}", text.encode(name))
    for name in ("utf-16-le", "utf-16-be", "utf-32", "cp500"):
        yield BadTable(f"encoding {name} without a mark", text.encode(name), "refused" if name == "cp500" else "either")
    yield BadTable("encoding told", text.encode("iso8859-15"), options=(*OUTCOME, "--encoding", "iso8859-15"))
    yield BadTable("encoding told wrongly", text.encode("cp1252"), "refused", options=(*OUTCOME, "--encoding", "utf-8"))
    yield BadTable("encoding of no name", text.encode(), "refused", options=(*OUTCOME, "--encoding", "nonsense"))
    yield BadTable("a byte that is no letter", text.encode().replace(b"K\xc3\xb6ln", b"K\xf6ln", 1))
    yield BadTable("two marks at the start", b"\xef\xbb\xbf\xef\xbb\xbf" + text.encode())
    yield BadTable("Cyrillic", _csv(letters.replace({"Köln": "Москва"})))
    yield BadTable("Chinese", _csv(letters.replace({"Köln": "北京"})))
    yield BadTable("accents apart", _csv(letters.replace({"Köln": "Ko\u0308ln"})))
    yield BadTable("right to left", _csv(letters.replace({"Köln": "תל אביב"})))
    yield BadTable("emoji", _csv(letters.replace({"Köln": "🏥"})))


def _text_files(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    plain = _csv(frame)
    lines = plain.decode().splitlines()
    for name, sign in {"semicolon": ";", "tab": "\t", "bar": "|"}.items():
        yield BadTable(f"delimiter {name}", _csv(frame, sep=sign))
    yield BadTable("delimiter space", _csv(frame, sep=" "), options=(*OUTCOME, "--delimiter", "space"))
    yield BadTable("delimiter tilde, told", _csv(frame, sep="~"), options=(*OUTCOME, "--delimiter", "~"))
    yield BadTable("delimiter told wrongly", plain, "refused", options=(*OUTCOME, "--delimiter", ";"))
    yield BadTable("delimiter of two signs", plain, "refused", options=(*OUTCOME, "--delimiter", "::"))
    yield BadTable("a line that names the delimiter", b"sep=;\n" + _csv(frame, sep=";"), "either")
    for name, end in {"Windows": "\r\n", "old Macintosh": "\r"}.items():
        yield BadTable(f"line ends of {name}", _csv(frame, lineterminator=end), "either" if end == "\r" else "works")
    yield BadTable("line ends mixed", "\r\n".join(lines[:50]).encode() + b"\n" + "\n".join(lines[50:]).encode())
    yield BadTable("no last line end", plain.rstrip())
    yield BadTable("blank lines at the end", plain + b"\n\n\n")
    yield BadTable("blank lines between", "\n\n".join(lines).encode())
    yield BadTable("lines of commas at the end", plain + b",,,,\n" * 5, "noted", "without a time or an event")
    yield BadTable("a title above the header", b"Registry of 2020\n" + plain, "refused")
    yield BadTable("a comment above the header", b"# exported 2020-01-01\n" + plain, "either")
    yield BadTable("a line of totals", plain + b"Total,,,,\n", "noted", "without a time or an event")
    yield BadTable("the header once more", "\n".join([*lines[:70], lines[0], *lines[70:]]).encode(), "refused", "died")
    yield BadTable(
        "a row too short", "\n".join([*lines[:70], "61.0,II", *lines[70:]]).encode(), "noted", "without a time"
    )
    yield BadTable("a row too long", "\n".join([*lines[:70], lines[70] + ",9,9", *lines[71:]]).encode(), "refused")
    yield BadTable(
        "every row too long", "\n".join([lines[0], *(line + ",x" for line in lines[1:])]).encode(), "refused"
    )
    yield BadTable("rows end in a comma", "\n".join(line + "," for line in lines).encode())
    yield BadTable("cut in the middle of a row", plain[: len(plain) * 2 // 3 - 4], "works")
    yield BadTable("cut in the middle of a quote", plain + b'61.0,"II', "refused", "quot")
    yield BadTable("all cells in quotes", _csv(frame, quoting=1))
    yield BadTable("line ends in quotes", _csv(frame.assign(note=np.where(frame["age"] > 60, "a\nb", "c"))))
    yield BadTable("quotes in quotes", _csv(frame.assign(note=np.where(frame["age"] > 60, 'so "called"', "c"))))
    yield BadTable("single quotes", plain.replace(b"yes", b"'yes'").replace(b"no\n", b"'no'\n"))
    yield BadTable("blanks around cells", plain.replace(b",", b" , "))
    yield BadTable("blanks that do not break", plain.replace(b"yes", "yes\u00a0".encode()))
    yield BadTable("decimal commas and semicolons", _csv(frame, sep=";", decimal=","))
    yield BadTable(
        "decimal commas in quotes", _csv(frame.assign(age=frame["age"].map(lambda a: f"{a}".replace(".", ","))))
    )
    yield BadTable("decimal sign told wrongly", plain, "refused", options=(*OUTCOME, "--decimal", ";"))
    yield BadTable("zero bytes", plain.replace(b"yes", b"y\x00es", 3), "refused")
    yield BadTable("only zero bytes", b"\x00" * 500, "refused")
    yield BadTable("control characters", plain.replace(b"III", b"I\x07II", 3))
    yield BadTable("random bytes", rng.bytes(2000), "refused")
    yield BadTable("an image", b"\x89PNG\r\n\x1a\n" + rng.bytes(500), "refused")
    yield BadTable("a page of HTML", b"<html><body><table><tr><td>age</td></tr></table></body></html>\n", "refused")
    yield BadTable("JSON", frame.to_json(orient="records").encode(), "refused")
    yield BadTable("packed, but cut", b"\x1f\x8b" + rng.bytes(200), "refused", suffix=".csv.gz")
    yield BadTable(
        "an old workbook", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + rng.bytes(600), "refused", "old Excel", ".xls"
    )


def _headers(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    plain = _csv(frame).decode()
    body = plain.split("\n", 1)[1]

    def named(*names: str) -> bytes:
        return (",".join(names) + "\n" + body).encode()

    yield BadTable("no header", body.encode(), "refused", "days")
    yield BadTable("the same name twice", named("age", "age", "smoker", "days", "died"), "noted", "more than once")
    yield BadTable(
        "the outcome's name twice", named("age", "days", "smoker", "days", "died"), "refused", "more than one"
    )
    yield BadTable("names without letters", named("", "", "smoker", "days", "died"))
    yield BadTable("names of blanks", named("  ", "stage", "smoker", "days", "died"))
    yield BadTable("blanks around names", named(" age ", " stage", "smoker ", " days", "died "))
    yield BadTable("names in capitals", named("AGE", "STAGE", "SMOKER", "DAYS", "DIED"), "refused", "Did you mean")
    yield BadTable("names that differ in case", named("age", "Age", "smoker", "days", "died"))
    yield BadTable("numbers as names", named("1", "2", "3", "days", "died"))
    yield BadTable("a comma in a name", named('"age, years"', "stage", "smoker", "days", "died"))
    yield BadTable("a line end in a name", named('"age\nyears"', "stage", "smoker", "days", "died"))
    yield BadTable("a quote in a name", named('"the ""age"""', "stage", "smoker", "days", "died"))
    yield BadTable("a name of 5,000 letters", named("a" * 5000, "stage", "smoker", "days", "died"))
    yield BadTable("control characters in a name", named("a\x07ge", "stage", "smoker", "days", "died"))
    yield BadTable("an escape sequence in a name", named("\x1b[31mage", "stage", "smoker", "days", "died"))
    yield BadTable("brackets in a name", named("[bold]age[/bold]", "stage", "smoker", "days", "died"))
    yield BadTable("a formula as a name", named("=1+1", "stage", "smoker", "days", "died"))
    yield BadTable("emoji as a name", named("👵", "stage", "smoker", "days", "died"))
    yield BadTable("zero width in a name", named("a\u200bge", "stage", "smoker", "days", "died"))
    yield BadTable("names like columns of ours", named("row", "median", "survival_5y", "days", "died"))
    yield BadTable("names like our own time", named("time", "event", "smoker", "days", "died"))
    yield BadTable(
        "no such time column", plain.encode(), "refused", "Did you mean", options=("--time", "day", "--event", "died")
    )
    yield BadTable("no such event column", plain.encode(), "refused", options=("--time", "days", "--event", "x"))
    yield BadTable("time and event the same", plain.encode(), "refused", options=("--time", "days", "--event", "days"))
    yield BadTable("time and event exchanged", plain.encode(), "refused", options=("--time", "died", "--event", "days"))
    yield BadTable("no such column to drop", plain.encode(), "refused", options=(*OUTCOME, "--drop", "nobody"))
    yield BadTable(
        "a column asked for twice",
        plain.encode(),
        "refused",
        options=(*OUTCOME, "--numeric", "age", "--categorical", "age"),
    )
    yield BadTable("words asked for as numbers", plain.encode(), "refused", options=(*OUTCOME, "--numeric", "stage"))
    yield BadTable(
        "all columns dropped", plain.encode(), "refused", "no column", options=(*OUTCOME, "--drop", "age,stage,smoker")
    )


def _sizes(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    yield BadTable("no bytes", b"", "refused", "empty")
    yield BadTable("a line end only", b"\n", "refused")
    yield BadTable("a header only", _csv(frame[:0]), "refused", "no rows")
    yield BadTable("one patient", _csv(frame[:1]), "refused", "1 patient")
    yield BadTable("two patients", _csv(frame[:2]))
    yield BadTable("five patients", _csv(frame[:5]))
    yield BadTable("ten patients", _csv(frame[:10]))
    yield BadTable("outcome only", _csv(frame[["days", "died"]]), "refused", "no column")
    yield BadTable("one column only", _csv(frame[["days"]]), "refused")
    yield BadTable("one cell", b"7\n", "refused")
    yield BadTable("one word", b"hello", "refused")
    wide = pd.DataFrame(rng.normal(size=(N, 900))).add_prefix("gene").round(4)
    yield BadTable("900 columns", _csv(pd.concat([frame, wide], axis=1)), "noted", "patients")
    yield BadTable("more columns than patients", _csv(pd.concat([frame, wide.iloc[:, :200]], axis=1)[:60]), "noted")
    yield BadTable(
        "300 empty columns",
        _csv(frame.reindex(columns=[*frame.columns, *(f"empty{k}" for k in range(300))])),
        "noted",
        "empty",
    )
    yield BadTable(
        "1,000 copies of a column",
        _csv(pd.concat([frame, *(frame["age"].rename(f"a{k}") for k in range(1000))], axis=1)),
        "noted",
        "says the same",
    )
    yield BadTable("a cell of 100,000 letters", _csv(frame.assign(note=["x" * 100_000, *["y"] * (N - 1)])))
    yield BadTable("every patient twice", _csv(pd.concat([frame, frame])), "noted", "repeat")
    yield BadTable("all patients alike", _csv(frame.assign(age=60.0, stage="I", smoker="no")), "refused")


def _outcomes(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    days, died = frame["days"], frame["died"]

    def timed(values: Any) -> bytes:
        return _csv(frame.assign(days=values))

    def ended(values: Any) -> bytes:
        return _csv(frame.assign(died=values))

    yield BadTable("no events", ended(0), "refused", "no patient has the event")
    yield BadTable("all events", ended(1), "noted", "every patient has the event")
    yield BadTable("one event", ended([1, *[0] * (N - 1)]))
    yield BadTable("a negative time", timed(days.where(frame.index != 7, -5)), "refused", "negative")
    yield BadTable("all times negative", timed(-days), "refused", "negative")
    yield BadTable("a time of 0", timed(days.where(frame.index != 7, 0)), "noted", "time 0")
    yield BadTable("all times 0", timed(0), "refused")
    yield BadTable("all times the same", timed(100))
    yield BadTable("times in fractions of seconds", timed(days / 1e9))
    yield BadTable("a time of 1e12", timed(days.where(frame.index != 7, 1e12)))
    yield BadTable("a time of 1e308", timed(days.where(frame.index != 7, 1e308)), "refused")
    yield BadTable("an infinite time", timed(days.astype(object).where(frame.index != 7, "inf")), "refused")
    yield BadTable("times missing", timed(days.where(frame.index % 5 > 0)), "noted", "without a time")
    yield BadTable("events missing", ended(died.where(frame.index % 5 > 0)), "noted", "without a time")
    yield BadTable("no time at all", timed(np.nan), "refused", "no value")
    yield BadTable("no event at all", ended(np.nan), "refused", "no value")
    yield BadTable(
        "never both",
        _csv(frame.assign(days=days.where(frame.index < 75), died=died.where(frame.index >= 75))),
        "refused",
        "no row",
    )
    yield BadTable(
        "a word among times", timed(days.astype(object).where(frame.index != 7, "unknown")), "refused", "unknown"
    )
    yield BadTable("times with units", timed(days.map(lambda d: f"{d:.0f} days")), "refused", "days")
    yield BadTable("times with commas", timed(days.map(lambda d: f"{d:,.0f}")), "noted", "thousands")
    yield BadTable("dates as times", timed("2020-01-31"), "refused", "dates")
    start, last = pd.Timestamp("2015-01-01"), pd.Timestamp("2015-01-01") + pd.to_timedelta(days, "D")
    dated = ("--time", "days", "--event", "died", "--start", "start")
    for name, form in {"ISO": "%Y-%m-%d", "German": "%d.%m.%Y", "with hours": "%Y-%m-%d %H:%M:%S"}.items():
        dates = frame.assign(start=start.strftime(form), days=last.dt.strftime(form))
        yield BadTable(f"dates, {name}", _csv(dates), options=dated)
    unclear = frame.assign(start="01/02/2015", days=last.dt.strftime("%d/%m/%Y").where(last.dt.day < 12, "03/04/2020"))
    yield BadTable("dates, day or month first", _csv(unclear), "refused", "day", options=dated)
    mixed = last.dt.strftime("%Y-%m-%d").where(frame.index % 2 == 0, last.dt.strftime("%d.%m.%Y"))
    yield BadTable("dates, mixed", _csv(frame.assign(start="2015-01-01", days=mixed)), "refused", "date", options=dated)
    yield BadTable(
        "dates, exchanged",
        _csv(frame.assign(start=last.dt.strftime("%Y-%m-%d"), days="2015-01-01")),
        "refused",
        "negative",
        options=dated,
    )
    yield BadTable(
        "dates, impossible", _csv(frame.assign(start="2015-01-01", days="2015-02-31")), "refused", "date", options=dated
    )
    words = {
        "yes and no": ("Yes", "No"),
        "true and false": ("TRUE", "FALSE"),
        "dead and alive": ("dead", "Alive"),
        "tot und lebend": ("tot", "lebend"),
        "oui et non": ("oui", "non"),
        "1:DECEASED": ("1:DECEASED", "0:LIVING"),
        "ja und nein": ("ja", "nein"),
        "2 and 1": ("2", "1"),
        "1.0 and 0.0": ("1.0", "0.0"),
        "Y and N": ("Y", "N"),
    }
    for name, (yes, no) in words.items():
        yield BadTable(f"events as {name}", ended(np.where(died == 1, yes, no)))
    for name, (yes, no) in {"a and b": ("a", "b"), "-1 and 1": ("1", "-1"), "3 and 7": ("7", "3")}.items():
        yield BadTable(f"events as {name}", ended(np.where(died == 1, yes, no)), "refused", "not clear")
    yield BadTable("three kinds of event", ended(rng.integers(0, 3, N)), "refused", "not clear")
    yield BadTable("three kinds of event, told", ended(rng.integers(0, 3, N)), options=(*OUTCOME, "--event-value", "1"))
    yield BadTable("an event value that is not there", _csv(frame), "refused", options=(*OUTCOME, "--event-value", "9"))
    yield BadTable(
        "unknown among events", ended(died.astype(object).where(frame.index != 3, "unknown")), "refused", "clear"
    )
    yield BadTable("events are probabilities", ended(rng.random(N).round(3)), "refused", "different values")
    yield BadTable(
        "event words in all cases", ended(np.where(died == 1, rng.choice(["Dead", "dead", "DEAD"], N), "alive"))
    )
    yield BadTable("an unknown unit", _csv(frame), "refused", options=(*OUTCOME, "--unit", "fortnights"))
    yield BadTable("the outcome once more", _csv(frame.assign(weeks=days / 7)), "noted", "too good to be true")
    yield BadTable(
        "known for the dead only",
        _csv(frame.assign(cause=np.where(died == 1, rng.choice(["a", "b"], N), None))),
        "noted",
        "known mostly for",
    )


def _with(frame: pd.DataFrame, values: Any) -> bytes:
    """Return the cohort with one more column."""
    return _csv(frame.assign(marker=values))


def _cells(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    marker = rng.lognormal(3, 0.6, N).round(2)
    some = np.arange(N) % 10 == 3
    one = np.arange(N) == 7

    def told(values: Any, where: Any) -> bytes:
        return _with(frame, pd.Series(marker.astype(object)).where(~where, values))

    yield BadTable("a constant number", _with(frame, 7), "noted", "is always 7")
    yield BadTable("a constant word", _with(frame, "Basel"), "noted", "is always 'Basel'")
    yield BadTable("a constant or nothing", _with(frame, np.where(some, "Basel", None)), "noted", "or empty")
    yield BadTable("an empty column", _with(frame, np.nan), "noted", "has no value")
    yield BadTable(
        "a column with three values", _with(frame, np.where(np.arange(N) < 3, marker, np.nan)), "noted", "only 3"
    )
    yield BadTable(
        "a column nine tenths empty", _with(frame, np.where(some, marker, np.nan)), "noted", "much is missing"
    )
    for text in ("NULL", "n/a", "NaN", "#N/A", ".", "?"):
        yield BadTable(f"{text} for nothing", told(text, some), "noted", "missing")
    for text in ("#DIV/0!", "#VALUE!", "unknown", "pending", "n/a?", "see notes", "none"):
        yield BadTable(f"{text} among numbers", told(text, some), "noted", text)
    yield BadTable("half of the numbers are words", told("high", np.arange(N) % 2 == 0), "noted", "high")
    yield BadTable("numbers with a unit, some", told("12.5 mg", some), "noted", "12.5 mg")
    unit = [f"{value} mg" if k % 2 else f"{value}" for k, value in enumerate(marker)]
    yield BadTable("numbers with a unit, half", _with(frame, unit), "noted", "mg")
    yield BadTable("numbers with a unit, all", _with(frame, [f"{value} mg" for value in marker]), "noted", "marker")
    limits = [f"<{value}" if k % 3 == 0 else f"{value}" for k, value in enumerate(marker)]
    yield BadTable("limits of detection, a third", _with(frame, limits), "noted", "<")
    yield BadTable("limits of detection, some", told(">90", some), "noted", ">90")
    yield BadTable("percent signs", _with(frame, [f"{value:.0f}%" for value in marker]), "noted", "marker")
    yield BadTable("currency", _with(frame, [f"${value}" for value in marker]), "noted", "marker")
    yield BadTable(
        "thousands with commas", _with(frame, [f"{1000 * value:,.0f}" for value in marker]), "noted", "marker"
    )
    yield BadTable(
        "thousands with points",
        _csv(frame.assign(marker=[f"{1000 * v:,.0f}".replace(",", ".") for v in marker]), sep=";", decimal=","),
    )
    yield BadTable(
        "thousands with blanks", _with(frame, [f"{1000 * v:,.0f}".replace(",", " ") for v in marker]), "noted", "marker"
    )
    yield BadTable("ranges", _with(frame, rng.choice(["0-10", "10-20", ">20"], N)))
    yield BadTable("scientific notation", _with(frame, [f"{value:e}" for value in marker]))
    yield BadTable("hexadecimal", _with(frame, [hex(int(value)) for value in marker]), "noted", "marker")
    yield BadTable(
        "full-width digits",
        _with(frame, [str(int(v)).translate({48 + k: 0xFF10 + k for k in range(10)}) for v in marker]),
    )
    yield BadTable("a plus before numbers", _with(frame, [f"+{value}" for value in marker]))
    yield BadTable("zeros before numbers", _with(frame, [f"{int(value):05d}" for value in marker]))
    yield BadTable("numbers with thirty digits", _with(frame, [f"{value}{'3' * 28}" for value in marker]))
    yield BadTable("inf among numbers", told("inf", one), "noted", "inf")
    yield BadTable("-inf among numbers", told("-Infinity", one), "noted", "-Infinity")
    yield BadTable("1e308 among numbers", told(1e308, one), "refused", "1e+308 in row 8")
    yield BadTable("-1e308 among numbers", told(-1e308, one), "refused", "-1e+308 in row 8")
    yield BadTable("1e400 among numbers", told("1e400", one), "noted", "1e400")
    yield BadTable("1e30 among numbers", told(1e30, one), "noted", "1e+30 in row 8")
    yield BadTable("a decimal point forgotten", told(marker[7] * 1e6, one), "noted", "in row 8")
    yield BadTable("all numbers of 1e200", _with(frame, marker * 1e200), "refused", "too large")
    yield BadTable("all numbers of 1e-300", _with(frame, marker * 1e-300))
    yield BadTable("all numbers of 1e15 and a little", _with(frame, 1e15 + marker))
    yield BadTable("numbers that hardly differ", _with(frame, 1 + marker * 1e-15))
    yield BadTable("one value differs", _with(frame, np.where(one, 1, 0)))
    yield BadTable("true and false", _with(frame, marker > 20))
    yield BadTable("formulas", _with(frame, np.where(some, '=HYPERLINK("http://x")', "plain")))
    yield BadTable("HTML in cells", _with(frame, np.where(some, "<script>alert(1)</script>", "plain")))
    yield BadTable("SQL in cells", _with(frame, np.where(some, "'; DROP TABLE patients; --", "plain")))
    yield BadTable("escape sequences in cells", _with(frame, np.where(some, "\x1b[31mred", "plain")))
    yield BadTable(
        "free text", _with(frame, [f"patient said {k * 7919 % 1000} things" for k in range(N)]), "noted", "free text"
    )
    yield BadTable("100 levels", _with(frame, rng.integers(0, 100, N).astype(str) + "x"), "noted", "marker")
    yield BadTable("a level of one patient", _with(frame, np.where(one, "rare", rng.choice(["a", "b"], N))))
    yield BadTable(
        "dates as a feature",
        _with(frame, pd.Timestamp("2020-01-01") + pd.to_timedelta(marker.round(), "D")),
        "noted",
        "holds dates",
    )
    yield BadTable("dates as whole numbers", _with(frame, rng.integers(43_000, 44_500, N)))
    yield BadTable("dates of two kinds", _with(frame, np.where(some, "2020-01-01", "01.02.2020")))
    yield BadTable("times of day", _with(frame, [f"{int(v) % 24:02d}:30" for v in marker]))
    yield BadTable("lists in cells", _with(frame, rng.choice(["a;b", "a", "b;c"], N)))


def _codes(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    some = rng.random(N) < 0.08
    for code, low, high in (
        (999, 20, 90),
        (-99, 20, 90),
        (-9, 0, 40),
        (9999, 100, 900),
        (888, 1, 60),
        (-1, 0, 12),
        (99, 0, 20),
        (-999, 0.1, 3),
        (99999, 3000, 12000),
        (777, 10, 50),
        (99.9, 35, 41),
    ):
        values = rng.uniform(low, high, N).round(1 if isinstance(code, float) or high < 5 else 0)
        yield BadTable(f"{code} for nothing", _with(frame, np.where(some, code, values)), "noted", f"holds {code} in")
    yield BadTable("9 for nothing among levels", _with(frame, rng.choice([1, 2, 3, 4, 9], N)), "noted", "holds 9 in")
    both = np.where(some, 998, np.where(rng.random(N) < 0.05, 999, rng.integers(20, 90, N)))
    yield BadTable("998 and 999 for nothing", _with(frame, both), "noted", "998 and 999")
    ends = np.where(some, -99, np.where(rng.random(N) < 0.05, 999, rng.integers(20, 90, N)))
    yield BadTable("-99 and 999 for nothing", _with(frame, ends), "noted", "-99 and 999")
    told = (*OUTCOME, "--missing-values", "marker=999")
    yield BadTable("999 for nothing, told", _with(frame, np.where(some, 999, rng.integers(20, 90, N))), options=told)
    yield BadTable("a code for no such column", _csv(frame), "refused", options=(*OUTCOME, "--missing-values", "x=9"))
    for name, values in {
        "ages up to 99": rng.integers(40, 100, N),
        "a score from -3 to 3": rng.integers(-3, 4, N),
        "counts with a long tail": rng.negative_binomial(1, 0.05, N),
        "z-values": rng.normal(size=N).round(2),
    }.items():
        yield BadTable(f"no code: {name}", _with(frame, values))


def _words(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    for language, words in {
        "English": ["Y", "N", "y", "n", "Yes"],
        "German": ["ja", "nein", "Ja", "J"],
        "French": ["oui", "non", "O", "Non"],
        "Spanish": ["sí", "no", "Si", "S"],
        "Italian": ["sì", "no", "SI"],
        "Dutch": ["ja", "nee", "Nee"],
        "Portuguese": ["sim", "não", "Nao"],
        "truth": ["true", "FALSE", "True", "F"],
    }.items():
        yield BadTable(
            f"yes and no in all spellings, {language}", _with(frame, rng.choice(words, N)), "noted", "yes/no"
        )
    yield BadTable(
        "yes, no and unknown", _with(frame, rng.choice(["Yes", "yes", "Y", "no", "Unknown"], N)), "noted", "spellings"
    )
    yield BadTable(
        "yes and no in two languages", _with(frame, rng.choice(["ja", "yes", "nein", "no"], N)), "noted", "levels"
    )
    yield BadTable(
        "levels in all cases", _with(frame, rng.choice(["Left", "left", "LEFT", "right"], N)), "noted", "spellings"
    )
    yield BadTable(
        "levels with blanks", _with(frame, rng.choice(["stage  1", "stage 1", "stage 2"], N)), "noted", "spellings"
    )
    yield BadTable("sex in all spellings", _with(frame, rng.choice(["M", "m", "F", "f"], N)), "noted", "spellings")
    yield BadTable("genotypes", _with(frame, rng.choice(["AA", "Aa", "aa"], N)), "noted", "3 levels")
    yield BadTable("alleles", _with(frame, rng.choice(["A", "a"], N)), "noted", "2 levels")
    yield BadTable(
        "spellings kept apart",
        _with(frame, rng.choice(["M", "m", "F"], N)),
        options=(*OUTCOME, "--categorical", "marker"),
    )
    yield BadTable(
        "numbers and words as levels", _with(frame, rng.choice(["0", "1", "2", "not done"], N)), "noted", "levels"
    )
    yield BadTable("Roman numerals", _with(frame, rng.choice(["I", "II", "III", "iv"], N)))
    yield BadTable("plus and minus", _with(frame, rng.choice(["+", "++", "neg"], N)))


def _identifiers(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    lots = rng.choice(900_000, N, replace=False) + 100_000
    once = np.where(np.arange(N) == 5, lots[9], lots)
    visits = np.repeat(np.arange(N // 3), 3) + 4000

    def first(name: str, values: Any) -> bytes:
        return _csv(pd.DataFrame({name: values}).join(frame))

    for name in (
        "patient_id",
        "PatientID",
        "MRN",
        "Fallnummer",
        "Patienten-Nr",
        "hospital number",
        "numéro patient",
        "pid",
    ):
        yield BadTable(f"numbers of patients as {name}", first(name, lots), "noted", "identifier")
    yield BadTable("six digits under no name", first("z1", lots), "noted", "identifier")
    yield BadTable("one hospital number twice", first("hospital number", once), "noted", "1 row repeats an identifier")
    yield BadTable("row numbers", first("x", np.arange(N)), "noted", "row number")
    yield BadTable("row numbers without a name", first("", np.arange(N)), "noted", "row number")
    yield BadTable(
        "codes of letters and digits", first("who", [f"P{k:04d}" for k in lots % 10_000]), "noted", "identifier"
    )
    yield BadTable("long codes", first("who", [f"{k:032x}" for k in lots]), "noted", "identifier")
    yield BadTable("names of people", first("surname", [f"Name{k}" for k in range(N)]), "noted", "identifier")
    yield BadTable("three rows of each patient", first("patient_id", visits), "refused", "--group patient_id")
    yield BadTable(
        "three rows of each patient, in letters", first("id", [f"P{k}" for k in visits]), "refused", "--group id"
    )
    yield BadTable(
        "three rows of each patient, told", first("patient_id", visits), options=(*OUTCOME, "--group", "patient_id")
    )
    yield BadTable(
        "three rows, kept as patients", first("patient_id", visits), options=(*OUTCOME, "--drop", "patient_id")
    )
    yield BadTable("no such group", _csv(frame), "refused", options=(*OUTCOME, "--group", "nobody"))
    yield BadTable("the outcome as group", _csv(frame), "refused", options=(*OUTCOME, "--group", "days"))
    for name, values in {
        "age in days": (rng.normal(60, 10, N) * 365.25).round(),
        "platelets": rng.normal(250, 60, N).round() * 1000,
        "ferritin": rng.lognormal(5, 1, N).round(),
        "centre id": rng.integers(1, 15, N),
        "number of nodes": rng.poisson(3, N),
        "income": rng.lognormal(10.5, 0.5, N).round(),
    }.items():
        yield BadTable(f"no identifier: {name}", first(name, values))


def _copies(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    age = frame["age"]
    for name, values in {
        "a column twice": age,
        "another unit": age * 12,
        "the other way round": 100 - age,
        "in kelvin": age * 1.8 + 459.67,
    }.items():
        yield BadTable(f"copy: {name}", _with(frame, values), "noted", "says the same")
    yield BadTable(
        "copy: words for words",
        _with(frame, frame["smoker"].map({"yes": "smoker", "no": "none"})),
        "noted",
        "says the same",
    )
    yield BadTable("copy: numbers for words", _with(frame, frame["stage"].map({"I": 1, "II": 2, "III": 3})))
    yield BadTable("nearly a copy", _with(frame, (age * 2.2046).round(1)), "noted", "all but follows")
    yield BadTable("a copy asked for", _with(frame, age * 12), options=(*OUTCOME, "--numeric", "marker"))
    yield BadTable(
        "a sum of two columns", _csv(frame.assign(a=rng.normal(size=N)).assign(b=lambda f: f["a"] + f["age"]))
    )


def _workbooks(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    from openpyxl import Workbook

    def book(fill: Callable[[Workbook], None]) -> bytes:
        made, stream = Workbook(), io.BytesIO()
        fill(made)
        made.save(stream)
        return stream.getvalue()

    def rows(sheet: Any, some: pd.DataFrame, *above: list[Any]) -> None:
        for row in (*above, list(some.columns), *some.astype(object).where(some.notna(), None).to_numpy().tolist()):
            sheet.append(row)

    def workbook(some: pd.DataFrame, *above: list[Any]) -> bytes:
        return book(lambda made: rows(made.active, some, *above))

    def excel(name: str, content: bytes, expected: Expected = "works", words: str = "", *options: str) -> BadTable:
        return BadTable(f"workbook: {name}", content, expected, words, ".xlsx", (*OUTCOME, *options))

    def two(made: Workbook) -> None:
        rows(made.active, pd.DataFrame({"note": ["read the other sheet"]}))
        rows(made.create_sheet("patients"), frame)

    yield excel("plain", workbook(frame))
    yield excel("numbers as text", workbook(frame.astype(str)))
    yield excel("a blank row above", workbook(frame, []))
    yield excel("a title above", workbook(frame, ["Registry", None, None, None, None]), "refused")
    yield excel("no rows", workbook(frame[:0]), "refused", "no rows")
    yield excel("nothing", book(lambda made: None), "refused")
    yield excel("patients in another sheet", book(two), "refused")
    yield excel("patients in another sheet, told", book(two), "works", "", "--sheet", "patients")
    yield excel("no such sheet", book(two), "refused", "", "--sheet", "Sheet9")
    yield excel(
        "dates as a feature", workbook(frame.assign(seen=pd.Timestamp("2020-01-01").to_pydatetime())), "noted", "dates"
    )
    yield excel("true and false", workbook(frame.assign(marker=(frame["age"] > 60).tolist())))
    yield excel(
        "errors in cells",
        workbook(frame.assign(marker=np.where(frame.index % 10 == 0, "#DIV/0!", frame["age"]))),
        "noted",
        "#DIV/0!",
    )
    yield excel("formulas without values", workbook(frame.assign(marker="=1+1")), "noted", "no value")
    yield excel(
        "numbers and dates in one column",
        workbook(frame.assign(marker=[pd.Timestamp("2020-01-01").to_pydatetime() if k % 2 else k for k in range(N)])),
        "noted",
        "marker",
    )
    yield excel(
        "1e308 in a cell",
        workbook(frame.assign(marker=np.where(frame.index == 7, 1e308, frame["age"] + rng.random(N)))),
        "refused",
        "1e+308 in row 8",
    )
    yield excel("cut", workbook(frame)[:3000], "refused")
    yield excel("a zip file of something else", b"PK\x03\x04" + rng.bytes(500), "refused")


def _parquet(frame: pd.DataFrame, rng: np.random.Generator) -> Iterator[BadTable]:
    def parquet(name: str, some: pd.DataFrame, expected: Expected = "works", words: str = "") -> BadTable:
        stream = io.BytesIO()
        some.to_parquet(stream, index=False)
        return BadTable(f"Parquet: {name}", stream.getvalue(), expected, words, ".parquet")

    yield parquet("plain", frame)
    yield parquet("nullable whole numbers", frame.assign(marker=pd.array([*rng.integers(0, 99, N - 1), None], "Int64")))
    yield parquet("categories", frame.assign(stage=frame["stage"].astype("category")))
    yield parquet(
        "truth values with gaps", frame.assign(marker=pd.array([*(rng.random(N - 1) > 0.5), None], "boolean"))
    )
    yield parquet("dates", frame.assign(marker=pd.Timestamp("2020-01-01")), "noted", "dates")
    yield parquet("spans of time", frame.assign(marker=pd.to_timedelta(frame["days"], "D")), "noted", "marker")
    yield parquet("single precision", frame.assign(marker=frame["age"].astype(np.float32) + 1))
    yield parquet("very large whole numbers", frame.assign(marker=rng.integers(2**60, 2**62, N)), "noted", "marker")
    yield parquet(
        "infinity", frame.assign(marker=np.where(frame.index == 7, np.inf, rng.normal(size=N))), "noted", "inf"
    )
    yield parquet("events as truth values", frame.assign(died=frame["died"] == 1))
    yield parquet("no rows", frame[:0], "refused", "no rows")
    yield BadTable("Parquet: cut", parquet("", frame).content[:2000], "refused", "", ".parquet")
    yield BadTable("Parquet: another file", b"PAR1" + rng.bytes(300), "refused", "", ".parquet")


def run(*arguments: Any) -> Run:
    """Run a command in this process and say how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(one) for one in arguments])
    text = " ".join((done.stdout + done.stderr).split())
    if "Traceback" in text or "something unexpected" in text or not isinstance(done.exception, SystemExit | None):
        return Run("UNEXPECTED", f"{text} {type(done.exception).__name__}: {done.exception}")
    if done.exit_code:
        return Run("refused with words", text)
    noted = any(word in text.casefold() for word in ("warning", "note ", "left out", "as missing", "spellings"))
    return Run("worked with notes" if noted else "worked", text)


def through(table: BadTable, folder: Path, model: Path) -> dict[str, Any]:
    """Return what became of a table: checked, fitted, and predicted by its own model and by one of the good cohort."""
    path, own, out = table.write(folder), folder / "own.safetensors", folder / "predicted.csv"
    checked = run("check", path, *table.options)
    fitted = run("fit", path, *table.options, *COX, "-o", own)
    reading = _reading(table.options)
    predicted = []
    for one in (own, model):
        if one.exists():
            predicted.append(run("predict", one, path, *reading, "-o", out))
            if out.exists():
                predicted.append(Run(_sane(pd.read_csv(out)), ""))
                out.unlink()
    row = {
        "table": table.name,
        "expected": table.expected,
        "check": checked.end,
        "fit": fitted.end,
        "predict": max((one.end for one in predicted), key=ENDS.index),
        "said": _said(table, checked, fitted),
        "agree": checked.refused == fitted.refused,
        "words": checked.text,
    }
    for made in (path, own):
        made.unlink(missing_ok=True)
    return row


def _said(table: BadTable, checked: Run, fitted: Run) -> bool:
    """Whether a table ended as expected, with the words that it deserves."""
    if table.expected == "refused":
        return checked.refused and fitted.refused and table.words.casefold() in checked.text.casefold()
    if checked.refused or fitted.refused:
        return table.expected == "either" and checked.refused and fitted.refused
    return table.expected in ("works", "either") or table.words.casefold() in checked.text.casefold()


def _sane(predicted: pd.DataFrame) -> str:
    shares = predicted.filter(regex="^(survival|risk)_").to_numpy(np.float64)
    return "worked" if np.isfinite(shares).all() and ((shares >= 0) & (shares <= 1)).all() else "UNEXPECTED"


def _reading(options: tuple[str, ...]) -> list[str]:
    """Return the options that `predict` has as well."""
    known = {"--delimiter", "--decimal", "--encoding", "--sheet"}
    return [word for k in range(0, len(options), 2) if options[k] in known for word in options[k : k + 2]]


def good_model(folder: Path) -> Path:
    """Fit the model that predicts all tables."""
    path = folder / "good.safetensors"
    table = BadTable("the cohort itself", _csv(cohort()))
    done = run("fit", table.write(folder), *OUTCOME, *COX, "-o", path)
    assert path.exists(), done.text
    return path


def page(rows: pd.DataFrame) -> str:
    """Return the page with the counts."""
    counts = pd.DataFrame(
        {
            command: rows[command].value_counts().reindex(list(ENDS), fill_value=0)
            for command in ("check", "fit", "predict")
        }
    )
    lines = [[end, *map(str, counts.loc[end])] for end in ENDS]
    lines.append(["without the words that it deserves", str(int((~rows["said"]).sum())), "", ""])
    lines.append(["`check` and `fit` of two minds", str(int((~rows["agree"]).sum())), "", ""])
    return (
        f"# {len(rows)} bad and odd tables\n\n"
        "Written by `python benchmarks/bad_tables.py`; `rows.csv` has every table.\n\n"
        + "\n".join(markdown(["table", "check", "fit", "predict"], lines))
    )


def main() -> None:
    started = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = good_model(folder)
        rows = pd.DataFrame([through(table, folder, model) for table in tables()])
    OUT.mkdir(parents=True, exist_ok=True)
    rows.drop(columns="words").to_csv(OUT / "rows.csv", index=False)
    (OUT / "README.md").write_text(page(rows), encoding="utf-8")
    bad = rows[(rows[["check", "fit", "predict"]] == "UNEXPECTED").any(axis=1) | ~rows["said"] | ~rows["agree"]]
    for row in bad.to_dict("records"):
        print(
            row["table"],
            "|",
            row["expected"],
            row["check"],
            row["fit"],
            row["predict"],
            row["agree"],
            "|",
            row["words"][-300:],
        )
    print(f"{len(rows)} tables, {len(bad)} not as expected, {time.process_time() - started:.0f} s of CPU")


if __name__ == "__main__":
    main()
