"""What the paper prints of the data, recomputed; and the inputs of its models, through CoxPH's exact figures."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dcsurv import datasets, train_test_indices
from dcsurv.experiments import paper_data
from dcsurv.preprocessing import Preprocessor

PRINTED = json.loads((Path(__file__).parent / "reference" / "paper_tables.json").read_text())
DATASETS = PRINTED["datasets"]
# C-td of CoxPH on the test part of the stratified split with seed 40, computed with the authors' code.
CTD = {
    name: rows[0]
    for name, rows in {
        **PRINTED["authors_notebook_c_td_cdauc_ddc"]["CoxPH recomputed, split seed 40 stratified"],
        "metabric": PRINTED["authors_notebook_c_td_cdauc_ddc"]["metabric, split seed 40 stratified"]["CoxPH"],
    }.items()
}


def three_digits(number):
    return float(f"{number:.2e}")


def test_table_1_is_the_printed_one():
    table = paper_data.table_1()
    assert list(table.index) == list(DATASETS)
    for name, printed in DATASETS.items():
        row = table.loc[name]
        assert row["patients"] == printed["patients"]
        assert round(row["censoring_rate"], 2) == printed["censoring"]
        assert three_digits(row["A"]) == printed["A"]
        assert three_digits(row["B"]) == printed["B"]
        assert row["F"] == row["B"] / row["A"]
    assert table["A"].dtype == table["B"].dtype == np.int64


def test_table_1_prints_a_wrong_factor_for_metabric():
    factors = paper_data.table_1()["F"].round(1).to_dict()
    printed = {name: values["F"] for name, values in DATASETS.items()}
    wrong = {name for name in printed if printed[name] != factors[name]}
    assert wrong == {"metabric"}
    misprint = paper_data.MISPRINTS[0]
    assert (misprint.printed, misprint.correct) == (printed["metabric"], factors["metabric"]) == (2.0, 2.1)
    assert paper_data.table_1().loc["metabric", "F"] == pytest.approx(2.06, abs=0.005)
    # Not even the paper's own rounded counts give 2.0.
    assert round(DATASETS["metabric"]["B"] / DATASETS["metabric"]["A"], 2) == 2.06


def test_the_text_prints_a_wrong_concordance_for_dcs_linear():
    misprint = paper_data.MISPRINTS[1]
    table = PRINTED["c_index_td"]
    assert misprint.correct == table["DCS-linear"]["support"]["mean"] == 0.623
    assert misprint.printed == table["DCS-quant"]["support"]["mean"] == 0.628


def test_table_2_is_the_printed_one():
    table = paper_data.table_2()
    months = {"support": False, "metabric": True, "flchain": True}
    for name, printed in DATASETS.items():
        row = table.loc[name]
        assert row["patients"] == printed["patients"]
        assert row["features"] == printed["features"]
        assert round(row["censoring_rate"], 2) == printed["censoring"]
        assert round(row["missing_share"], 3) == printed["missing"]
        median = f"{row['median_survival_months']:.0f} months" if months[name] else None
        assert (median or f"{row['median_survival_days']:.0f} days") == printed["median_survival"]
        assert round(row["non_proportional_share"], 2) == printed["non_proportional"]
    assert table["non_proportional"].to_dict() == {"support": 11, "metabric": 5, "flchain": 2}


def test_proportional_hazards_test_equals_lifelines_on_raw_numbers():
    from lifelines import CoxPHFitter
    from lifelines.statistics import proportional_hazard_test

    X, y = datasets.load_metabric()
    raw = X.assign(**{c: X[c].cat.codes for c in X.select_dtypes("category")}).assign(T=y["time"], E=y["event"])
    test = proportional_hazard_test(CoxPHFitter().fit(raw, "T", "E"), raw, time_transform="rank")
    p_values = paper_data.proportional_hazards_p_values(X, y)
    assert list(p_values.index) == list(X.columns)
    expected = test.summary["p"].reindex(X.columns)
    np.testing.assert_allclose(p_values, expected, atol=2e-3)


@pytest.mark.parametrize("name", datasets.NAMES)
def test_figure_3_counts_every_patient_once(name):
    figure = paper_data.figure_3(name)
    _, y = datasets.load(name)
    for spacing, nodes in figure.groupby("spacing"):
        assert nodes["node"].tolist() == list(range(1, 11))
        assert nodes["events"].sum() == y["event"].sum()
        assert nodes["censored"].sum() == (~y["event"]).sum()
        # One by one: the patients after the node before, up to this node.
        edges = np.concatenate([[-1.0], nodes["time"]])
        for k, events in enumerate(nodes["events"]):
            inside = (y["time"] > edges[k]) & (y["time"] <= edges[k + 1])
            assert events == (inside & y["event"]).sum(), (spacing, k)
    by_spacing = figure.assign(all=figure["events"] + figure["censored"]).pivot(
        index="node", columns="spacing", values=["time", "events", "all"]
    )
    assert by_spacing["time"]["linear"].tolist() == np.rint(np.arange(1, 11) * (y["time"].max() + 1) / 10).tolist()
    # What the figure is there to show: quantile nodes share the patients out (whole days leave a few ties) ...
    tenth = len(y) / 10
    assert by_spacing["all"]["quantile"].between(0.97 * tenth, 1.03 * tenth).all()
    # ... and linear ones do not.
    assert by_spacing["all"]["linear"].max() > 1.15 * tenth


def test_figure_3_on_support_puts_most_events_into_the_first_linear_node():
    support = paper_data.figure_3().pivot(index="node", columns="spacing", values="events")
    assert support["linear"].iloc[0] > support["linear"].iloc[1:].sum()
    assert support["linear"].is_monotonic_decreasing
    spread = support.std()
    assert spread["quantile"] < spread["log"] < spread["linear"]


def test_supplement_figure_1_shows_what_the_supplement_says():
    figure = paper_data.supplement_figure_1()
    c = figure["censoring_rate"]
    np.testing.assert_allclose(figure["A_estimate"], (1 - c) ** 2 / 2)
    np.testing.assert_allclose(figure["B_estimate"], (1 - c) / 2)
    np.testing.assert_allclose(figure["F_estimate"], figure["B_estimate"] / figure["A_estimate"])
    np.testing.assert_allclose(figure["F"], figure["B"] / figure["A"])
    # "Our estimation closely matches the number of old comparisons for all datasets ..."
    np.testing.assert_allclose(figure["A"], figure["A_estimate"], atol=0.004)
    # "... as well as the number of new comparisons for the synthetically created dataset"
    uniform = figure[figure["dataset"] == "uniform"]
    np.testing.assert_allclose(uniform["B"], uniform["B_estimate"], atol=0.006)
    # "The observed factor F is even higher than predicted for the real-world datasets"
    real = figure[figure["dataset"] != "uniform"]
    assert (real["F"] > real["F_estimate"]).all()
    # "70 % censoring leads to approximately 3 to 6 times more comparisons"
    assert figure[c.round(2) == 0.7]["F"].between(3, 6).all()
    table = paper_data.table_1()
    whole = figure[~figure["resampled"]].set_index("dataset")
    np.testing.assert_allclose(whole["A"] * whole["patients"] ** 2, table["A"])
    np.testing.assert_allclose(whole["B"] * whole["patients"] ** 2, table["B"])


def test_supplement_figure_1_resamples_to_the_rates_and_by_seed():
    rates = (0.15, 0.5, 0.85)
    figure = paper_data.supplement_figure_1(rates=rates, n_repeats=2, random_state=3)
    assert len(figure) == 3 + 4 * 2 * len(rates)
    for name, part in figure[figure["resampled"]].groupby("dataset"):
        np.testing.assert_allclose(part["censoring_rate"], np.repeat(rates, 2), atol=5e-4)
        if name != "uniform":
            events = round(len(datasets.load(name)[0]) * (1 - paper_data.table_1().loc[name, "censoring_rate"]))
            kept = (part["patients"] * (1 - part["censoring_rate"])).round()
            assert (kept <= events).all()
            assert (kept == events).any()  # the largest part: one side is kept whole
    event = np.arange(100) < 60
    rows = paper_data._rows_with_rate(event, 0.5, np.random.default_rng(0))
    assert len(set(rows)) == len(rows) == 80  # nobody twice: that would make ties
    assert event[rows].sum() == 40
    pd.testing.assert_frame_equal(figure, paper_data.supplement_figure_1(rates=rates, n_repeats=2, random_state=3))
    other = paper_data.supplement_figure_1(rates=rates, n_repeats=2, random_state=4)
    assert not figure["B"].equals(other["B"])
    with pytest.raises(ValueError, match=r"rates must lie between 0 and 1, both left out; got \[1.0\]"):
        paper_data.supplement_figure_1(rates=(0.5, 1.0))


def cox_ctd(inputs, y, train, test):
    """Fit lifelines' CoxPH and score it with pycox, on the curves at the training times."""
    from lifelines import CoxPHFitter
    from pycox.evaluation import EvalSurv

    frame = pd.DataFrame(inputs)
    rows = frame.iloc[train].assign(T=y["time"][train], E=y["event"][train])
    model = CoxPHFitter(penalizer=1e-4).fit(rows, "T", "E")
    survival = model.predict_survival_function(frame.iloc[test], times=np.unique(y["time"][train]))
    score = EvalSurv(survival, y["time"][test], y["event"][test].astype(int), censor_surv=None)
    return score.concordance_td("adj_antolini")


@pytest.mark.parametrize(("name", "width"), [("support", 23), ("metabric", 9), ("flchain", 16)])
def test_inputs_give_the_exact_concordance_of_coxph(name, width):
    X, y = datasets.load(name)
    train, test = train_test_indices(y, random_state=40)
    preprocessor = paper_data.paper_preprocessor(name).fit(X.iloc[train])
    inputs = preprocessor.transform(X)
    assert inputs.shape == (len(X), width)
    assert cox_ctd(inputs, y, train, test) == pytest.approx(CTD[name], abs=1e-6)


def test_sex_is_a_standardised_number_in_flchain_alone():
    X, _ = datasets.load_flchain()
    Z = paper_data.paper_preprocessor("flchain").set_output(transform="pandas").fit_transform(X)
    assert Z["sex"].to_numpy(np.float64).std() == pytest.approx(1, abs=1e-6)
    assert Z["sex"].nunique() == 2
    assert set(Z["mgus_yes"]) == {0, 1}
    X, _ = datasets.load_support()
    Z = paper_data.paper_preprocessor("support").set_output(transform="pandas").fit_transform(X)
    assert set(Z["sex_female"]) == {0, 1}
    with pytest.raises(ValueError, match="no dataset 'seer'"):
        paper_data.paper_preprocessor("seer")


def test_filling_support_before_or_after_standardising_hardly_matters():
    X, y = datasets.load_support()
    train, test = train_test_indices(y, random_state=40)
    filled = X.fillna(X.iloc[train].median(numeric_only=True))
    after = Preprocessor(least_patients=1).fit(X.iloc[train]).transform(X)
    before = Preprocessor(least_patients=1).fit(filled.iloc[train]).transform(filled)
    known = X.notna().all(axis=1).to_numpy()
    assert 0 < np.abs(before[known] - after[known]).mean() < 0.01
    assert cox_ctd(before, y, train, test) == pytest.approx(CTD["support"], abs=1e-6)
