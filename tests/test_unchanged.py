"""The house was rebuilt; what it computes was not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import unchanged


@pytest.mark.parametrize("cohort", unchanged.COHORTS)
def test_predictions_and_scores_are_those_of_before(cohort: str) -> None:
    expected = json.loads(unchanged.FILE.read_text())
    digests = unchanged.expected_digests(expected)
    for name, found in unchanged.measure(cohort).items():
        numbers = expected["numbers"][cohort][name]
        for part, values in found["numbers"].items():
            np.testing.assert_allclose(values, numbers[part], atol=5e-3, err_msg=f"{name}: {part}")
        if digests is not None:
            assert found["digests"] == digests[cohort][name], name


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--chek"], 2), (["--add", "--check"], 2), (["x"], 2)])
def test_what_is_mistyped_writes_nothing(
    words: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(unchanged, "FILE", tmp_path / "expected.json")
    monkeypatch.setattr(unchanged, "measure", lambda cohort: {})
    with pytest.raises(SystemExit) as ended:
        unchanged.main(words)
    assert ended.value.code == code
    assert not unchanged.FILE.exists()


def test_the_file_is_written_anew_added_to_or_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(unchanged, "FILE", tmp_path / "expected.json")
    monkeypatch.setattr(unchanged, "measure", lambda cohort: {})
    unchanged.main([])
    own = json.loads(unchanged.FILE.read_text())
    other = {"machine": {"processor": "another"}, "cohorts": {}}
    both = {**own, "digests": [other, *own["digests"]]}
    for words in (["--add"], ["--check"]):
        unchanged.FILE.write_text(json.dumps(both))
        unchanged.main(words)
        assert json.loads(unchanged.FILE.read_text()) == both
    unchanged.main([])
    assert json.loads(unchanged.FILE.read_text()) == own


def test_a_machine_is_known_by_more_than_the_name_of_its_processor() -> None:
    """Two generations of one name differ in the last bits of what they compute."""
    known = {"machine": unchanged.machine(), "cohorts": {}}
    other = {"machine": {**unchanged.machine(), "instructions": "others"}, "cohorts": {"support": {}}}
    assert unchanged.expected_digests({"digests": [other, known]}) == {}
    assert unchanged.expected_digests({"digests": [other]}) is None
