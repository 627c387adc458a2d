from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dcsurv import CoxPH, make_outcome
from dcsurv.figures import effects_over_time, hazard_ratios
from figure_checks import check_texts, shown_texts

LONG = "a_name_that_goes_on_and_on_until_nobody_reads_it"


def cohort(n=500, columns=0):
    rng = np.random.default_rng(1)
    X = pd.DataFrame(
        {
            "age": rng.normal(60, 10, n).round(),
            LONG: rng.normal(0, 1500, n),
            "stage of $ disease": rng.choice(["I", "II with a very long description", "III"], n),
            "treated <b>": rng.random(n) < 0.4,
            **{f"gene {k}": rng.normal(size=n) for k in range(columns)},
        }
    )
    risk = 0.05 * (X["age"] - 60) + 1.2 * X["treated <b>"]
    return X, make_outcome(rng.exponential(np.exp(-risk)) * 400, rng.random(n) < 0.7)


@pytest.fixture(scope="module")
def model():
    return CoxPH(time_unit="days").fit(*cohort())


def test_forest_shows_every_row_and_its_numbers(model):
    figure = hazard_ratios(model.summary_)
    check_texts(figure)
    ax = figure.axes[0]
    assert ax.get_xscale() == "log"
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == "age, per 10"
    assert labels[1].startswith("a_name_that_goes")
    assert labels[1].endswith("…, per 1,000")
    assert labels[2].startswith(r"stage of \$ disease (vs ")
    assert labels[3].strip().startswith("II with a very long")
    assert labels[5] == "treated <b>: True vs False"
    row = model.summary_.loc["age"]
    ten = [np.exp(10 * np.log(row[name])) for name in ("hazard_ratio", "lower", "upper")]
    assert "{:.2f} ({:.2f} to {:.2f})".format(*ten) in [text for text, _ in shown_texts(figure)]
    squares = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "s"]
    assert squares[0] == pytest.approx(ten[0])
    assert len(squares) == len(model.summary_)


def test_forest_can_be_per_any_change(model):
    five = hazard_ratios(model.summary_, per={"age": 5}).axes[0]
    assert five.get_yticklabels()[0].get_text() == "age, per 5"
    drawn = next(line for line in five.lines if line.get_marker() == "s").get_xdata()[0]
    assert drawn == pytest.approx(model.summary_.loc["age", "hazard_ratio"] ** 5)
    with pytest.raises(ValueError, match=r"per names \['years'\], but the features are \['age'"):
        hazard_ratios(model.summary_, per={"years": 5})


def test_forest_is_right_for_a_feature_in_a_tiny_unit():
    """Its hazard ratio per unit lies beyond all numbers, that of its step does not."""
    X, y = cohort()
    X = X[["age"]].assign(grams=X[LONG] * 1e-9, micrograms=X[LONG] * 1e-3)
    tiny, plain = (CoxPH().fit(X[["age", unit]], y).summary_ for unit in ("grams", "micrograms"))
    assert np.isinf(tiny["upper"]["grams"])
    texts = [
        [label.get_text() for label in hazard_ratios(one).axes[0].child_axes[0].get_yticklabels()]
        for one in (tiny, plain)
    ]
    assert texts[0] == texts[1]
    assert "999" not in texts[0][1]


def test_forest_stays_readable_with_endless_intervals_unknown_errors_and_many_columns(model):
    table = model.summary_
    table.loc["treated <b>_True", ["hazard_ratio", "coef", "se", "lower", "upper"]] = [5e8, 20.0, 1e3, 0.0, np.inf]
    figure = hazard_ratios(table)
    check_texts(figure)
    assert ">999 (0.00 to >999)" in [text for text, _ in shown_texts(figure)]
    assert figure.axes[0].get_xlim()[1] < 1000
    unsure = model.summary_
    unsure[["se", "z", "p", "lower", "upper", "step"]] = np.nan
    figure = hazard_ratios(unsure)
    check_texts(figure)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "age, per 1"
    many = CoxPH().fit(*cohort(columns=60)).summary_
    labels = [label.get_text() for label in hazard_ratios(many).axes[0].get_yticklabels()]
    assert len([label for label in labels if "per 1" in label]) <= 40
    assert "age, per 10" in labels, "what is sure is kept"


def test_effects_are_drawn_with_the_clearest_change_first(model):
    figure = effects_over_time(model.effects_over_time_, model.proportional_hazards_, unit="days")
    check_texts(figure)
    assert len(figure.axes) == len(model.summary_)
    first = model.proportional_hazards_.drop(index="GLOBAL")["p"].idxmin()
    ax = figure.axes[0]
    assert ax.get_title(loc="left").replace(r"\$", "$")[:5] == first[:5]
    assert ax.get_yscale() == "log"
    part = model.effects_over_time_
    part = part[part["feature"] == first]
    curve = next(line for line in ax.lines if len(line.get_xdata()) > 2)
    one = part[part["column"] == part["column"].iloc[0]]
    step = 1.0 if one["level"].notna().all() else one["step"].iloc[0]
    np.testing.assert_allclose(curve.get_ydata(), np.exp(step * one["effect"]))
    check_texts(effects_over_time(model.effects_over_time_))


def test_effects_of_many_columns_and_of_one():
    many = CoxPH().fit(*cohort(columns=30))
    assert len(effects_over_time(many.effects_over_time_, many.proportional_hazards_).axes) == 12
    X, y = cohort()
    one = CoxPH().fit(X[["age"]], y)
    figure = effects_over_time(one.effects_over_time_, one.proportional_hazards_)
    assert len(figure.axes) == 1
    check_texts(figure)
    with pytest.raises(ValueError, match="has no rows, so there is nothing to draw"):
        effects_over_time(one.effects_over_time_[:0])
