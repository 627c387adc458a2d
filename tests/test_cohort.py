"""A user's table of patients: read as it comes, its columns and outcome guessed, its troubles named."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dcsurv.cohort import (
    Cohort,
    CohortError,
    EventCoding,
    apply_columns,
    check_cohort,
    choose_horizons,
    files,
    guess_coding,
    guess_columns,
    inspect_table,
    last_usable_time,
    parse_duration,
    parse_horizons,
    read_chunks,
    read_cohort,
    read_table,
    reading,
    usable_horizons,
)
from dcsurv.cohort.checks import require_features
from dcsurv.messages import InputError
from dcsurv.models import CoxPH
from dcsurv.target import make_outcome

PLAIN = "age,sex,days,died\n61,f,120,1\n55.5,m,80,0\n,f,300,1\n"


def write(folder: Path, content: str | bytes, name: str = "patients.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def patients(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Make a cohort in which age matters."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 10, n).round(1)
    time = rng.exponential(1000 * np.exp(-(age - 60) / 15)).round(1) + 0.1
    censored = rng.exponential(1500, n).round(1) + 0.1
    stage = rng.choice(["I", "II", "III"], n)
    return pd.DataFrame(
        {"age": age, "stage": stage, "days": np.minimum(time, censored), "died": (time <= censored).astype(int)}
    )


def cohort(folder: Path, frame: pd.DataFrame, **options: Any) -> Cohort:
    path = folder / "patients.csv"
    frame.to_csv(path, index=False)
    return read_cohort(path, **{"time": "days", "event": "died", "unit": "days", **options})


# --- reading ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (PLAIN, "CSV, commas, decimal point, utf-8"),
        ("\ufeff" + PLAIN, "CSV, commas, decimal point, utf-8-sig"),
        (PLAIN.replace(",", "\t"), "CSV, tabs, decimal point, utf-8"),
        (PLAIN.replace(",", "|"), "CSV, vertical bars, decimal point, utf-8"),
        (PLAIN.replace(",", ";").replace(".", ","), "CSV, semicolons, decimal comma, utf-8"),
        (PLAIN.replace(",", ";"), "CSV, semicolons, decimal point, utf-8"),
        (PLAIN.replace("\n", "\r\n"), "CSV, commas, decimal point, utf-8"),
        (PLAIN.encode("utf-16"), "CSV, commas, decimal point, utf-16"),
        (gzip.compress(PLAIN.encode()), "CSV, commas, decimal point, utf-8"),
        (PLAIN.replace(",", ", "), "CSV, commas, decimal point, utf-8"),
        (PLAIN.replace("\n", ",\n").replace("died,", "died"), "CSV, commas, decimal point, utf-8"),  # a last comma
    ],
    ids=[
        "plain",
        "mark",
        "tabs",
        "bars",
        "decimal-comma",
        "semicolons",
        "windows",
        "utf-16",
        "gzip",
        "blanks",
        "last-comma",
    ],
)
def test_the_same_table_comes_out_of_every_dialect(tmp_path: Path, content: str | bytes, form: str) -> None:
    table = read_table(write(tmp_path, content))
    assert table.format.describe() == form
    frame = table.frame[["age", "sex", "days", "died"]]
    assert frame.fillna("-").to_numpy().tolist() == [
        ["61", "f", "120", "1"], ["55.5", "m", "80", "0"], ["-", "f", "300", "1"],
    ]  # fmt: skip


def test_letters_of_windows_and_of_unicode(tmp_path: Path) -> None:
    text = "größe;dépistage;überlebt\n1,5;non;3\n1,7;oui;4\n"
    for encoding in ("utf-8", "cp1252"):
        table = read_table(write(tmp_path, text.encode(encoding)))
        assert list(table.frame.columns) == ["größe", "dépistage", "überlebt"]
        assert table.frame["größe"].tolist() == ["1.5", "1.7"]
    assert any("cp1252" in note for note in table.notes)
    decomposed = read_table(write(tmp_path, "gro\u0308\u00dfe,t\n1,2\n"))  # o and two dots: what macOS writes
    assert list(decomposed.frame.columns) == ["größe", "t"]


def test_names_are_trimmed_filled_in_and_made_unique(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, " age ,age,,age (2)\n1,2,3,4\n"))
    assert list(table.frame.columns) == ["age", "age (3)", "unnamed column 3", "age (2)"]
    assert table.format.repeated == ("age",)
    assert "numbered" in table.notes[0]


def test_lines_of_delimiters_above_the_names_are_no_header(tmp_path: Path) -> None:
    plain = read_table(write(tmp_path, PLAIN)).frame
    for above in (",,,\n", "\n,,,\n\n", '"",,,\n , ,,\n'):
        pd.testing.assert_frame_equal(read_table(write(tmp_path, above + PLAIN)).frame, plain)


def test_points_beside_decimal_commas_group_thousands(tmp_path: Path) -> None:
    lines = [f"{k},5;{1 + k % 3}.003;1.{k:03},25;{'1.003' if k % 2 else '1.5'};0.{100 + k}" for k in range(50)]
    table = read_table(write(tmp_path, "a;cells;both;mixed;small\n" + "\n".join(lines)))
    assert table.format.thousands == ("cells", "both")
    assert table.frame.iloc[1].tolist() == ["1.5", "2003", "1001.25", "1.003", "0.101"]
    notes = " ".join(table.notes)
    assert "grouping thousands in 'cells (1.003)', 'both (1.000,25)'" in notes
    assert "more than one kind in 'mixed (1.003)'" in notes
    # What a late line holds decides as well.
    late = "a;b\n" + "1,5;1.003\n" * 30_000 + "1,5;1.5\n"
    assert read_table(write(tmp_path, late)).frame["b"].iloc[0] == "1.003"
    assert not read_table(write(tmp_path, "a;b\n1,5;3\n2,5;0.003\n")).notes


def test_row_names_of_r_become_a_column(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, 'age,days\n"1",60,5\n"2",70,6\n'))
    assert table.frame.to_dict("list") == {"unnamed column 1": ["1", "2"], "age": ["60", "70"], "days": ["5", "6"]}


def test_parquet_and_excel_keep_their_types(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [61.0, 55.5, None], "sex": ["f", " m ", "NA"], "died": [True, False, True]})
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_excel(tmp_path / "p.xlsx", index=False)
    for name in ("p.parquet", "p.xlsx"):
        read = read_table(tmp_path / name).frame
        np.testing.assert_array_equal(read["age"].to_numpy(float), [61.0, 55.5, np.nan])
        assert read["sex"].tolist()[:2] == ["f", "m"]
        assert read["sex"].isna().tolist() == [False, False, True]
        assert read["died"].tolist() == [True, False, True]


def test_excel_sheets_are_chosen_and_named(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "book.xlsx") as book:
        pd.DataFrame({"a": [1], "b": [2]}).to_excel(book, sheet_name="first", index=False)
        pd.DataFrame({"c": [3], "d": [4]}).to_excel(book, sheet_name="second", index=False)
    table = read_table(tmp_path / "book.xlsx")
    assert list(table.frame.columns) == ["a", "b"]
    assert "2 sheets" in table.notes[0]
    assert list(read_table(tmp_path / "book.xlsx", sheet="second").frame.columns) == ["c", "d"]
    with pytest.raises(CohortError, match=r"'third'.*'first', 'second'"):
        read_table(tmp_path / "book.xlsx", sheet="third")


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        ("", "a.csv", "is empty"),
        ("\n\n \n", "a.csv", "blank lines"),
        ("a,b\n", "a.csv", "no rows"),
        (b"\x00\x01\x02\x03" * 9, "a.csv", "not a text file"),
        ("age days\n1 2\n", "a.csv", "one column only"),
        ("a,b\n1,2\n1,2,3,4\n", "a.csv", "line 3 .* has 4 fields"),
        ('a,b\n1,"2\n3,4\n', "a.csv", "never closed"),
        (b"PK\x03\x04 not a workbook", "a.xlsx", "cannot be read as an Excel"),
        (b"PAR1 not a table", "a.parquet", "cannot be read as Parquet"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old", "a.xls", "old Excel"),
        (gzip.compress(PLAIN.encode() * 99)[:-30], "a.csv.gz", "incomplete"),
    ],
    ids=[
        "empty",
        "blank",
        "header-only",
        "binary",
        "one-column",
        "long-line",
        "open-quote",
        "xlsx",
        "parquet",
        "xls",
        "gzip",
    ],
)
def test_what_is_no_table_is_refused_in_words(tmp_path: Path, content: str | bytes, name: str, words: str) -> None:
    with pytest.raises(CohortError, match=words):
        read_table(write(tmp_path, content, name))


def test_a_wrong_delimiter_is_named_with_the_right_one(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN.replace(",", ";"))
    with pytest.raises(CohortError, match=r"one column only.*semicolon"):
        read_table(path, delimiter=",")
    assert list(read_table(write(tmp_path, "a b\n1 2\n"), delimiter="space").frame.columns) == ["a", "b"]
    for options, words in (
        ({"delimiter": "ab"}, "one character"),
        ({"decimal": "x"}, "'.' or ','"),
        ({"encoding": "klingon"}, "unknown"),
        ({"encoding": "ascii"}, "cannot be read as ascii"),
    ):
        with pytest.raises(CohortError, match=words):
            read_table(write(tmp_path, "é,b\n1,2\n"), **options)


def test_chunks_put_together_are_the_table(tmp_path: Path) -> None:
    frame = patients(250)
    for name, save in (("p.csv", "to_csv"), ("p.parquet", "to_parquet"), ("p.xlsx", "to_excel")):
        getattr(frame, save)(tmp_path / name, index=False)
        form = inspect_table(tmp_path / name)
        chunks = list(read_chunks(form, rows=100, columns=["days", "stage"]))
        assert [len(chunk) for chunk in chunks] == [100, 100, 50]
        together = pd.concat(chunks)
        assert list(together.columns) == ["stage", "days"]
        assert together["stage"].tolist() == frame["stage"].tolist()
        np.testing.assert_allclose(together["days"].astype(float), frame["days"], rtol=1e-14)  # Excel has 15 digits


def test_a_table_is_read_from_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sniffed, unpacked, hashed and parsed from one reading, however it is written."""
    frame = patients(50)
    content = frame.to_csv(index=False, sep=";", decimal=",").replace(";II;", ";2.000,5;").encode()
    (tmp_path / "p.csv").write_bytes(content)
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(content, mtime=0))
    frame.to_parquet(tmp_path / "p.parquet")
    frame.to_excel(tmp_path / "p.xlsx", index=False)
    read: list[str] = []
    whole, piece = Path.read_bytes, Path.open
    monkeypatch.setattr(Path, "read_bytes", lambda self: (read.append(self.name), whole(self))[1])
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: (read.append(self.name), piece(self, *a, **k))[1])
    for path in sorted(tmp_path.iterdir()):
        read.clear()
        made = read_cohort(path, time="days", event="died")
        assert set(read) == {path.name}
        assert read.count(path.name) <= 2  # Path.read_bytes may open by Path.open
        assert made.digest == hashlib.sha256(whole(path)).hexdigest()
        assert len(made) == 50


def test_a_frame_is_read_as_its_file_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = patients(120).assign(
        smoker=rng.choice(["yes", "No"], 120), grade=pd.Categorical(rng.choice(["low", "high"], 120)), clinic="A",
        flag=rng.random(120) < 0.5, died=lambda f: f["died"] + 1, days=lambda f: f["days"].round(1),
    )  # fmt: skip
    frame.loc[3, "age"] = np.nan
    frame.loc[5, "days"] = np.nan
    options: dict[str, Any] = {"time": "days", "event": "died", "unit": "days", "drop": ["stage"]}
    before = frame.copy()
    of_frame = Cohort.from_frame(frame.rename(columns={"age": " age "}), **options)
    pd.testing.assert_frame_equal(frame, before)
    frame.to_csv(tmp_path / "p.csv", index=False)
    frame.to_parquet(tmp_path / "p.parquet")
    for name in ("p.csv", "p.parquet"):
        of_file = read_cohort(tmp_path / name, **options)
        pd.testing.assert_frame_equal(of_frame.features.reset_index(drop=True), of_file.features)
        np.testing.assert_array_equal(of_frame.y, of_file.y)
        assert [c.to_dict() for c in of_frame.columns] == [c.to_dict() for c in of_file.columns]
        assert of_frame.outcome == of_file.outcome
        assert of_frame.incomplete == of_file.incomplete == 1
    assert of_frame.outcome.coding.events == ("2",)
    of_polars = Cohort.from_frame(pl.read_parquet(tmp_path / "p.parquet"), **options)
    pd.testing.assert_frame_equal(of_polars.features, of_frame.features)
    np.testing.assert_array_equal(of_polars.y, of_file.y)
    assert (of_frame.name, of_frame.digest) == ("table", None)


def test_patients_keep_the_labels_of_their_frame_and_none_of_them_is_shown() -> None:
    frame = patients(60).set_axis([f"P{number:02}" for number in range(60)], axis=0)
    frame.loc["P01", "died"] = np.nan
    cohort = Cohort.from_frame(frame, time="days", event="died", unit="days", missing_values={"age": 999})
    assert cohort.features.index.tolist() == [label for label in frame.index if label != "P01"]
    curves = CoxPH().fit(cohort.features, cohort.y).predict_survival_function(cohort.features[:3])
    assert curves.to_frame().index.tolist() == ["P00", "P02", "P03"]
    assert cohort.take(np.array([4, 1])).features.index.tolist() == ["P05", "P02"]
    assert repr(cohort) == (
        f"Cohort('table': 59 patients, {cohort.events} events, {cohort.features.shape[1]} features; time 'days' in "
        "days, event 'died')"
    )


def test_what_is_wrong_with_a_frame_is_said_in_the_words_of_python() -> None:
    frame = patients(60)
    outcome: dict[str, Any] = {"time": "days", "event": "died"}
    for changes, parameter, words in (
        ({"time": "day"}, "time", "time= names the column 'day', which the table does not have. Did you mean 'days'?"),
        ({"event": "stage"}, "event_values", "for example with event_values=['"),
        ({"event_values": [7]}, "event_values", "event_values= names '7', which the column 'died' does not hold"),
        ({"numeric": ["stage"]}, "numeric", "Leave it out of numeric=, or repair it"),
        ({"drop": "stage"}, "drop", "drop= is the text 'stage'. Pass a list, such as drop=['stage']."),
        ({"event_values": 1}, "event_values", "event_values= is 1. Pass a list, such as event_values=[1]."),
        ({"missing_values": 999}, "missing_values", "missing_values= is 999. Pass a list"),
        ({"time": None}, "time", "time= is None. Name a column. The table has 'age'"),
        ({"frame": frame.to_dict()}, "frame", "a dict arrived, but a pandas DataFrame is expected"),
    ):
        with pytest.raises(CohortError) as caught:
            Cohort.from_frame(**{"frame": frame, **outcome, **changes})
        assert words in str(caught.value)
        assert caught.value.parameter == parameter
        assert caught.value.remedy
    twice = pd.concat([frame, frame[["days"]]], axis=1)
    with pytest.raises(CohortError, match="time= names the column 'days', but the table has more than one"):
        Cohort.from_frame(twice, **outcome)


# --- columns ------------------------------------------------------------------------------------------------


def test_columns_are_guessed_and_open_to_correction() -> None:
    n = 100
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 9, n).round(1).astype(str),
            "smoker": rng.choice(["Yes", "no"], n),
            "flag": rng.choice([True, False], n),
            "grade": rng.choice(["low", "high"], n),
            "lab": ["<0.1"] * 5 + rng.normal(3, 1, n - 5).round(2).astype(str).tolist(),
            "patient_id": rng.permutation(n * 7)[:n],
            "row": np.arange(n),
            "name": [f"patient number {i}" for i in range(n)],
            "visit": pd.date_range("2020-01-01", periods=n).strftime("%d.%m.%Y"),
            "centre": ["Basel"] * n,
            "empty": [np.nan] * n,
            "nearly": [1.0] * 3 + [np.nan] * (n - 3),
            "code": rng.choice([1, 2, 3], n),
        }
    )
    found = {column.name: column for column in guess_columns(frame)}
    kinds = {name: column.kind for name, column in found.items()}
    assert kinds == {
        "age": "number", "smoker": "yes/no", "flag": "yes/no", "grade": "category", "lab": "number",
        "patient_id": "left out", "row": "left out", "name": "left out", "visit": "left out", "centre": "left out",
        "empty": "left out", "nearly": "left out", "code": "number",
    }  # fmt: skip
    for name, word in (("lab", "<0.1"), ("patient_id", "identifier"), ("visit", "dates"), ("centre", "always 'Basel'")):
        assert word in found[name].text
    told = {c.name: c for c in guess_columns(frame, categorical=["code"], numeric=["patient_id"], drop=["age"])}
    assert (told["code"].kind, told["patient_id"].kind, told["age"].kind) == ("category", "number", "left out")
    assert told["code"].chosen
    with pytest.raises(CohortError, match=r"'agee'.*mean 'age'"):
        guess_columns(frame, drop=["agee"])
    with pytest.raises(CohortError, match="two ways"):
        guess_columns(frame, drop=["age"], numeric=["age"])
    with pytest.raises(CohortError, match="are not numbers"):
        guess_columns(frame, numeric=["grade"])


def test_what_is_stored_about_columns_quotes_no_cell() -> None:
    frame = pd.DataFrame(
        {
            "lab": ["see Smith"] * 3 + [str(k / 7) for k in range(97)],
            "asked": ["see Smith"] * 3 + [str(k / 7) for k in range(97)],
            "centre": ["Smith"] * 100,
            "grade": ["Smith", "other"] * 50,
        }
    )
    columns = guess_columns(frame, numeric=["asked"])
    assert all("Smith" in column.text for column in columns)
    assert "Smith" not in str([column.to_dict() for column in columns])
    assert columns[0].note == columns[1].note == "3 values count as missing"


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        (["Y", "N"], "yes/no"),
        (["Yes", "YES", "no"], "yes/no"),
        (["Y", "N", "X"], "category"),
        (["x", "n"], "category"),
        (["yes", "y", "no"], "yes/no"),
        (["ja", "J", "N"], "yes/no"),
        (["yes", "ja", "no"], "category"),
    ],
)
def test_yes_and_no_are_two_words(levels: list[str], kind: str) -> None:
    assert guess_columns(pd.DataFrame({"a": levels * 20}))[0].kind == kind


def test_a_later_table_is_read_as_the_first_one() -> None:
    first = pd.DataFrame({"age": ["60", "70"] * 10, "smoker": ["yes", "no"] * 10, "grade": ["1", "2"] * 10})
    columns = guess_columns(first, categorical=["grade"])
    later = pd.DataFrame({"grade": [1.0, 2.0, 7.0], "smoker": [True, None, "maybe"], "age": [60, "old", None], "x": 0})
    features, odd = apply_columns(later, columns, {"grade": ["1", "2"]})
    assert list(features.columns) == ["age", "smoker", "grade"]
    assert features["grade"].tolist()[:2] == ["1", "2"]
    assert features["smoker"].tolist()[:1] == ["yes"]
    assert features.isna().sum().to_dict() == {"age": 2, "smoker": 2, "grade": 1}
    assert [(one.column, one.count, one.examples) for one in odd] == [
        ("age", 1, ("old",)), ("smoker", 1, ("maybe",)), ("grade", 1, ("7.0",)),
    ]  # fmt: skip
    with pytest.raises(CohortError, match=r"needs 'age', 'smoker', which the table does not have. It has 'grade'"):
        apply_columns(later[["grade"]], columns)
    words = pd.DataFrame({"age": ["6,5"] * 20, "smoker": "yes", "grade": 1})
    with pytest.raises(CohortError, match=r"20 of 20 values of 'age' are not numbers.*decimal=','"):
        apply_columns(words, columns, from_text=True)
    with pytest.raises(CohortError, match=r"are not numbers.*turn them into numbers, such as 6\.5 for '6,5'") as caught:
        apply_columns(words, columns)  # of a table in memory, or in a file of numbers, no decimal sign can be told
    assert caught.value.parameter is None


# --- outcome ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "events"),
    [
        ([0, 1, 1], [0, 1, 1]),
        ([1.0, 2.0, 2.0], [0, 1, 1]),
        (["1", "2", None], [0, 1, np.nan]),
        ([True, False, True], [1, 0, 1]),
        (["Yes", "no", "YES"], [1, 0, 1]),
        (["dead", "Alive", "dead"], [1, 0, 1]),
        (["1:DECEASED", "0:LIVING", "0:LIVING"], [1, 0, 0]),
        (["Relapse", "censored", "lost to follow-up"], [1, 0, 0]),
        ([0, 0, 0], [0, 0, 0]),
        ([1, 1, 1], [1, 1, 1]),
    ],
)
def test_usual_codings_of_events_are_understood(values: list[Any], events: list[float]) -> None:
    column = pd.Series(values, name="status", dtype=object)
    np.testing.assert_array_equal(guess_coding(column).read(column), events)


def test_unusual_codings_are_asked_about() -> None:
    column = pd.Series([0, 1, 2, 2], name="status")
    with pytest.raises(CohortError, match=r"'2' \(2 rows\).*event_values=\['1'\]"):
        guess_coding(column)
    told = guess_coding(column, ["1"])
    assert told.read(column).tolist() == [0, 1, 0, 0]
    assert "0 or 2 = censored" in told.describe()
    assert guess_coding(column, ["1", "2.0"]).read(column).tolist() == [0, 1, 1, 1]
    with pytest.raises(CohortError, match=r"'9', which the column 'status' does not hold"):
        guess_coding(column, ["9"])
    with pytest.raises(CohortError, match="100 different values"):
        guess_coding(pd.Series(np.arange(100), name="days"))
    coding = guess_coding(pd.Series(["dead", "alive"], name="s"))
    with pytest.raises(CohortError, match="holds 'unknown', besides dead = event"):
        coding.read(pd.Series(["dead", "unknown"], name="s"))


def test_codings_in_files_of_version_0_1_are_understood() -> None:
    """That version wrote words about where a coding came from; whoever reads them now gets a code."""
    told = "as told by --event-value"
    for events, censored, how, others, code in (
        (["1"], ["0"], "0/1", False, "0/1"),
        (["2"], ["1"], "guessed from 1/2: 2 is the event, as in R", False, "1/2"),
        (["dead"], ["alive"], "guessed from the words", False, "words"),
        (["1"], ["0"], told, True, "told"),
    ):
        saved = {"events": events, "censored": censored, "how": how, "others_censored": others}
        coding = EventCoding.from_dict(saved)
        assert coding.how == code
        assert EventCoding.from_dict(coding.to_dict()) == coding


def test_dates_become_durations_only_with_a_start(tmp_path: Path) -> None:
    frame = patients(60)
    first = pd.Series(pd.Timestamp("2010-01-04") + pd.to_timedelta(np.arange(60) % 28, "D"))
    frame["diagnosis"] = first.dt.strftime("%d/%m/%Y")
    frame["end"] = (first + pd.to_timedelta(frame["days"].round(), "D")).dt.strftime("%d/%m/%Y")
    with pytest.raises(CohortError, match=r"'end' holds dates, such as '.*start="):
        cohort(tmp_path, frame.drop(columns="days"), time="end")
    read = cohort(tmp_path, frame.drop(columns="days"), time="end", start="diagnosis")
    np.testing.assert_array_equal(read.time, frame["days"].round())
    weeks = cohort(tmp_path, frame.drop(columns="days"), time="end", start="diagnosis", unit="weeks")
    np.testing.assert_allclose(weeks.time, frame["days"].round() / 7)
    early = pd.DataFrame({"s": ["01/02/2020", "03/04/2020"], "e": ["05/06/2021", "07/08/2021"], "died": [1, 0], "x": 1})
    with pytest.raises(CohortError, match=r"day or with the month first.*date_format='%d"):
        cohort(tmp_path, early, time="e", start="s")
    read = cohort(tmp_path, early, time="e", start="s", date_format="%d/%m/%Y")
    assert read.time.tolist() == [490.0, 491.0]


def test_rows_without_an_outcome_are_left_out_and_counted(tmp_path: Path) -> None:
    frame = patients(50).astype({"died": object})
    frame.loc[[3, 7], "days"] = np.nan
    frame.loc[8, "died"] = None
    read = cohort(tmp_path, frame)
    assert (len(read), read.incomplete) == (47, 3)
    assert [f.numbers["rows"] for f in check_cohort(read) if f.code == "outcome-missing"] == [3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"time": "Days"}, "did you mean 'days'"),
        ({"event": "dead"}, "does not have"),
        ({"time": "died", "event": "died"}, "two columns"),
        ({"time": "stage"}, "not numbers, such as 'I"),
        ({"event": "age"}, "different values"),
        ({"unit": "fortnights"}, "days, weeks, months or years"),
    ],
)
def test_wrong_columns_are_named(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=f"(?i){words}") as caught:
        cohort(tmp_path, patients(80), **changes)
    assert caught.value.parameter in changes


def test_an_outcome_column_of_which_there_are_two_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "age,days,died,days\n60,5,1,6\n70,6,0,7\n")
    with pytest.raises(CohortError, match="more than one"):
        read_cohort(path, time="days", event="died")


# --- durations ----------------------------------------------------------------------------------------------


def test_durations() -> None:
    assert parse_duration("5").time == 5
    assert parse_duration("1y", "days").time == 365.25
    assert parse_duration("6m", "years").time == pytest.approx(0.5)
    assert parse_duration("30 d", "weeks").time == pytest.approx(30 / 7)
    assert parse_duration("2 weeks", "days").label == "2w"
    for text in ("1900000", "1234567", "0.00002", "123456.5"):  # labels can be asked for again
        label = parse_duration(text).label
        assert parse_duration(label).label == label
    assert parse_duration("1900000").label == "1900000"
    assert parse_duration("0.000020y", "days").label == "0.00002y"
    assert [h.label for h in parse_horizons("5y, 1y,5y", "months")] == ["1y", "5y"]
    with pytest.raises(InputError, match=r"'1' has no unit, but '5y' has one\. .* the decimal sign is a point: 1\.5y"):
        parse_horizons("1,5y", "days")
    for text, words in (
        ("1y", "unit='days'"),
        ("five", "not a duration"),
        ("-1", "not a duration"),
        ("0", "after time 0"),
    ):
        with pytest.raises(InputError, match=words):
            parse_duration(text)


def test_horizons_are_round_and_inside_the_follow_up() -> None:
    frame = patients(400)
    y = frame["days"].to_numpy(), frame["died"].to_numpy()
    last = last_usable_time(y[0], y[1] == 1)
    assert (y[0] >= last).sum() >= 10
    chosen = choose_horizons(y, "days", last)
    assert all(0 < h.time <= last for h in chosen)
    assert {h.label[-1] for h in chosen} <= set("dwmy")
    assert all(f"{h.time:.2g}" == h.label or float(h.label) == h.time for h in choose_horizons(y, None, last))


def test_horizons_that_patients_can_say_something_about() -> None:
    frame = patients(400)
    y = make_outcome(frame["days"], frame["died"])
    last, end = last_usable_time(y["time"], y["event"]), float(y["time"].max())
    first = float(y["time"][y["event"]].min())
    asked = [first / 2, first, last, (last + end) / 2, end, 2 * end]
    usable, unusable = usable_horizons(asked, y)
    assert usable == [first, last]
    assert [(one.time, one.why) for one in unusable] == [
        (asked[0], "no event yet"), (asked[3], "few under observation"), (end, "follow-up over"),
        (2 * end, "follow-up over"),
    ]  # fmt: skip
    assert unusable[1].describe("days").startswith("too few of these patients are under observation after ")
    early = y[y["time"] < last / 2]
    assert [one.why for one in usable_horizons([last], y, early)[1]] == ["training over"]
    censored = make_outcome(frame["days"], 0 * frame["died"])
    assert [one.why for one in usable_horizons([last], censored)[1]] == ["no event yet"]


# --- checks -------------------------------------------------------------------------------------------------


def codes(found: list[Any]) -> dict[str, Any]:
    return {finding.code: finding for finding in found}


def test_a_clean_cohort_raises_no_warning(tmp_path: Path) -> None:
    found = check_cohort(cohort(tmp_path, patients(1500)))
    assert {finding.severity for finding in found} <= {"note"}
    assert "last-usable-horizon" in codes(found)


def test_troubles_are_found(tmp_path: Path) -> None:
    frame = patients(300)
    died = frame["died"] == 1
    rng = np.random.default_rng(1)
    frame["months"] = (frame["days"] / 30.4 + rng.normal(0, 0.01, 300)).round(2)  # the time again
    frame["status_text"] = np.where(died, "deceased of disease", "no evidence of disease")  # the event again
    frame["cause"] = np.where(died, rng.choice(["cancer", "other"], 300), None)  # only the dead have it
    frame["sparse"] = np.where(rng.random(300) < 0.3, rng.normal(size=300), np.nan)
    frame["hospital"] = "A"
    frame.loc[5, "days"] = 0
    frame = pd.concat([frame, frame.iloc[:4]], ignore_index=True)
    found = codes(check_cohort(cohort(tmp_path, frame), parse_horizons("40y", "days")))
    assert found["duplicate-rows"].numbers["rows"] == 4
    assert found["time-zero"].numbers["rows"] == 1
    assert found["missing-values"].columns == ("cause", "sparse")
    assert found["constant-columns"].columns == ("hospital",)
    assert found["horizon-too-late"].severity == "warning"
    suspects = [f for f in check_cohort(cohort(tmp_path, frame)) if f.code == "leakage"]
    assert {f.columns[0] for f in suspects} >= {"months", "status_text"}
    assert not {f.columns[0] for f in suspects} & {"age", "stage", "sparse"}
    assert found["known-for-one-side"].columns == ("cause",)
    assert found["known-for-one-side"].parameter == "drop"
    assert "drop=['cause']" in found["known-for-one-side"].remedy


def test_too_little_is_said(tmp_path: Path) -> None:
    wide = patients(120)
    wide = wide.join(
        pd.DataFrame(np.random.default_rng(0).normal(size=(120, 30)), columns=[f"x{i}" for i in range(30)])
    )
    found = codes(check_cohort(cohort(tmp_path, wide)))
    size = found["sample-size"]
    assert size.severity == "warning"
    assert size.parameter == "drop"
    assert size.numbers["parameters"] == wide.shape[1] - 2 + 1  # three levels of a stage are two columns
    assert size.numbers["patients_needed"] > 120 == size.numbers["patients"]
    assert f"ask for {size.numbers['patients_needed']:,} patients" in size.message
    assert "drop=" in size.remedy
    assert "events-per-bucket" in found
    none = codes(check_cohort(cohort(tmp_path, patients(40).assign(died=0))))
    assert none["no-events"].severity == "error"
    negative = patients(40)
    negative.loc[2, "days"] = -3
    assert codes(check_cohort(cohort(tmp_path, negative)))["negative-times"].severity == "error"
    one = codes(check_cohort(cohort(tmp_path, patients(1))))
    assert one["too-few-patients"].severity == "error"


def test_a_table_of_many_chunks_is_read_as_one_of_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements are read as numbers then, with the same bits; words, levels and identifiers are what they were."""
    n = 3000
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "exact": [repr(float(value)) for value in rng.normal(size=n) * 10.0 ** rng.integers(-9, 9, n)],
            "mixed": [f"{value:.4f}" for value in rng.normal(size=n)],
            "padded": [f"{value:.3f} " for value in rng.normal(size=n)],
            "grade": rng.choice(["01", "1.50", "2"], n),
            "number": np.arange(n) + 7,
            "time": [f"{value:.4f}" for value in rng.exponential(size=n) + 0.1],
            "died": rng.integers(0, 2, n),
        }
    )
    table.loc[2500, "mixed"] = "unknown value"
    table.loc[[3, 2600], "mixed"] = "NA"
    table.loc[2700, "padded"] = " n/a "
    table.loc[[5, 2800], "time"] = ""
    table.to_csv(tmp_path / "p.csv", index=False)
    ask = {"time": "time", "event": "died", "categorical": ["grade"]}
    once = read_cohort(tmp_path / "p.csv", **ask)
    assert read_table(tmp_path / "p.csv").frame["exact"].map(type).eq(str).all()
    monkeypatch.setattr(reading, "_CHUNK_ROWS", 500)
    monkeypatch.setattr(files, "_IN_MEMORY", 1000)
    assert read_table(tmp_path / "p.csv").frame["exact"].dtype == np.float64
    again = read_cohort(tmp_path / "p.csv", **ask)
    pd.testing.assert_frame_equal(again.features, once.features, check_exact=True)
    assert again.columns == once.columns
    assert again.digest == once.digest
    np.testing.assert_array_equal(again.time, once.time)
    assert [c.text for c in once.columns if c.reason == "mixed"] == ["1 value counts as missing: 'unknown value'"]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("categorical", ["days"]),
        ("numeric", ["age", "died"]),
        ("drop", ["days"]),
        ("missing_values", {"days": [999]}),
        ("group", "days"),
    ],
)
def test_the_outcome_can_be_nothing_else(parameter: str, value: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": range(20, 60), "days": range(1, 41), "died": [0, 1] * 20})
    frame.to_csv(tmp_path / "p.csv", index=False)
    outcome = {"time": "days", "event": "died"}
    for make in (
        lambda: Cohort.from_frame(frame, **outcome, **{parameter: value}),
        lambda: read_cohort(tmp_path / "p.csv", **outcome, **{parameter: value}),
    ):
        with pytest.raises(CohortError, match=rf"{parameter}= names '(days|died)', which holds the outcome") as caught:
            make()
        assert caught.value.parameter == parameter
        assert caught.value.remedy


def test_a_unit_that_is_none_is_an_error_of_the_cohort_with_a_remedy() -> None:
    frame = pd.DataFrame({"age": range(20, 60), "days": range(1, 41), "died": [0, 1] * 20})
    with pytest.raises(CohortError, match="unit= is 'fortnights', but days, weeks, months or years") as caught:
        Cohort.from_frame(frame, time="days", event="died", unit="fortnights")
    assert caught.value.parameter == "unit"
    assert "Convert the times" in caught.value.remedy
    with pytest.raises(InputError, match="not a duration after time 0") as zero:
        parse_horizons("0")
    assert "30d" in zero.value.remedy


def test_a_table_without_features_is_told_why_and_what_to_do() -> None:
    frame = pd.DataFrame({"age": range(20, 60), "clinic": "A", "days": range(1, 41), "died": [0, 1] * 20})
    outcome = {"time": "days", "event": "died"}
    for table, options, words, parameter, remedy in (
        (frame, {"drop": ["age", "clinic"]}, "'age (as asked)', 'clinic (as asked)'", "drop", "Name fewer"),
        (frame.drop(columns="age"), {}, "is always 'A'", "categorical", "keep one with categorical="),
        (frame[["days", "died"]], {}, "no column to predict from.", None, "Add columns"),
    ):
        cohort = Cohort.from_frame(table, **outcome, **options)
        found = next(one for one in check_cohort(cohort) if one.code == "no-features")
        assert words in found.message
        assert found.parameter == parameter
        assert remedy in found.remedy
        with pytest.raises(CohortError) as caught:
            require_features(cohort)
        assert (caught.value.parameter, caught.value.remedy) == (found.parameter, found.remedy)
