"""Bad and odd tables: some through every command here, all of them in `python benchmarks/bad_tables.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import bad_tables

# Every so many tables, so that each family is among them.
SOME = 24
TABLES = bad_tables.tables()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bad_tables.good_model(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("number", range(0, len(TABLES), SOME))
def test_a_table_ends_as_expected(number: int, model: Path, tmp_path: Path) -> None:
    table = TABLES[number]
    row = bad_tables.through(table, tmp_path, model)
    assert "UNEXPECTED" not in (row["check"], row["fit"], row["predict"]), row
    assert row["said"], row
    assert row["agree"], row
    assert not list(tmp_path.iterdir())  # nothing is left behind


def test_the_committed_run_is_of_these_tables_and_without_fault() -> None:
    rows = pd.read_csv(bad_tables.OUT / "rows.csv", keep_default_na=False)
    assert rows["table"].tolist() == [table.name for table in TABLES]
    assert rows["table"].is_unique
    assert len(rows) >= 200
    assert rows["said"].all()
    assert rows["agree"].all()
    assert not (rows[["check", "fit", "predict"]] == "UNEXPECTED").to_numpy().any()
