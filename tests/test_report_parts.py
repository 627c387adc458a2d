"""Parts of the report that can be looked at without a page: differences between groups, lists of items, sentences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dcsurv import make_outcome
from dcsurv.cohort import find_outcome
from dcsurv.report.blocks import Folded, Section, p_value
from dcsurv.report.group_differences import group_differences, holm
from dcsurv.report.performance import imprecise
from dcsurv.report.population import outcome_words
from dcsurv.report.provenance import which_model
from dcsurv.report.summary import _trust
from dcsurv.report.tripod import checklists


def groups(**values: Any) -> pd.DataFrame:
    own = {"column": "sex", "group": "f", "c_td": 0.70, "sd_c_td": 0.03, "ratio": 1.2, "sd_ratio": 0.12}
    other = {"others_c_td": 0.62, "others_sd_c_td": 0.04, "others_ratio": 0.8, "others_sd_ratio": 0.08}
    return pd.DataFrame([own | other | values])


def test_a_group_is_compared_by_the_variances_of_both() -> None:
    ranking, level = group_differences(groups()).to_dict("records")
    assert (ranking["metric"], level["metric"]) == ("C-td", "O/E")
    assert ranking["difference"] == pytest.approx(0.08)
    assert ranking["upper"] - ranking["lower"] == pytest.approx(2 * 1.96 * 0.05, rel=1e-3)  # hypot(0.03, 0.04)
    assert ranking["p"] == pytest.approx(0.1096, abs=1e-4)  # of z = 1.6
    assert level["ratio"] == pytest.approx(1.5)
    assert level["lower"] * level["upper"] == pytest.approx(1.5**2)  # an interval of the logarithm
    assert level["p"] == pytest.approx(0.00414, abs=1e-5)  # of z = log(1.5) / hypot(0.1, 0.1)
    assert level["p_corrected"] == pytest.approx(2 * level["p"])


def test_what_could_not_be_measured_is_not_compared() -> None:
    assert group_differences(groups(others_c_td=np.nan, others_sd_c_td=np.nan, ratio=0.0)).empty
    assert group_differences(groups().drop(columns=["others_c_td", "sd_ratio"])).empty
    assert group_differences(groups(sd_c_td=0.0, others_sd_c_td=0.0))["metric"].tolist() == ["O/E"]


def test_equal_groups_are_told_apart_as_rarely_as_holm_says() -> None:
    """Of 400 times five equal groups, at least one is named in about one of twenty."""
    rng = np.random.default_rng(0)
    named = 0
    for _ in range(400):
        value = rng.normal(0.7, 0.05, 10)
        rows = [
            groups(c_td=value[k], sd_c_td=0.05, others_c_td=value[k + 5], others_sd_c_td=0.05, ratio=np.nan)
            for k in range(5)
        ]
        named += bool((group_differences(pd.concat(rows))["p_corrected"] < 0.05).any())
    assert 4 <= named <= 36  # 20 expected, with a standard deviation of 4.4


def test_holm_multiplies_the_least_most() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_fold_holds_what_is_added_meanwhile() -> None:
    section = Section("key", "Title")
    section.say("seen")
    with section.folded("More"):
        section.say("folded")
    with section.folded("Nothing"):
        pass
    assert [type(block) for block in section.blocks[1:]] == [Folded]
    assert section.blocks[1].title == "More"  # type: ignore[union-attr]


def test_both_lists_name_every_item_and_only_sections_that_are_there() -> None:
    titles = {"cohort": "The patients", "model": "The model", "calibration": "Calibration"}
    tripod, probast = checklists(titles)
    asked = [row[0] for row in tripod.blocks[1].blocks[0].rows]  # type: ignore[union-attr]
    assert len(asked) == len(set(asked)) == 52
    assert {item.rstrip("abcdefg") for item in asked} == {str(k) for k in range(1, 28)}
    rows = probast.blocks[1].blocks[0].rows  # type: ignore[union-attr]
    questions = [name for row in rows for name in row[0].split(", ")]
    assert sum(name.startswith("D") for name in questions) == 16
    assert sum(name.startswith("E") for name in questions) == 18
    assert len(set(questions)) == 34
    named = {title for row in rows for title in row[2].split("; ")}
    assert named <= {*titles.values(), "At a glance", "–"}


def test_the_outcome_is_named_with_its_coding() -> None:
    table = pd.DataFrame({"days": [3.0, 5.0], "status": ["dead", "alive"]})
    outcome = find_outcome(table, time="days", event="status", unit="days")
    said = outcome_words(SimpleNamespace(outcome=outcome, unit="days"))  # type: ignore[arg-type]
    assert "‘status’: dead = event, alive = censored" in said
    assert "‘days’, in days" in said
    assert "not known" in outcome_words(SimpleNamespace(outcome=None, unit=None))  # type: ignore[arg-type]


def test_the_page_says_which_model_the_file_holds() -> None:
    held = "This page describes the model fitted to 80 of 100 patients. m.safetensors holds one fitted to all."
    assert which_model(SimpleNamespace(file_holds=held)) == held  # type: ignore[arg-type]
    assert "that was passed" in which_model(SimpleNamespace(file_holds=None))  # type: ignore[arg-type]


def study(events: int) -> Any:
    y = make_outcome(np.arange(1.0, 101), np.arange(100) < events)
    return SimpleNamespace(y=y, n_events=events, name="M", when=lambda t: f"{t:g} years")


def test_a_wide_interval_says_how_many_events_would_do() -> None:
    row = {"metric": "C-td", "model": "M", "value": 0.7, "lower": 0.6, "upper": 0.8}
    said = imprecise(study(50), [row])
    assert "between 0.60 and 0.80" in said
    assert "about 200 would" in said  # half the width takes four times the events
    assert imprecise(study(50), [row | {"lower": 0.66, "upper": 0.74}]) == ""
    assert "All of this rests on 3 events" in imprecise(study(3), [])


def test_probabilities_are_judged_by_what_a_perfect_model_would_score() -> None:
    def sections(p: float, of_all: float, slope: float = 1.0) -> dict[str, Section]:
        null = {"floor": 0.02, "null_95": 0.04, "p_value": p}
        found = {"calibration": Section("calibration", ""), "distribution": Section("distribution", "")}
        at = {
            "horizon": 5.0,
            "ici": 0.055,
            "ici_null": null,
            "slope": slope,
            "slope_interval": (slope - 0.2, slope + 0.4),
        }
        found["calibration"].numbers["horizons"] = [at]
        found["distribution"].numbers["d_calibration"] = [{"p_value": of_all}]
        return found

    told, numbers = _trust(study(50), sections(0.004, 0.5))
    assert told.startswith("Not as they are. Predicted and observed risk by 5 years differ by 5.5 percentage points")
    assert "3 tests of calibration, corrected for their number: p = 0.01" in told
    assert numbers is not None
    assert numbers["p"]["ICI by 5 years"] == pytest.approx(0.012)
    told, _ = _trust(study(50), sections(0.04, 0.5))
    assert told.startswith("These tests do not speak against it. Predicted"), "one of three tests at 0.04 is chance"
    told, numbers = _trust(study(50), sections(0.4, 0.5, slope=1.4))
    assert told.startswith("Not as they are. Predicted risks by 5 years are less spread out")
    assert numbers is not None
    assert numbers["p"]["slope by 5 years"] == pytest.approx(3 * 8.86e-5, rel=0.01)  # z = 0.4 / (0.2 / 1.96)
    told, _ = _trust(study(50), sections(0.4, 0.5, slope=0.7))
    assert told.startswith("These tests do not"), "towards 1 the interval is wide: z = 0.3 / (0.4 / 1.96)"
    empty = {"calibration": Section("calibration", ""), "distribution": Section("distribution", "")}
    assert "cannot be told" in _trust(study(0), empty)[0]
    empty["distribution"].numbers["d_calibration"] = [{"p_value": 0.6}]
    assert "with 50 events this proves little" in _trust(study(50), empty)[0]


def test_p_values_have_the_digits_they_deserve() -> None:
    assert [p_value(p) for p in (0.0002, 0.0042, 0.042, 0.42)] == ["p < 0.001", "p = 0.004", "p = 0.04", "p = 0.42"]
