"""The report: its numbers, its page, and how a real browser shows it.

Screenshots and the printed page are kept in ``build/screenshots``.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dcsurv
from dcsurv import metrics
from dcsurv.cohort import Horizon
from dcsurv.cohort.evaluation import evaluate_curves
from dcsurv.datasets import load_metabric
from dcsurv.metrics.censoring import study_censoring
from dcsurv.metrics.null import p_text
from dcsurv.nonparametric import kaplan_meier
from dcsurv.report import write_report
from dcsurv.report.hazards import hazard_ratios
from dcsurv.report.levels import pooled_levels
from dcsurv.report.provenance import fingerprint
from dcsurv.report.study import make_study
from dcsurv.report.write import _OF_A_REPORT
from programs import GUARD, chromium

HORIZONS = [5 * 365.25, 10 * 365.25]
SEED, N_BOOTSTRAP = 3, 40
NASTY = {"age": "age <b>&\"' $x$ y_$", "size": "Größe 身長 🩺", "group": "</style><script>alert(1)</script>"}

NASTY_OPTIONS = {
    "n_bootstrap": 10,
    "title": "<script>alert('title')</script> & co",
    "data_name": "<img src=x onerror=alert(2)>",
    "unit": "Jahre <b>",
    "patients": [0, 7],
}


class Page(HTMLParser):
    """The elements of a page with their attributes, its text, and the texts of its tables."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.tables, self.in_cell = [], [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.in_cell = False

    def handle_data(self, text):
        self.words.append(text)
        if self.in_cell:
            self.tables[-1][-1][-1] += text

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def rows(self, *header, start=""):
        """Return the rows of the table whose header, and whose first row, begin like this, by their first cell."""
        for table in self.tables:
            named = table and tuple(cell.strip() for cell in table[0][: len(header)]) == header
            if named and table[1][0].strip().startswith(start):
                return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in table[1:]}
        raise AssertionError(f"no table begins with {header}")


@pytest.fixture(scope="module")
def metabric():
    X, y = load_metabric(labels="measured")
    train, test = dcsurv.train_test_indices(y, random_state=0)
    model = dcsurv.CalibratedEnsemble(estimator=dcsurv.CoxPH(), n_members=3, random_state=0, time_unit="days")
    return {
        "model": model.fit(X.iloc[train], y[train]),
        "reference": dcsurv.CoxPH().fit(X.iloc[train], y[train]),
        "X": X.iloc[test],
        "y": y[test],
        "X_train": X.iloc[train],
        "y_train": y[train],
    }


@pytest.fixture(scope="module")
def report(metabric, tmp_path_factory):
    heard = []
    written = write_report(
        tmp_path_factory.mktemp("report") / "metabric.html",
        horizons=HORIZONS,
        data_name="METABRIC",
        n_bootstrap=N_BOOTSTRAP,
        random_state=SEED,
        progress=heard.append,
        **metabric,
    )
    assert "Discrimination" in heard
    return written


@pytest.fixture(scope="module")
def page(report):
    return Page(report.path.read_text(encoding="utf-8"))


def nasty_cohort(n, seed=0):
    """Features with names that break pages, figures and formulas, missing values, and their outcome."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 10, n)
    X = pd.DataFrame(
        {
            NASTY["age"]: age,
            NASTY["size"]: rng.choice(["klein", "groß", "<i>中</i>"], n),
            NASTY["group"]: pd.Categorical(rng.choice(["a & b", "c"], n)),
            "lab": np.where(rng.random(n) < 0.2, np.nan, rng.normal(0, 1, n)),
            "a_name_that_goes_on_and_on_without_a_single_space_in_it_until_nobody_reads_it": rng.integers(0, 2, n),
        }
    )
    time, censored = rng.exponential(10 * np.exp(-0.04 * (age - 60))), rng.exponential(15, n)
    return X, dcsurv.make_outcome(np.minimum(time, censored), time <= censored)


@pytest.fixture(scope="module")
def nasty():
    X, y = nasty_cohort(320)
    return dcsurv.CoxPH().fit(X.iloc[:200], y[:200]), X.iloc[200:], y[200:]


@pytest.fixture(scope="module")
def nasty_report(nasty, tmp_path_factory):
    return write_report(tmp_path_factory.mktemp("nasty") / "näm e.html", *nasty, **NASTY_OPTIONS)


# --- the numbers -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(metabric):
    """What the metrics say about model and reference, all at once."""
    options = {"horizons": HORIZONS, "random_state": SEED}
    curves = {name: metabric[name].predict_survival_function(metabric["X"]) for name in ("model", "reference")}
    tables = {
        name: metrics.evaluate(metabric["y"], c, metabric["y_train"], N_BOOTSTRAP, X=metabric["X"], **options)
        for name, c in curves.items()
    }
    return curves, tables


def value_of(table, metric, horizon=None):
    rows = table[
        (table["metric"] == metric) & (table["horizon"].isna() if horizon is None else table["horizon"] == horizon)
    ]
    return rows.iloc[0]


def printed(row, digits=3):
    text = f"{row['value']:.{digits}f} ({row['lower']:.{digits}f}\u00a0to\u00a0{row['upper']:.{digits}f})"
    return text.replace("-", "−")


NAME = "CalibratedEnsemble"


def test_discrimination_is_that_of_the_metrics(report, page, expected, metabric):
    curves, tables = expected
    by = {(row["metric"], row["model"]): row for row in report.numbers["discrimination"]["metrics"]}
    rows = page.rows("", NAME, "CoxPH")
    for metric in ("C-td", "CDAUC"):
        for column, (name, model) in enumerate(((NAME, "model"), ("CoxPH", "reference"))):
            own = value_of(tables[model], metric)
            assert by[metric, name]["value"] == own["value"]
            assert (by[metric, name]["lower"], by[metric, name]["upper"]) == (own["lower"], own["upper"])
            assert rows[metric][column] == printed(own)
    risk = -curves["model"].rmst()
    uno = metrics.concordance_index_uno(metabric["y"], risk, X=metabric["X"], tau=HORIZONS[-1])
    assert by["Uno’s C", NAME]["value"] == uno
    assert by["Uno’s C", NAME]["lower"] < uno < by["Uno’s C", NAME]["upper"]
    assert by["Harrell’s C", NAME]["value"] == metrics.concordance_index_harrell(metabric["y"], risk)


def test_difference_to_the_reference_is_paired(report, expected, metabric):
    curves, _ = expected
    table = metrics.compare(
        metabric["y"],
        {"r": curves["reference"], "m": curves["model"]},
        metabric["y_train"],
        N_BOOTSTRAP,
        X=metabric["X"],
        metrics=["C-td"], random_state=SEED,
    )  # fmt: skip
    row = report.numbers["discrimination"]["difference"][0]
    for key in ("difference", "lower", "upper"):
        assert row[key] == table[key].iloc[0]


def test_calibration_at_the_horizons_is_that_of_the_metrics(report, page, expected, metabric):
    curves, tables = expected
    rows = page.rows("horizon", "predicted risk", "observed risk")
    assert len(report.numbers["calibration"]["horizons"]) == 2
    for seen, t, text in zip(report.numbers["calibration"]["horizons"], HORIZONS, ("5 years", "10 years"), strict=True):
        own = metrics.calibration_at_horizon(metabric["y"], curves["model"], t, X=metabric["X"])
        for key in ("ici", "e50", "e90", "ratio", "expected_risk", "observed_risk"):
            assert seen[key] == getattr(own, key)
        ratio = value_of(tables["model"], "O/E", t)
        recalibration = [value_of(tables["model"], f"Calibration {name}", t) for name in ("intercept", "slope")]
        assert rows[text] == [
            f"{100 * own.expected_risk:.1f}%", f"{100 * own.observed_risk:.1f}%", printed(ratio, 2),
            *(printed(row, 2) for row in recalibration),
        ]  # fmt: skip
        gaps = {name: value_of(tables["model"], name, t) for name in ("ICI", "E50", "E90")}
        beside = page.rows("", "this model", "a perfect model, mean") | page.rows("", "this model", start="E50")
        for name, gap in gaps.items():
            cells = [f"{gap[key]:.3f}" for key in ("value", "floor", "null_95")]
            assert beside[f"{name} by {text}"] == [*cells, p_text(gap["p_value"])]


def test_d_calibration_before_and_after_the_maps(report, page, expected, metabric):
    curves, tables = expected
    before, after = report.numbers["distribution"]["d_calibration"]
    assert after["ddc"] == pytest.approx(value_of(tables["model"], "DDC")["value"])
    for key in ("floor", "null_95", "p_value"):
        assert after[key] == value_of(tables["model"], "DDC")[key]
    assert after["bins"] == metrics.d_calibration(metabric["y"], curves["model"]).bins.tolist()
    # Before the maps: the mean of the members, read on the ensemble's nodes.
    model = metabric["model"]
    features = model.preprocessor_.transform(metabric["X"])
    nodes = curves["model"].times
    mean = np.mean([member.predict_survival_function(features).evaluate(nodes) for member in model.members_], axis=0)
    members = dcsurv.SurvivalCurves(nodes, mean, interpolation="step")
    assert before["ddc"] == pytest.approx(metrics.ddc(metabric["y"], members))
    assert before["ddc"] != after["ddc"]
    assert set(page.rows("", "DDC")) == {"before recalibration", "after recalibration"}


def test_brier_score_against_kaplan_meier(report, expected, metabric):
    curves, tables = expected
    by = {row["model"]: row for row in report.numbers["error"]["metrics"]}
    assert by[NAME]["value"] == value_of(tables["model"], "IBS")["value"]
    km = kaplan_meier(metabric["y_train"])
    same = dcsurv.SurvivalCurves(km.times, np.tile(km.values, (len(metabric["y"]), 1)), interpolation="step")
    assert by["Kaplan-Meier"]["value"] == metrics.integrated_brier_score(metabric["y"], same, X=metabric["X"])
    assert by[NAME]["gain"] == 1 - by[NAME]["value"] / by["Kaplan-Meier"]["value"]
    _, score = metrics.brier_score(metabric["y"], curves["model"], HORIZONS, X=metabric["X"])
    assert report.numbers["error"]["brier_at_horizons"][NAME] == score.tolist()


def test_decision_curves_are_net_benefit(report, expected, metabric):
    curves, _ = expected
    rows = report.numbers["decisions"]["net_benefit"]
    assert {row["horizon"] for row in rows} == set(HORIZONS)
    for row in rows:
        for name, model in ((NAME, "model"), ("CoxPH", "reference")):
            own = metrics.net_benefit(
                metabric["y"], curves[model], row["horizon"], thresholds=[row["threshold"]], X=metabric["X"]
            )
            assert row["net_benefit"][name] == pytest.approx(own["net_benefit"][0])
        assert row["treat_all"] == pytest.approx(own["treat_all"][0])
        assert row["lower"] <= row["net_benefit"][NAME] <= row["upper"]
        assert row["over_all_lower"] <= row["over_all"] <= row["over_all_upper"]


def test_a_model_helps_where_all_limits_together_say_so(report, page, expected, metabric):
    followed = dcsurv.study_follow_up(metabric["X"], metabric["y"])
    censoring = followed if followed.depends else "marginal"
    curves = expected[0]["model"]
    options = {"censoring": censoring, "n_bootstrap": N_BOOTSTRAP, "random_state": SEED}
    table = metrics.helpful_thresholds(metabric["y"], curves, sorted(HORIZONS), **options)
    found = report.numbers["decisions"]["helps"]
    assert [(row["horizon"], row["threshold"]) for row in found] == [
        (row.horizon, row.threshold) for row in table[table["helps"]].itertuples()
    ]
    assert ("The model helps at thresholds" in page.text or "The model helps among others" in page.text) == bool(found)


def test_subgroups_are_evaluated_by_themselves(report, expected, metabric):
    curves, _ = expected
    groups = {(row["column"], row["group"]): row for row in report.numbers["subgroups"]["groups"]}
    assert ("age", "below 56.2") in groups, "age-like columns are found, and cut at their thirds"
    inside = (metabric["X"]["chemotherapy"] == "yes").to_numpy()
    row = groups["chemotherapy", "yes"]
    assert (row["patients"], row["events"]) == (inside.sum(), metabric["y"]["event"][inside].sum())
    y, own = metabric["y"][inside], curves["model"][np.flatnonzero(inside)]
    assert row["c_td"] == metrics.concordance_index_td(y, own)
    followed = dcsurv.study_follow_up(metabric["X"], metabric["y"])
    censoring = followed.take(np.flatnonzero(inside)) if followed.depends else "marginal"
    ratio = metrics.calibration_at_horizon(y, own, HORIZONS[1], censoring=censoring).ratio
    assert row["ratio"] == pytest.approx(ratio)
    assert row["c_td_lower"] < row["c_td"] < row["c_td_upper"]


def test_importance_is_what_shuffling_costs(report, metabric):
    X, y = metabric["X"], metabric["y"]
    rng = np.random.default_rng(SEED)
    orders = [rng.permutation(len(X)) for _ in range(5)]

    # The weights are those of the patients as they are, also where a feature is shuffled.
    found = study_censoring(y, [metabric["model"].predict_survival_function(X)], X)

    def auc(table):
        curves = metabric["model"].predict_survival_function(table)
        censoring = found if found.depends else "marginal"
        return metrics.cumulative_dynamic_auc(y, curves, times=HORIZONS, censoring=censoring).auc

    drops = [auc(X) - auc(X.assign(age=X["age"].to_numpy()[order])) for order in orders]
    rows = [row for row in report.numbers["importance"]["importance"] if row["feature"] == "age"]
    assert [row["horizon"] for row in rows] == HORIZONS
    np.testing.assert_allclose([row["auc_drop"] for row in rows], np.mean(drops, axis=0))
    assert rows[0]["auc_drop"] > 0.05


def test_follow_up_is_reverse_kaplan_meier(report, page, metabric):
    from lifelines import KaplanMeierFitter

    y = metabric["y"]
    follow_up = KaplanMeierFitter().fit(y["time"], ~y["event"]).median_survival_time_
    numbers = report.numbers["follow-up"]
    assert numbers["median_follow_up"] == follow_up
    assert numbers["median_survival"] == KaplanMeierFitter().fit(y["time"], y["event"]).median_survival_time_
    at = numbers["horizons"][0]
    assert at["survival"] == pytest.approx(float(kaplan_meier(y)(HORIZONS[0])))
    assert at["lower"] < at["survival"] < at["upper"]
    assert page.rows("horizon", "at risk")["5 years"][0] == str((y["time"] >= HORIZONS[0]).sum())


def test_the_table_of_patients_counts_them(page, metabric):
    rows = page.rows("", f"all\nn\u00a0=\u00a0{len(metabric['y'])}")
    low, middle, high = metabric["X"]["age"].quantile([0.25, 0.5, 0.75])
    assert rows["age, median (quartiles)"][0] == f"{middle:.0f} ({low:.0f}\u2060–\u2060{high:.0f})"
    assert "er_positive, n (%)" in rows


def test_numbers_are_plain_and_the_seed_decides(nasty_report, nasty, tmp_path):
    again = write_report(tmp_path / "again.html", *nasty, **NASTY_OPTIONS)
    texts = []
    for report in (nasty_report, again):
        provenance = {key: value for key, value in report.numbers["provenance"].items() if key != "made"}
        texts.append(json.dumps(report.numbers | {"provenance": provenance}, allow_nan=False))
    assert texts[0] == texts[1]
    for one, other in zip(nasty_report.figures, again.figures, strict=True):
        assert one.read_bytes() == other.read_bytes()


# --- the page ----------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_elsewhere(report, nasty_report):
    for written in (report, nasty_report):
        text = written.path.read_text(encoding="utf-8")
        parsed = Page(text)
        assert not re.search(r"https?:|//[a-z]", text)
        assert not {tag for tag, _ in parsed.elements} & {"script", "img", "iframe", "object", "embed", "video", "base"}
        for tag, attributes in parsed.elements:
            for name, value in attributes.items():
                assert not name.startswith("on"), f"{tag} has {name}"
                if name in ("href", "src", "xlink:href", "data", "action"):
                    assert value.startswith(("#", "data:"))
                if name == "style" or name.endswith("path"):
                    assert "url(" not in value.replace("url(#", "")
        assert "url(" not in text[text.index("<style>") : text.index("</style>")]


def test_every_figure_is_in_the_page_and_in_files(report, page):
    names = {path.stem for path in report.figures}
    assert {"follow-up", "auc", "brier", "d-calibration", "calibration-1", "calibration-2", "decision-1", "examples",
            "subgroups-c-td", "importance-auc"} <= names  # fmt: skip
    assert {path.parent.name for path in report.figures} == {"metabric_figures"}
    for path in report.figures:
        assert path.stat().st_size > 1000
    assert {path.suffix for path in report.figures} == {".svg", ".png"}
    assert all(_OF_A_REPORT.fullmatch(path.name) for path in report.figures)
    shown = {a["id"].removeprefix("figure-") for tag, a in page.elements if tag == "figure"}
    assert shown == names
    drawings = [a for tag, a in page.elements if tag == "svg"]
    assert len(drawings) == len(names)
    assert all(len(a["aria-label"]) > 20 for a in drawings)
    assert sum(tag == "figcaption" for tag, _ in page.elements) == len(names)


def test_headings_contents_and_ids(page):
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [a["href"][1:] for tag, a in page.elements if tag == "a"]
    assert len(links) >= 14
    assert set(links) <= set(ids)
    assert sum(tag == "h1" for tag, _ in page.elements) == 1
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(below <= above + 1 for above, below in pairwise(levels)), "no level of headings is left out"
    assert all("scope" in a for tag, a in page.elements if tag == "th")
    referenced = [a["href"][1:] for tag, a in page.elements if tag == "use"]
    assert set(referenced) <= set(ids), "every marker of a figure is there"


def test_the_first_page_answers_what_a_reader_comes_with(report, page):
    text = page.text[page.text.index("At a glance") : page.text.index("Contents")]
    asked = ["What does it predict?", "For whom?", "Can its probabilities be trusted?", "Is it better than CoxPH?",
             "Which model is this?", "What are its limits?"]  # fmt: skip
    assert [text.index(question) for question in asked] == sorted(text.index(question) for question in asked)
    ranking = next(row for row in report.numbers["discrimination"]["metrics"] if row["metric"] == "C-td")
    assert f"{ranking['value']:.3f}" in text
    assert len(text.split()) < 350, "it is read in a minute"
    assert "5 tests of calibration, corrected for their number" in text
    # ICI and slope at two horizons, and the whole distribution.
    assert len(report.numbers["summary"]["trust"]["p"]) == 5


def test_the_page_claims_no_more_than_one_set_of_patients_tells(page):
    assert "more than chance" not in page.text
    assert "epoch" not in page.text
    assert "(seed" not in page.text
    assert "One set of patients cannot settle it" in page.text


def test_groups_are_compared_by_their_differences(report, page):
    found = report.numbers["subgroups"]["differences"]
    by = {(row["column"], row["group"]): row for row in report.numbers["subgroups"]["groups"]}
    pair = [row for row in found if row["column"] == "chemotherapy"]
    assert [row["metric"] for row in pair] == ["C-td", "O/E"], "two groups are compared once"
    apart = by["chemotherapy", "no"]["c_td"] - by["chemotherapy", "yes"]["c_td"]
    assert pair[0]["difference"] == pytest.approx(apart)
    assert all(row["p"] <= row["p_corrected"] <= 1 for row in found)
    assert f"{len(found)} comparisons (Holm’s correction)" in page.text
    assert len(page.rows("", "metric", "group against the others")) <= len(found)


@pytest.mark.parametrize(
    "words",
    ["ties adjusted", "1/G(z−)", "reverse Kaplan-Meier", "Greenwood", "four knots",
     "natural logarithm", "trapezoid", "p/(1 − p)", "percentiles of 40 bootstrap samples",
     "risks in a world without the other causes", "research software", "TRIPOD+AI"],
)  # fmt: skip
def test_conventions_and_limits_are_named(page, words):
    assert words in page.text


def test_provenance_is_complete(report, page, metabric):
    numbers = report.numbers["provenance"]
    assert numbers["versions"]["dcsurv"] == dcsurv.__version__
    assert numbers["fingerprints"]["evaluated patients"] == fingerprint(
        metabric["X"].reset_index(drop=True), metabric["y"]
    )
    for value in (*numbers["fingerprints"].values(), numbers["versions"]["torch"], "HorizonMap and RankPreservingMap"):
        assert value in page.text


def test_no_patient_is_in_the_page(report, metabric):
    text = report.path.read_text(encoding="utf-8") + "".join(
        p.read_text() for p in report.figures if p.suffix == ".svg"
    )
    numbers = set(re.findall(r"-?\d+\.\d+", text)) | set(re.findall(r"-?\d+\.\d+", json.dumps(report.numbers)))
    for name in ("EGFR", "PGR", "ERBB2", "MKI67"):
        for table in (metabric["X"], metabric["X_train"]):
            precise = {f"{v:.6g}" for v in table[name] if len(f"{v:.6g}") >= 7}
            assert len(precise) > 100
            assert not precise & numbers
    curves = metabric["model"].predict_survival_function(metabric["X"])
    risks = {f"{1 - s:.6f}" for s in curves.evaluate(np.array([HORIZONS[0]]))[:, 0]}
    assert not risks & {number[:8] for number in numbers}


def test_typical_patients_are_made_up(report, metabric):
    assert report.numbers["examples"]["real_patients"] is False
    survival = report.numbers["examples"]["survival_at_horizons"][str(HORIZONS[0])]
    assert report.numbers["examples"]["labels"] == ["low risk", "lower middle", "upper middle", "high risk"]
    assert survival == sorted(survival, reverse=True)
    own = {round(float(s), 9) for s in metabric["model"].predict_survival_function(metabric["X_train"])(HORIZONS[0])}
    assert not own & {round(s, 9) for s in survival}


@pytest.mark.usefixtures("undrawn")
def test_small_cells_cannot_be_computed(tmp_path):
    X, y = nasty_cohort(240, seed=5)
    rng = np.random.default_rng(0)
    X["ward"] = rng.choice(["north", "south"], len(X))
    X.loc[:29, "ward"] = "west"
    X.loc[30:35, "ward"] = ["rare", "rarer", "rarest"] * 2
    y = y.copy()
    y["event"][:30] = True
    y["event"][:3] = False  # three of the ward are censored
    X_train, y_train = nasty_cohort(200, seed=6)
    X_train["ward"] = rng.choice(["north", "south"], len(X_train))
    X_train.loc[:2, "ward"] = "west"
    model = dcsurv.CoxPH().fit(X_train, y_train)
    report, text = written(tmp_path, model, X, y, X_train=X_train, y_train=y_train, subgroups=["ward"])
    groups = {row["group"]: row for row in report.numbers["subgroups"]["groups"]}
    levels = report.numbers["cohort"]["features"]["ward"]["levels"]
    assert set(groups) == set(levels)
    assert "rare" not in str(groups) + str(levels)
    assert groups["west"]["patients"] == 30
    assert groups["west"]["c_td"] is not None
    assert [row["events"] for row in groups.values()] == [None] * len(groups)
    assert "the events in the groups of that feature are not shown" in text
    trained = [cells[3] for cells in levels.values()]
    assert levels["west"][3] == "hidden"
    assert trained.count("hidden") == 2


def test_real_patients_only_when_asked_for(nasty_report, nasty):
    model, X, _ = nasty
    page = Page(nasty_report.path.read_text(encoding="utf-8"))
    assert "predictions for real patients" in page.text
    numbers = nasty_report.numbers["examples"]
    for t, values in numbers["survival_at_horizons"].items():
        np.testing.assert_allclose(values, model.predict_survival_function(X.iloc[[0, 7]])(float(t)))


def test_names_from_the_data_are_text(nasty_report, nasty):
    text = nasty_report.path.read_text(encoding="utf-8")
    page = Page(text)
    assert not [tag for tag, _ in page.elements if tag in ("b", "i", "script", "img")]
    for name in NASTY.values():
        assert " ".join(name.split()) in page.text
    assert "<script>alert('title')</script> & co" in page.text
    assert "a_name_that_goes_on_and_on" in page.text
    assert set(nasty_report.numbers["cohort"]["features"]) == set(nasty[1].columns)
    assert "This model gives no bands" in page.text
    assert "The training patients were not passed" in page.text
    assert "No reference model was passed" in page.text
    assert "no recalibration maps" in page.text


# --- what cannot be computed is said -----------------------------------------------------------------------------


def written(path, *args, **options):
    report = write_report(path / "report.html", *args, n_bootstrap=5, **options)
    return report, Page(report.path.read_text(encoding="utf-8")).text


@pytest.mark.usefixtures("undrawn")
def test_horizons_beyond_follow_up_are_named_and_subgroups_can_be(nasty, tmp_path):
    model, X, y = nasty
    report, text = written(tmp_path, model, X, y, horizons=[1e-9, 5, 1e6], unit="years", subgroups=[NASTY["group"]])
    assert "The horizon 1,000,000 years is left out of this report: follow-up of these patients ends at" in text
    assert "no patient here has had the event by then" in text
    assert [row["horizon"] for row in report.numbers["calibration"]["horizons"]] == [5]
    assert {row["column"] for row in report.numbers["subgroups"]["groups"]} == {NASTY["group"]}


def test_all_censored(nasty, tmp_path):
    model, X, y = nasty
    censored = y.copy()
    censored["event"] = False
    report, text = written(tmp_path, model, X, censored)
    assert "y has 0 observed events among 120 patients" in text
    assert "All of this rests on 0 events" in text
    assert "No horizon can be looked at" in text
    assert report.numbers["discrimination"]["metrics"] == []


def test_one_event(nasty, tmp_path):
    model, X, y = nasty
    single = y.copy()
    single["event"] = np.arange(len(y)) == 3
    _, text = written(tmp_path, model, X, single)
    assert "All of this rests on 1 event:" in text
    assert "too few, on one of the two sides, for a calibration curve" in text


@pytest.mark.parametrize("n", [1, 2, 12])
def test_a_handful_of_patients(nasty, tmp_path, n):
    model, X, y = nasty
    report, text = written(tmp_path, model, X.iloc[:n], y[:n])
    assert "hidden" in text or n < 12
    assert "made-up patient" in text
    assert report.numbers["cohort"]["patients"] == n
    # A number below five in the table of patients would point at one of them.
    rows = Page(report.path.read_text(encoding="utf-8")).rows("", f"all\nn\u00a0=\u00a0{n}")
    for cells in rows.values():
        for cell in cells[:3]:
            count = re.match(r"(\d+) \(\d+\.\d%\)", cell)
            assert count is None or int(count[1]) == 0 or int(count[1]) >= 5


@pytest.mark.usefixtures("undrawn")
def test_an_array_of_numbers_and_labels_of_groups(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 3))
    time = rng.exponential(np.exp(-X[:, 0]))
    y = dcsurv.make_outcome(time, rng.random(160) < 0.7)
    model = dcsurv.CalibratedEnsemble(estimator=dcsurv.CoxPH(), n_members=2, random_state=0).fit(X[:100], y[:100])
    ward = np.where(np.arange(60) < 5, "small", "large")
    options = {"X_train": X[:100], "y_train": y[:100], "subgroups": {"ward": ward}}
    report, text = written(tmp_path, model, X[100:], y[100:], **options)
    best = max(report.numbers["importance"]["importance"], key=lambda row: row["auc_drop"])
    assert best["feature"] == "x0"
    assert "No value is missing in the 3 features" in text
    groups = {row["group"]: row for row in report.numbers["subgroups"]["groups"]}
    assert groups["small"]["c_td"] is None
    assert groups["small"]["patients"] is None
    assert groups["large"]["patients"] == 55
    assert "small (too few to evaluate)" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patients": [120]}, "row numbers from 0 to 119"),
        ({"patients": [1, 1]}, "row numbers from 0 to 119"),
        ({"patients": []}, "row numbers from 0 to 119"),
        ({"subgroups": ["absent"]}, r"subgroups names \['absent'\]"),
        ({"subgroups": "lab"}, r"pass a list, such as \['lab'\]"),
        ({"subgroups": {"ward": ["a"]}}, "1 labels for 'ward', but there are 120 patients"),
        ({"horizons": [0]}, "finite times above 0"),
        ({"n_bootstrap": 1}, "0 or at least 2 resamples"),
        ({"X_train": pd.DataFrame({"a": [1]}), "y_train": ([1.0, 2.0], [1, 1])}, "X_train has 1 rows and y_train 2"),
    ],
)
def test_wrong_choices_are_refused_before_anything_is_written(nasty, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path / "report.html", *nasty, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("undrawn")
def test_training_patients_are_not_the_evaluated_ones_and_others_are_named(nasty, tmp_path):
    model, X, y = nasty
    with pytest.raises(ValueError, match="y_train is y: the evaluated patients"):
        write_report(tmp_path / "report.html", model, X, y, X_train=X, y_train=y)
    X_other, y_other = nasty_cohort(40, seed=9)
    with pytest.warns(UserWarning, match=r"but 40 patients \(.*\) were passed as its training patients"):
        _, text = written(tmp_path, model, X, y, X_train=X_other, y_train=y_other)
    assert "were passed as its training patients" in text


@pytest.mark.usefixtures("undrawn")
def test_a_model_recalibrated_twice_names_both_and_is_compared_with_the_curve_of_the_evaluated_patients(tmp_path):
    (X, y), (X_b, y_b), (X_c, y_c), (X_test, y_test) = (nasty_cohort(n, seed=n) for n in (200, 110, 130, 120))
    model = dcsurv.CoxPH().fit(X, y)
    passed = {"X_train": X, "y_train": y, "reference": model}
    _, text = written(tmp_path, model, X_test, y_test, **passed)
    assert "Kaplan-Meier curve for everybody, which is that of the training patients." in text
    once = dcsurv.Recalibrated(model, fitted_on="b.csv").fit(X_b, y_b)
    _, text = written(tmp_path, once, X_test, y_test, **passed)
    assert "(before recalibration " in text
    twice = dcsurv.Recalibrated(once, fitted_on="c.csv").fit(X_c, y_c)
    report, text = written(tmp_path, twice, X_test, y_test, **passed)
    assert "(before the last recalibration " in text
    assert report.numbers["distribution"]["d_calibration"][0]["name"] == "before the last recalibration"
    assert re.search(
        r"recalibrated on 110 patients \(.*\) of b\.csv, .* and then on 130 patients \(.*; CoxPH was not", text
    )
    assert "Kaplan-Meier curve for everybody, which is that of the evaluated patients themselves." in text
    assert "Kaplan-Meier: of the same patients" in text
    alone, _ = written(tmp_path, twice, X_test, y_test)
    assert report.numbers["error"]["metrics"][0]["gain"] == alone.numbers["error"]["metrics"][0]["gain"]


def test_wrong_paths_are_refused(nasty, tmp_path):
    with pytest.raises(ValueError, match=r"end its name in \.html"):
        write_report(tmp_path / "report.pdf", *nasty)
    with pytest.raises(FileNotFoundError, match="Create it first"):
        write_report(tmp_path / "absent" / "report.html", *nasty)


def test_a_report_that_fails_leaves_nothing_and_a_new_one_replaces_the_old(nasty, tmp_path):
    model, X, y = nasty
    target = tmp_path / "report.html"
    target.mkdir()
    with pytest.raises(OSError, match=r"report\.html"):
        write_report(target, model, X.iloc[:2], y[:2], n_bootstrap=0)
    assert list(tmp_path.iterdir()) == [target]
    target.rmdir()
    figures = tmp_path / "report_figures"
    figures.mkdir()
    for name in ("decision-7.svg", "my own.png"):
        (figures / name).write_text("old")
    report = write_report(target, model, X.iloc[:2], y[:2], n_bootstrap=0)
    assert sorted(tmp_path.iterdir()) == [target, figures]
    assert sorted(figures.iterdir()) == sorted([*report.figures, figures / "my own.png"])


def test_fingerprint_tells_tables_apart():
    X = pd.DataFrame({"a": [1.0, 2.0], "b": pd.Categorical(["x", None])})
    y = dcsurv.make_outcome([1.0, 2.0], [1, 0])
    same = fingerprint(X, y)
    assert same == fingerprint(X.copy(), y.copy())
    others = [
        fingerprint(X.rename(columns={"a": "c"}), y),
        fingerprint(X.assign(a=[1.0, 2.5]), y),
        fingerprint(X.assign(b=pd.Categorical(["x", "x"])), y),
        fingerprint(X.iloc[::-1], y),
        fingerprint(X, dcsurv.make_outcome([1.0, 3.0], [1, 0])),
        fingerprint(X, dcsurv.make_outcome([1.0, 2.0], [1, 1])),
    ]
    assert len({same, *others}) == 7


def test_hazard_ratios_of_a_cox_model_are_those_of_its_summary(metabric, report, page):
    summary = metabric["reference"].summary_
    assert "in the reference, CoxPH" in page.text, "the model itself is an ensemble"
    rows = page.rows("", "hazard ratio per unit (95% interval)", "p", "PH test, p")
    assert set(rows) == {
        *("EGFR", "PGR", "ERBB2", "MKI67", "age"),
        *(f"{name}: yes vs no" for name in summary["feature"][4:8]),
    }
    age = summary.loc["age"]
    printed = [float(text) for text in re.findall(r"[\d.]+", rows["age"][0])]
    np.testing.assert_allclose(printed, [age["hazard_ratio"], age["lower"], age["upper"]], atol=6e-4)
    assert rows["age"][1:] == ["<0.001", "<0.001"]
    numbers = report.numbers["hazards"]
    assert {row["column"]: row["coef"] for row in numbers["hazard_ratios"]} == summary["coef"].to_dict()
    assert numbers["proportional_hazards"][-1]["feature"] == "GLOBAL"
    assert {"hazard-ratios.svg", "hazard-ratios-over-time.png"} <= {path.name for path in report.figures}


def test_only_a_cox_model_has_hazard_ratios(metabric):
    def section(model, X, y):
        nothing = dict.fromkeys(
            ("X_train", "y_train", "reference", "horizons", "unit", "subgroups", "patients", "data_name")
        )
        study = make_study(model, X, y, n_bootstrap=0, random_state=0, seen=False, **nothing)
        return hazard_ratios(study)

    X, y = metabric["X"][:80], metabric["y"][:80]
    assert section(metabric["model"], X, y) is None
    assert section(metabric["reference"], X, y).numbers["model"] == "the model"
    recalibrated = dcsurv.calibration.Recalibrated(metabric["reference"]).fit(metabric["X"], metabric["y"])
    assert section(recalibrated, X, y).numbers["model"] == "the model"
    old = dcsurv.load(Path(__file__).parent / "fixtures" / "format1" / "CoxPH.safetensors")
    X, y = dcsurv.datasets.load("flchain")
    said = section(old, X[::60], y[::60]).blocks
    assert any("are not in this model's file" in getattr(block, "text", "") for block in said)


# --- in a real browser -------------------------------------------------------------------------------------------

SCREENSHOTS = Path(__file__).parent.parent / "build" / "screenshots"
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}

# Everything that is to be seen must lie on the screen; only tables may be pushed aside, inside their own frame.
OUTSIDE = """() => [...document.querySelectorAll('body *')]
    .filter(e => !e.closest('.wide > *') && !e.closest('svg > *'))
    .filter(e => { const r = e.getBoundingClientRect(); return r.width && (r.right > innerWidth + 1 || r.left < -1); })
    .map(e => `${e.tagName} ${e.className} ${e.textContent.slice(0, 60)}`)"""
# The letters of the browser are not those that a figure was laid out with.
CUT_OFF = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
    const page = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const r = text.getBoundingClientRect();
        return r.left < page.left - 2 || r.right > page.right + 2 || r.top < page.top - 2 || r.bottom > page.bottom + 2;
    }).map(text => `${svg.closest('figure').id}: ${text.textContent}`);
})"""
# The contrast of text with what is behind it (WCAG), as far as backgrounds are plain.
FAINT = """() => {
    const parse = c => c.match(/[\\d.]+/g).map(Number);
    const light = c => { const [r, g, b] = parse(c).map(v => v / 255).map(v => v <= .03928 ? v / 12.92
        : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (parse(c).length < 4 || parse(c)[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
    return [...document.querySelectorAll('p, li, td, th, dt, dd, figcaption, span, svg text, h1, h2, h3, a')]
        .filter(e => e.textContent.trim())
        .map(e => { const style = getComputedStyle(e), own = e.closest('svg') ? style.fill : style.color;
            const [a, b] = [light(own), light(behind(e))].sort((x, y) => y - x);
            return [(a + .05) / (b + .05), `${e.tagName} ${e.textContent.slice(0, 40)} ${own}`]; })
        .filter(([contrast]) => contrast < 4.5).map(([contrast, text]) => `${contrast.toFixed(1)} ${text}`);
}"""


@pytest.fixture(scope="module")
def browser():
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with chromium() as one:
        yield one


def opened(browser, path, **options):
    """A page of the browser, which may take its time on a busy machine."""
    page = browser.new_page(**options)
    page.set_default_timeout(GUARD)
    page.goto(path.as_uri())
    return page


@pytest.fixture(scope="module", params=["metabric", "nasty"])
def path(request):
    return request.getfixturevalue("report" if request.param == "metabric" else "nasty_report").path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_whole(browser, path, width, scheme):
    across, down = WIDTHS[width]
    page = browser.new_page(viewport={"width": across, "height": down}, color_scheme=scheme)
    page.set_default_timeout(GUARD)
    said, asked_for = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked_for.append(request.url))
    page.goto(path.as_uri())
    name = "metabric" if path.stem == "metabric" else "nasty"
    page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert said == []
    assert [url for url in asked_for if not url.startswith("data:")] == [path.as_uri()]
    broken = "() => [...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert page.evaluate(broken) == 0
    assert page.evaluate("document.scrollingElement.scrollWidth") <= across
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(FAINT) == []
    drawn = page.evaluate("[...document.querySelectorAll('figure svg')].map(e => e.getBoundingClientRect().width)")
    assert len(drawn) >= 10
    assert min(drawn) > 280, "a figure must be large enough to read"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in dark[4:-1].split(",")) < 200) == (scheme == "dark")
    page.close()


def test_links_lead_to_their_sections(browser, path):
    page = opened(browser, path, viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    for key in ("decisions", "tripod"):
        page.click(f"nav a[href='#{key}']")
        assert page.evaluate(f"document.getElementById('{key}').getBoundingClientRect().top") < 450
    page.close()


def test_the_page_prints(browser, path):
    page = opened(browser, path, color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # A4 without its margins: what does not fit across would be cut off on paper.
    page.set_viewport_size({"width": 680, "height": 1000})
    folded = "[...document.querySelectorAll('details > :last-child')].filter(e => !e.checkVisibility()).length"
    assert page.evaluate(folded) == 0, "what is folded on the screen is open on paper"
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 680
    name = "metabric" if path.stem == "metabric" else "nasty"
    page.screenshot(path=SCREENSHOTS / f"{name}-print.png", full_page=True)
    data = page.pdf(path=SCREENSHOTS / f"{name}.pdf", prefer_css_page_size=True, print_background=True)
    assert data.startswith(b"%PDF")
    assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page/") + data.count(b"/Type /Page ") >= 5
    page.close()


def test_levels_are_told_by_what_they_are_not_by_how_they_are_called():
    texts = pd.Series(["other (unit)", "1 to 3 days", "below 5", "10", "9"] * 10 + ["rare"] * 3 + ["odd"] * 3)
    found = pooled_levels(texts)
    assert found.order == ["9", "10", "1 to 3 days", "below 5", "other (unit)", "other (2 levels)"]
    assert found.other == "other (2 levels)"
    assert (found.labels == found.other).sum() == 6


def test_the_report_and_evaluate_leave_out_the_same_horizons(metabric, tmp_path):
    X, y, model = metabric["X"], metabric["y"], metabric["reference"]
    times = np.sort(y["time"])
    asked = [float(t) for t in (times[0] / 2, times[100], times[-11], times[-5], times[-1] + 1)]
    study = make_study(
        model, X, y, X_train=None, y_train=None, reference=None, horizons=asked, unit="days",
        n_bootstrap=0, random_state=0, subgroups=None, patients=None, data_name=None, seen=False,
    )  # fmt: skip
    measured = evaluate_curves(
        y, study.curves, None, [Horizon(f"{t:g}", t) for t in asked], follow_up=study.follow_up, n_bootstrap=0,
        unit="days",
    )  # fmt: skip
    assert set(measured.table["horizon"].dropna()) == set(study.horizons) == {asked[1], asked[2]}
    assert [text.split(": ")[1] for text in measured.unmeasured] == [f"{reason}." for _, reason in study.left_out]
