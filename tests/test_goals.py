"""What the goals are judged by: the rows that are there, and what a perfect model would score."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

from dcsurv.experiments.plan import CALIBRATED
from dcsurv.experiments.reproduced_tables import repeated_tables
from dcsurv.experiments.tables import METRICS

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import update_readme

# --- the goals ----------------------------------------------------------------------------------------------------


def test_goals_are_judged_on_the_rows_that_are_there(tmp_path, monkeypatch):
    names = (*METRICS, "marginal CDAUC", "marginal IBS")
    rows = [
        {"dataset": dataset, "model": model, "split": split, "key": f"{model}{split}", "fit_seconds": 1.0,
         "split_sha256": str(split), **dict.fromkeys(names, value + 0.01 * split)}
        for dataset in ("support", "metabric", "flchain")
        for model, value, splits in ((CALIBRATED, 0.7, 4), ("CoxPH", 0.72, 4), ("DRSA", 0.69, 2))
        for split in range(splits)
    ]  # fmt: skip
    monkeypatch.setattr(update_readme, "RESULTS", tmp_path)
    folder = tmp_path / "calibrated"
    for table in repeated_tables(pd.DataFrame(rows)):
        table.write(folder / "tables")
    text = update_readme.goals()
    assert "| SUPPORT | C-td | 0.7150 | at least 0.643: yes | at least 0.648: yes | 0.7350 (CoxPH) |  |" in text
    assert "| FLCHAIN | CDAUC | 0.7150 |  | at least 0.832: no, 0.1170 away |" in text
    # Both have two splits in common, on which DRSA is lower by 0.01, whatever the means over all are.
    assert "lowest of all rows, on common splits: no, 0.0100 away from DRSA" in text
    assert "0.6950 (DRSA, 2 splits)" in text
    assert "p above .05 against a perfect model: not computed yet" in text
    # CoxPH is ahead on every split by the same: no chance about it.
    assert "| SUPPORT | C-td | CoxPH | 4 | +0.0200 | 0.0000 | yes |" in update_readme.rivals()
    assert "| SUPPORT | IBS | DRSA | 2 | -0.0100 | 0.0000 | yes |" in update_readme.rivals()
    (folder / "rows").mkdir()
    for split, p in enumerate((0.04, 0.06)):
        found = [{"metric": "ICI", "floor": 0.03 + split / 100, "null_95": 0.72, "p_value": p}] * 3
        path = folder / "rows" / f"metabric_calibrated-ensemble_s{split}_r0_0.json"
        path.write_text(json.dumps({"row": {"metrics": {"default": found}}}), encoding="utf-8")
    assert "a perfect model (0.0350, 95th percentile 0.7200): in 1 of 2 splits" in update_readme.goals()
    others = [row for row in rows if row["model"] != CALIBRATED]
    for table in repeated_tables(pd.DataFrame(others)):
        table.write(folder / "tables")
    assert update_readme.goals() == "The run is not committed yet."
