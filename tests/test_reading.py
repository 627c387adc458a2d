"""Files that are strange: pipes, archives, broken workbooks, lists in cells, wide headers, thousands."""

from __future__ import annotations

import gzip
import io
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dcsurv.cli import app
from dcsurv.cohort import Cohort, CohortError, binary_files, find_outcome, inspect_table, read_chunks, read_table
from dcsurv.cohort import files as table_files
from dcsurv.messages import did_you_mean
from dcsurv.preprocessing import Preprocessor
from test_cli import OUTCOME, patients, run

TABLE = b"age,days,died\n61,100,1\n55,1200,0\n"


def standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Pipe bytes into the program."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_table_comes_out_of_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard_input(monkeypatch, TABLE)
    assert read_table("-").frame["days"].tolist() == ["100", "1200"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(TABLE,)).start()
    assert read_table(pipe).frame["age"].tolist() == ["61", "55"]


def test_much_out_of_a_pipe_goes_through_a_file_that_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_IN_MEMORY", 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    standard_input(monkeypatch, TABLE)
    form = inspect_table("-")
    assert len(list(tmp_path.iterdir())) == 1
    assert next(read_chunks(form))["days"].tolist() == ["100", "1200"]
    del form
    assert not list(tmp_path.iterdir())
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(TABLE))  # what unpacks to more than memory should hold is read piece by piece
    assert read_table(path).frame["days"].tolist() == ["100", "1200"]


def test_check_and_predict_read_standard_input(tmp_path: Path) -> None:
    content = patients().to_csv(index=False).encode()
    path, model = tmp_path / "p.csv", tmp_path / "m.safetensors"
    path.write_bytes(content)
    run("fit", path, *OUTCOME, "--model", "coxph", "--evaluate", "none", "-o", model)
    assert "standard input: 240 patients" in CliRunner().invoke(app, ["check", "-", *OUTCOME], input=content).stdout
    piped, named = tmp_path / "piped.csv", tmp_path / "named.csv"
    assert CliRunner().invoke(app, ["predict", str(model), "-", "-o", str(piped)], input=content).exit_code == 0
    run("predict", model, path, "-o", named)
    assert piped.read_bytes() == named.read_bytes()
    assert "standard input is empty" in run("check", "-", *OUTCOME, code=2).stderr


def test_links_devices_and_strange_names_end_in_words(tmp_path: Path) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    assert "is a link that leads to no file" in run("check", loop, *OUTCOME, code=2).stderr
    done = run("fit", loop, *OUTCOME, "-o", tmp_path / "m.safetensors", code=2)
    assert "is a link that leads to no file" in " ".join(done.stderr.split())
    with pytest.raises(CohortError, match="neither a file nor a pipe"):
        read_table("/dev/zero")
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m.csv"))
    patients().to_csv(odd, index=False)
    done = run("check", odd, *OUTCOME)
    assert r"\udcff\x1b[31m.csv: 240 patients" in done.stdout
    assert "\x1b" not in done.stdout
    done = run("check", odd, *OUTCOME, "--json")
    done.stdout.encode()  # no half characters


def workbook(path: Path, *sheets: str) -> Path:
    with pd.ExcelWriter(path) as writer:
        for sheet in sheets:
            patients().head(40).to_excel(writer, sheet_name=sheet, index=False)
    return path


def without_part(path: Path, name: str, content: bytes) -> None:
    """Write a workbook again with another content of one of its parts."""
    with zipfile.ZipFile(path) as archive:
        parts = {one: archive.read(one) for one in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for one, own in {**parts, name: content}.items():
            archive.writestr(one, own)


def test_a_workbook_names_its_other_sheets(tmp_path: Path) -> None:
    path = workbook(tmp_path / "w.xlsx", "patients", "codes", "old")
    said = " ".join(run("check", path, *OUTCOME).stdout.split())
    assert "3 sheets; 'patients' was read. Choose another with --sheet: 'codes', 'old'." in said


def test_broken_workbooks_end_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "w.xlsx", "patients")
    sheet = "xl/worksheets/sheet1.xml"
    for name, content in ((sheet, b"<worksheet"), (sheet, b"\x00" * 50), ("xl/workbook.xml", b"<a/>")):
        workbook(path, "patients")
        without_part(path, name, content)
        with pytest.raises(CohortError, match="cannot be read as an Excel workbook"):
            read_table(path)
    whole = workbook(path, "patients").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CohortError, match="cannot be read as an Excel workbook"):
        read_table(path)
    for entry, expected in (("word/document.xml", "an archive"), ("mimetype", "an OpenDocument file")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(entry, "x")
        with pytest.raises(CohortError, match=expected):
            read_table(path)
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600
    path.write_bytes(old)
    with pytest.raises(CohortError, match="a workbook of an old Excel"):
        read_table(path)
    path.write_bytes(old + "EncryptedPackage".encode("utf-16-le"))
    with pytest.raises(CohortError, match="protected by a password"):
        read_table(path)


def test_a_workbook_that_would_fill_the_memory_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary_files, "_MOST_UNPACKED", 10 << 20)
    path = workbook(tmp_path / "w.xlsx", "patients")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("xl/much.xml", "w") as part:
        part.write(bytes(60 << 20))
    monkeypatch.setattr("openpyxl.load_workbook", None)  # nothing is unpacked
    with pytest.raises(CohortError, match=r"would unpack to 0\.1 GB, and workbooks are read up to 0\.0 GB"):
        read_table(path)


def test_columns_of_lists_are_left_out(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    frame, n = patients(), len(patients())
    columns: dict[str, Any] = {
        "lists": pa.array([[1, 2]] * n),
        "records": pa.array([{"a": 1}] * n),
        "bytes": pa.array([b"x"] * n),
        **{str(name): pa.array(frame[name]) for name in frame},
    }
    pq.write_table(pa.table(columns), path := tmp_path / "p.parquet")
    said = " ".join(run("check", path, *OUTCOME).stdout.split())
    assert "lists, records or bytes were left out: 'lists', 'records', 'bytes'." in said
    model = tmp_path / "m.safetensors"
    run("fit", path, *OUTCOME, "--model", "coxph", "--evaluate", "none", "-o", model)
    run("predict", model, path, "--keep", "patient_id", "-o", out := tmp_path / "out.parquet")
    assert pd.read_parquet(out)["patient_id"].tolist() == frame["patient_id"].tolist()
    pq.write_table(pa.table({"lists": [[1]]}), path)
    with pytest.raises(CohortError, match=r"all columns of p\.parquet hold lists, records or bytes"):
        read_table(path)
    with pytest.raises(CohortError, match="the column 'x' holds a list in row 1"):
        Cohort.from_frame(frame.assign(x=[[1]] * n), time="days", event="died")


def test_a_header_longer_than_a_sample_is_whole(tmp_path: Path) -> None:
    names = [f"ENSG{k:011d}" for k in range(9_000)]
    path = tmp_path / "wide.csv"
    rows = np.arange(27_000.0).reshape(3, -1) / 7
    path.write_text("\n".join([",".join(names), *(",".join(f"{value:.3f}" for value in row) for row in rows)]) + "\n")
    table = read_table(path)
    assert table.frame.shape == (3, 9_000)
    assert (table.frame.dtypes == np.float64).all()
    assert np.allclose(table.frame.to_numpy(), rows, atol=1e-3)
    path.write_text('"' + "n" * 200_000 + '",b\n1,2\n')
    assert read_table(path).frame.shape == (1, 2)


def test_words_among_very_many_columns_stay_words(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    frame = pd.DataFrame(np.arange(3 * 1001.0).reshape(3, -1)).add_prefix("g")
    frame.assign(smoker=[True, False, True], stage=["I", None, "III"]).to_csv(path, index=False)
    table = read_table(path).frame
    assert table["smoker"].tolist() == ["True", "False", "True"]
    assert table["stage"].fillna("missing").tolist() == ["I", "missing", "III"]


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_commas_that_group_thousands_are_read_as_such(tmp_path: Path, sign: str) -> None:
    days = ["950", "1,521", "12,003", "88"]
    path = tmp_path / "p.csv"
    pd.DataFrame({"age": [61, 50, 40, 30], "days": days}).to_csv(path, index=False, sep=sign)
    table = read_table(path)
    assert table.frame["days"].tolist() == ["950", "1521", "12003", "88"]
    assert "commas were read as grouping thousands in 'days (1,521)'" in table.notes[0]


def test_decimal_commas_of_three_digits_stay_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("age;crea\n61;1,521\n50;0,800\n40;12,003\n")
    assert read_table(path).frame["crea"].tolist() == ["1.521", "0.800", "12.003"]


def test_what_looks_like_thousands_gets_the_right_remedy() -> None:
    frame = pd.DataFrame({"age": [61.0, 50, 40], "days": ["950", "1,521", "12,003"], "died": [1, 0, 1]})
    thousands = "comma in '1,521' seems to group thousands: write 1521; if it is a decimal comma, "
    outcome = {"time": "days", "event": "died"}
    columns = find_outcome(frame, **outcome)
    with pytest.raises(CohortError, match=f"{thousands}give decimal=','"):
        columns.read(frame, from_text=True)
    with pytest.raises(CohortError, match=rf"{thousands}1\.521\."):
        Cohort.from_frame(frame, **outcome)
    frame = frame.assign(days=["9,5", "1,5", "2"])
    with pytest.raises(CohortError, match="These are decimal commas, which are read with decimal=','"):
        columns.read(frame, from_text=True)
    with pytest.raises(CohortError, match=r"turn them into numbers, such as 9\.5 for '9,5'\.$"):
        Cohort.from_frame(frame, **outcome)  # which has no decimal=


def test_a_name_that_is_nearly_right_is_asked_back(tmp_path: Path) -> None:
    assert did_you_mean("Stagee", ["age", "stage"]) == "Did you mean 'stage'? "
    path, model = tmp_path / "p.csv", tmp_path / "m.safetensors"
    patients().to_csv(path, index=False)
    assert "Did you mean 'stage'?" in run("validate", path, *OUTCOME, "--by", "stge", "-o", model, code=2).stderr
    run("fit", path, *OUTCOME, "--model", "coxph", "--evaluate", "none", "-o", model)
    patients().rename(columns={"stage": "Stadge"}).to_csv(path, index=False)
    said = " ".join(run("predict", model, path, "-o", tmp_path / "out.csv", code=2).stderr.split())
    assert "Did you mean 'Stadge'?" in said
    with pytest.raises(ValueError, match="Did you mean 'stages'"):
        Preprocessor().fit(pd.DataFrame({"stage": ["I", "II"] * 9})).transform(pd.DataFrame({"stages": ["I"]}))


def test_too_large_a_number_is_named_by_its_row() -> None:
    with pytest.raises(ValueError, match=r"column 'a' holds 1e\+308 in row 2, a number too large"):
        Preprocessor().fit(pd.DataFrame({"a": [1.0, 1e308, 3.0]}))
