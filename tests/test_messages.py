"""Sentences that know their parameters, errors that carry a remedy, values as plain data."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from dcsurv.cli.words import option
from dcsurv.cohort import CohortError
from dcsurv.durations import describe_time
from dcsurv.messages import (
    InputError,
    Message,
    ModelChoice,
    ModelParameter,
    Parameter,
    cause_of,
    plural,
    say,
    short,
)
from dcsurv.plain import level_text, plain

NESTED = Message("{column!r} holds {coding}.", column="{age}", coding=Message("1 = event; if not, {event_values}"))


def test_a_message_is_said_in_the_words_of_python_and_of_the_command_line() -> None:
    message = Message("Check {time} and {event_values} for {column!r}.", column="a {b}")
    assert message == "Check time= and event_values= for 'a {b}'."
    assert say(message, option) == "Check --time and --event-value for 'a {b}'."
    assert NESTED == "'{age}' holds 1 = event; if not, event_values=."
    assert NESTED.say(option) == "'{age}' holds 1 = event; if not, --event-value."
    assert say("as {it} is", option) == "as {it} is"


@pytest.mark.parametrize(
    ("reference", "python", "command_line"),
    [
        (Parameter("time"), "time=", "--time"),
        (Parameter("date_format", "%d/%m/%Y"), "date_format='%d/%m/%Y'", "--date-format %d/%m/%Y"),
        (Parameter("event_values", ["1", "x y"]), "event_values=['1', 'x y']", "--event-value 1 --event-value 'x y'"),
        (Parameter("drop", ["it's"]), 'drop=["it\'s"]', "--drop 'it'\"'\"'s'"),
        (ModelParameter("n_nodes", 15), "n_nodes=15", "--set n_nodes=15"),
        (ModelChoice("CoxPH"), "CoxPH", "--model coxph"),
        (ModelChoice("SplineCox"), "SplineCox", "--model spline-cox"),
    ],
)
def test_references(reference: Any, python: str, command_line: str) -> None:
    assert (str(reference), option(reference)) == (python, command_line)


def test_messages_and_errors_travel_between_processes() -> None:
    for twin in (pickle.loads(pickle.dumps(NESTED)), copy.deepcopy(NESTED)):
        assert twin == NESTED
        assert twin.say(option) == NESTED.say(option)
    error = CohortError(Message("{time} is {n}.", n="{odd}"), parameter="time", remedy=Message("Check {event}."))
    assert str(error) == "time= is {odd}. Check event=."
    twin = pickle.loads(pickle.dumps(error))
    assert isinstance(twin, InputError)
    assert (str(twin), twin.parameter, twin.say(option)) == (str(error), "time", "--time is {odd}. Check --event.")


def test_an_error_becomes_one_of_another_kind_with_what_it_knows() -> None:
    error = InputError(Message("{time} is bad."), parameter="time", remedy=Message("Check {event}."))
    other = CohortError.of(error, "folder/{a}.csv")
    assert isinstance(other, CohortError)
    assert str(other) == "folder/{a}.csv: time= is bad. Check event=."
    assert other.say(option) == "folder/{a}.csv: --time is bad. Check --event."
    assert (other.parameter, other.remedy) == ("time", "Check event=.")
    assert (str(CohortError.of(KeyError("a"))), CohortError.of(ValueError("b")).parameter) == ("'a'", None)


def test_the_cause_of_a_failure_is_a_sentence_and_not_the_name_of_a_class() -> None:
    assert cause_of(InputError("No event.", remedy="Add some.")) == "No event. Add some."
    assert cause_of(MemoryError("no room")) == "MemoryError: no room"
    assert cause_of(ValueError()) == "ValueError: "


def test_numbers_and_words_agree() -> None:
    assert plural(1, "patient has", "patients have") == "1 patient has"
    assert plural(1200, "patient") == "1,200 patients"
    assert [short(x) for x in (1826, 1826.25, 62.41, 0.0321, np.nan)] == ["1,826", "1,826", "62.4", "0.0321", "–"]


@pytest.mark.parametrize(
    ("time", "unit", "text", "brief"),
    [
        (1826.25, "days", "5 years", "5 years"),
        (365.25, "D", "1 year", "1 year"),
        (2000, "day", "2,000 days (5.5 years)", "2,000 days"),
        (90, "days", "90 days (3.0 months)", "90 days"),
        (30, "days", "30 days", "30 days"),
        (52, "weeks", "52 weeks (12.0 months)", "52 weeks"),
        (30, "months", "30 months (2.5 years)", "30 months"),
        (1, "months", "1 month", "1 month"),
        (2.5, "years", "2.5 years", "2.5 years"),
        (7, "cycles", "7 cycles", "7 cycles"),
        (14.5, None, "14.5", "14.5"),
    ],
)
def test_times_are_written_as_readers_would(time: float, unit: str | None, text: str, brief: str) -> None:
    assert (describe_time(time, unit), describe_time(time, unit, brief=True)) == (text, brief)


def test_plain_data() -> None:
    value = {1: np.float32(0.5), "a": (np.int64(2), [np.nan, np.inf]), "b": np.array([[True]]), "c": None}
    assert plain(value, finite=True) == {"1": 0.5, "a": [2, [None, None]], "b": [[True]], "c": None}
    assert np.isnan(plain(np.nan))
    assert type(plain(np.float64(2.0))) is float
    with pytest.raises(TypeError, match="is not plain data"):
        plain([{1}])
    assert plain([{1}], unknown=repr) == ["{1}"]


def test_a_level_has_one_name() -> None:
    assert {level_text(value) for value in (1, 1.0, "1", np.int64(1), np.float32(1), np.float64(1))} == {"1"}
    assert [level_text(value) for value in (0.5, True, "x")] == ["0.5", "True", "x"]
