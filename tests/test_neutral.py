"""The neutral benchmark: scores against oracles, ranks by hand, what survives a kill, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.utils import concordance_index
from sksurv.metrics import concordance_index_censored

from dcsurv import CoxPH, DeepSurv, SurvivalCurves, make_outcome
from dcsurv.experiments import PlanError
from dcsurv.experiments.neutral import (
    NeutralFolder,
    critical_difference,
    differences_to,
    field_of,
    harrell,
    isbs,
    neutral_tasks,
    predicted_risk,
    tasks,
)
from dcsurv.experiments.neutral.folder import chosen_folds
from dcsurv.experiments.neutral.ranks import runs_within
from dcsurv.experiments.neutral.reference import efron, pooled_levels
from dcsurv.figures.ranks import mean_ranks
from figure_checks import check_texts

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# Cohort: the levels of its category, how often each is drawn; folds.
COHORTS = {"numbers": ("", 4), "pooled": ("11111122222333344455567", 3), "unseen": ("ab", 2), "alone": ("ab", 3)}


def patients(name, n=140):
    """Draw a cohort with continuous times; a patient of the first fold of ``unseen`` has a level of her own."""
    rng = np.random.default_rng(len(name))
    levels = COHORTS[name][0]
    table = pd.DataFrame({"age": rng.normal(60, 10, n), "dose": rng.integers(0, 3, n)})
    risk = 0.05 * (table["age"] - 60) + 0.4 * table["dose"]
    if levels:
        table["site"] = rng.choice(list(levels), n)
        risk += 0.5 * (table["site"] == levels[-1])
    if name == "unseen":
        table.loc[0, "site"] = "only here"
    event, censoring = rng.exponential(np.exp(-risk)), rng.exponential(1.5, n)
    return table.assign(time=np.minimum(event, censoring), status=(event <= censoring).astype(int))


def slow_isbs(time, event, survival, train_time, train_event):
    """The definition in loops; survival is a function of a time that returns one value per patient."""
    G = KaplanMeierFitter().fit(train_time, 1 - train_event)
    times, kept = sorted(set(time)), []
    for t in times:
        kept.append(t)
        if sum(z < t for z in time) / len(time) > 0.8:
            break
    G_own, G_times = G.predict(list(time)).to_numpy(), G.predict(kept).to_numpy()
    scores = []
    for t, G_t in zip(kept, G_times, strict=True):
        total = 0.0
        for s, z, d, G_z in zip(survival(t), time, event, G_own, strict=True):
            if z > t:
                total += (1 - s) ** 2 / max(G_t, 0.001)
            elif d:
                total += s**2 / max(G_z, 0.001)
        scores.append(total / len(time))
    area = sum((b - a) * (u + v) / 2 for a, b, u, v in zip(kept, kept[1:], scores, scores[1:], strict=False))
    return area / (kept[-1] - kept[0])


def published_rows(name, table, folds):
    """What somebody else would publish: a Cox model and Kaplan-Meier of lifelines, and a made-up learner."""
    columns = table.drop(columns=["time", "status"])
    for fold, test in folds.items():
        train = table.drop(index=test)
        if name == "pooled":  # 6 and 7 join the rarest of the frequent ones
            counts = train["site"].value_counts()
            frequent = [k for i, k in enumerate(counts.index) if i < 5 or counts[k] >= 0.05 * len(train)]
            columns["site"] = [k if k in frequent else frequent[-1] for k in table["site"]]
        numbers = pd.get_dummies(columns, drop_first=True, dtype=float).join(table[["time", "status"]])
        time, event = table.loc[test, "time"].to_numpy(), table.loc[test, "status"].to_numpy()
        cox = CoxPHFitter().fit(numbers.drop(index=test), "time", "status")
        kaplan = KaplanMeierFitter().fit(train["time"], train["status"])
        steps = cox.predict_survival_function(numbers.loc[test])  # asked for times, lifelines would interpolate
        scores = {
            "CPH": (concordance_index(time, -cox.predict_partial_hazard(numbers.loc[test]), event), _at(steps)),
            "KM": (0.5, lambda t, km=kaplan, test=test: np.repeat(km.predict(t), len(test))),
        }
        common = {"cohort": name, "iteration": int(fold)}
        for learner, (c, survival) in scores.items():
            value = slow_isbs(time, event, survival, train["time"], train["status"])
            yield {**common, "learner": learner, "tuned_for": "harrell_c,isbs", "harrell_c": c, "isbs": value}
        yield {**common, "learner": "Forest", "tuned_for": "harrell_c", "harrell_c": 0.9, "isbs": 0.9}
        yield {**common, "learner": "Forest", "tuned_for": "isbs", "harrell_c": 0.1, "isbs": 0.01}


def _at(steps):
    def survival(t):
        past = steps[steps.index <= t]
        return past.iloc[-1].to_numpy() if len(past) else np.ones(steps.shape[1])

    return survival


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small folder in the format of the benchmark."""
    place = tmp_path_factory.mktemp("benchmark")
    (place / "cohorts").mkdir()
    about, rows = {}, []
    for name, (levels, n_folds) in COHORTS.items():
        table = patients(name)
        order = np.random.default_rng(1).permutation(np.arange(1, len(table)))
        folds = {str(k + 1): sorted(part.tolist()) for k, part in enumerate(np.array_split(order, n_folds))}
        folds["1"] = [0, *folds["1"]]
        kinds = {"age": "number", "dose": "number"} | ({"site": "category"} if levels else {})
        about[name] = {
            "rows": len(table),
            "events": int(table["status"].sum()),
            "columns": kinds,
            "iterations": n_folds,
        }
        table.to_csv(place / "cohorts" / f"{name}.csv", index=False)
        (place / "cohorts" / f"{name}.folds.json").write_text(json.dumps(folds))
        if name in ("numbers", "pooled"):
            rows += published_rows(name, table, folds)
        elif name == "unseen":
            rows += [{"cohort": name, "iteration": 1, "learner": "CPH", "tuned_for": "harrell_c,isbs", "isbs": 0.1}]
    (place / "cohorts.json").write_text(json.dumps(about))
    pd.DataFrame(rows).to_csv(place / "published_scores.csv", index=False, float_format="%.6f")
    return place


@pytest.fixture
def own_folder(folder, tmp_path):
    """A copy that a test may break."""
    return Path(shutil.copytree(folder, tmp_path / "benchmark"))


@pytest.fixture
def command(monkeypatch, capsys):
    """The command, in this process: returns its exit code and what it printed."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import neutral

    def call(*words):
        code = neutral.main([str(word) for word in words])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


def test_scores_are_those_of_other_packages_and_of_a_plain_loop():
    table = patients("numbers")
    train, test = table[:90], table[90:]
    y, y_train = (make_outcome(part["time"], part["status"]) for part in (test, train))
    times = np.linspace(0.05, 3, 30)
    rng = np.random.default_rng(3)
    curves = SurvivalCurves(times, np.exp(-np.outer(np.round(rng.exponential(1, 50), 1), times)), interpolation="step")
    own = isbs(y, curves, y_train)
    slow = slow_isbs(
        *(test[c].to_numpy() for c in ("time", "status")), lambda t: curves.evaluate(np.array([t]))[:, 0],
        *(train[c].to_numpy() for c in ("time", "status")),
    )  # fmt: skip
    assert own == pytest.approx(slow, abs=1e-12)
    risk = predicted_risk(curves)
    assert len(np.unique(risk)) < len(risk), "equal curves are ties"
    assert harrell(y, risk) == pytest.approx(concordance_index(test["time"], -risk, test["status"]), abs=1e-12)
    assert harrell(y, risk) == pytest.approx(concordance_index_censored(y["event"], y["time"], risk)[0], abs=1e-12)


def test_scores_by_hand():
    y = make_outcome([1, 2, 2, 3], [1, 1, 0, 0])
    # Pairs with different times, the first an event: (1, 2), (1, 2'), (1, 3), (2, 3); tied risks count one half.
    assert harrell(y, np.array([4.0, 1.0, 4.0, 0.0])) == (1 + 0.5 + 1 + 1) / 4
    assert harrell(make_outcome([1, 1], [0, 1]), np.array([1.0, 2.0])) == 0.5, "no pair"
    times, hazard = efron(np.array([1.0, 1, 2]), np.array([True, True, True]), np.array([2.0, 1, 1]))
    np.testing.assert_allclose(hazard, [1 / 4 + 1 / 2.5, 1 / 4 + 1 / 2.5 + 1])
    assert times.tolist() == [1, 2]


def test_rare_levels_are_pooled_as_the_published_pipeline_did():
    counts = {"a": 40, "b": 20, "c": 15, "d": 10, "e": 3, "f": 3, "g": 2}
    column = pd.Series([level for level, n in counts.items() for _ in range(n)])
    assert pooled_levels(column) == {"f": "e", "g": "e"}
    more = pd.Series([level for level in "abcdefg" for _ in range(10)] + ["h"])
    assert pooled_levels(more) == {"h": "g"}, "levels of at least 5 % stay"
    assert pooled_levels(column[column < "f"]) == {}


@pytest.fixture
def by_hand():
    """Two cohorts: ours is second of three with three folds, then first of two; a learner failed on some folds."""
    ours = pd.DataFrame(
        {"cohort": ["a"] * 3 + ["b"], "fold": [1, 2, 3, 1], "model": "ours", "isbs": [0.2, 0.2, 0.5, 0.1]}
    )
    theirs = [("a", "P", 1, 0.1), ("a", "P", 2, 0.1), ("a", "P", 3, 0.1), ("a", "P", 4, 9.0)]
    theirs += [("a", "Q", 1, 0.25), ("a", "Q", 2, 0.25)]  # failed on fold 3, where ours is bad
    theirs += [("b", "P", 1, 0.3), ("c", "P", 1, 0.3)]
    return ours, pd.DataFrame(theirs, columns=["cohort", "learner", "fold", "value"])


def test_ranks_by_hand(by_hand):
    field = field_of(*by_hand, "ours", "isbs")
    assert field.ranks.loc["a"].to_dict() == {"P": 1, "Q": 3, "ours": 2}, "only folds that both have are compared"
    assert field.ranks.loc["b"].dropna().to_dict() == {"P": 2, "ours": 1}
    assert field.mean_ranks.to_dict() == {"P": 1.5, "ours": 1.5, "Q": 3}
    assert field.place == 1.5
    assert field.means.loc["a", "ours"] == pytest.approx(0.3)
    gap = differences_to(field, ["P", "Q"]).set_index("learner")
    assert gap.loc["P", "difference"] == pytest.approx((0.2 - 0.2) / 2)
    # Student's t at 1 degree of freedom times the standard error of +0.2 and -0.2
    assert gap.loc["P", "upper"] == pytest.approx(12.706204736 * 0.2)
    assert gap.loc["Q", "difference"] == pytest.approx(-0.05)
    assert np.isnan(gap.loc["Q", "upper"])
    assert gap["better"].tolist() == [1, 1]
    higher = field_of(by_hand[0].rename(columns={"isbs": "harrell_c"}), by_hand[1], "ours", "harrell_c")
    assert higher.ranks.loc["a"].to_dict() == {"P": 3, "Q": 1, "ours": 2}


def test_another_model_of_ours_does_not_shift_ranks(by_hand):
    ours, theirs = by_hand
    both = pd.concat([ours, ours.assign(model="variant", isbs=0.0)])
    pd.testing.assert_frame_equal(
        field_of(both, theirs, "ours", "isbs").ranks, field_of(ours, theirs, "ours", "isbs").ranks
    )
    with pytest.raises(ValueError, match="a published learner is called 'P', too"):
        field_of(ours.assign(model="P"), theirs, "P", "isbs")


def test_the_critical_difference_is_that_of_demsar(by_hand):
    """His example: four classifiers on 14 data sets, q = 2.569, CD = 1.25; his groups by hand."""
    ranks = pd.DataFrame(np.tile([1.0, 2, 3, 4], (14, 1)), columns=list("abcd"), index=[f"c{k}" for k in range(14)])
    one = field_of(*by_hand, "ours", "isbs")
    found = critical_difference(type(one)("a", "isbs", ranks, ranks, ranks))
    assert found.difference == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    assert found.p_value < 1e-6
    assert found.groups() == [(0, 1), (1, 2), (2, 3)]
    assert runs_within(np.array([1.0, 1.5, 2.5, 9.0]), 1.0) == [(0, 1), (1, 2)]
    partial = critical_difference(field_of(*by_hand, "ours", "isbs"))
    assert partial is None, "two learners have every cohort: nothing to test"


@pytest.mark.parametrize("ours", ["calibrated", "calibrated-dcs-quantile"])
def test_names_in_the_figure_do_not_collide(ours):
    names = [f"MBSTAFT{k}" for k in range(10)] + [ours] + [f"XGB{k}" for k in range(11)]
    ranks = pd.Series(np.sort(np.random.default_rng(0).uniform(4, 12, 22)), names)
    figure = mean_ranks(ranks, runs_within(ranks.to_numpy(), 5.0), 5.0, highlight=ours)
    check_texts(figure)
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"]
    assert [text[:10] for text in bold] == ["calibrated"]


def test_the_whole_benchmark(folder, tmp_path, command):
    """The Cox model is met, levels unseen in training do no harm, and every file tells the same."""
    code, printed = command(folder, "--model", "coxph", "--folds", "1-3", "-o", tmp_path)
    assert code == 0, printed
    check = pd.read_csv(tmp_path / "check.csv").set_index("cohort")
    assert check["verdict"].to_dict() == {
        "numbers": "met",
        "pooled": "met",
        "unseen": "unchecked",
        "alone": "unchecked",
    }
    assert check.loc["alone", "why"] == "no published CPH"
    assert check.loc["unseen", "why"] == "a level of site that training rows lack"
    assert check.loc[["numbers", "pooled"], ["harrell_c", "isbs"]].max().max() < 2e-5
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows.groupby("cohort", sort=False)["fold"].nunique().to_dict() == {
        "numbers": 3, "pooled": 3, "unseen": 2, "alone": 3
    }  # fmt: skip
    scores = ["harrell_c", "isbs", "C-td", "IBS", "DDC", "cpu_seconds"]
    assert rows[scores].notna().all().all()
    page = (tmp_path / "README.md").read_text()
    assert "Without published scores, and so without ranks: alone." in page
    assert "Fewer folds than the others: unseen." in page
    assert "| Forest | 1.00 | 1.00 |" in page, "each learner as tuned for the score of the column"
    assert str(folder) not in page
    assert {path.name for path in tmp_path.iterdir()} >= {"ranks-harrell_c.svg", "rows.csv", "README.md"}
    assert not (tmp_path / "curves").exists(), "nothing of the patients is kept"


def test_a_folder_without_comparable_scores_and_with_gaps(own_folder, tmp_path, command):
    """Nothing to rank against, values missing, a cohort with few folds: scores all the same, and the page says so."""
    path = own_folder / "cohorts" / "alone.csv"
    table = pd.read_csv(path)
    table.loc[3:9, ["age", "site"]] = np.nan
    table.to_csv(path, index=False)
    words = ["--model", "coxph", "--cohorts", "alone", "unseen", "--folds", "2-9", "--workers", "2", "-o", tmp_path]
    code, printed = command(own_folder, *words)
    assert code == 0, printed
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows[["cohort", "fold"]].to_numpy().tolist() == [["alone", 2], ["alone", 3], ["unseen", 2]]
    assert rows["harrell_c"].between(0.5, 1).all()
    assert pd.read_csv(tmp_path / "check.csv")["verdict"].tolist() == ["unchecked"] * 2
    assert "| `coxph` | – | – | – |" in (tmp_path / "README.md").read_text()
    assert not list(tmp_path.glob("*.svg"))


def test_several_models_and_a_model_that_fails(folder, tmp_path, command, monkeypatch):
    monkeypatch.setattr(DeepSurv, "fit", lambda *_: 1 / 0)
    words = ["--model", "coxph", "--model", "deepsurv", "--cohorts", "numbers", "--folds", "all", "-o", tmp_path]
    code, printed = command(folder, *words)
    assert code == 0
    assert printed.count("failed: deepsurv on numbers, fold") == 4
    page = (tmp_path / "README.md").read_text()
    assert "**Failed, and therefore left out of the means:**" in page
    assert "| `deepsurv` | – | – |" in page


def test_a_wrong_cox_row_is_refused(own_folder, tmp_path, command):
    path = own_folder / "published_scores.csv"
    table = pd.read_csv(path)
    table.loc[(table["learner"] == "CPH") & (table["cohort"] == "numbers"), "isbs"] += 0.001
    table.to_csv(path, index=False)
    words = [own_folder, "--model", "coxph", "--cohorts", "numbers", "-o", tmp_path / "out"]
    code, printed = command(*words)
    assert code == 1
    assert "are not met on numbers" in printed
    assert "--unchecked" in printed
    assert not (tmp_path / "out" / "README.md").exists()
    code, _ = command(*words, "--unchecked")
    assert code == 0
    assert "The check failed, and was passed over" in (tmp_path / "out" / "README.md").read_text()


def test_rows_are_computed_once_and_again_when_something_changed(own_folder, tmp_path, command, monkeypatch):
    words = [own_folder, "--model", "coxph", "--cohorts", "numbers", "--folds", "1", "-o", tmp_path / "out"]
    assert command(*words)[0] == 0
    first = {path.name for path in tmp_path.glob("out/rows/*.json")}
    with monkeypatch.context() as patched:
        patched.setattr(CoxPH, "fit", lambda *_: pytest.fail("fitted again"))
        assert command(*words)[0] == 0
    csv = own_folder / "cohorts" / "numbers.csv"
    table = pd.read_csv(csv)
    table.loc[5, "age"] += 1e-6
    table.to_csv(csv, index=False)
    assert command(*words)[0] == 0
    assert len({path.name for path in tmp_path.glob("out/rows/*.json")} - first) == 2, "data changed: both anew"
    folder = NeutralFolder(own_folder)
    before = neutral_tasks(folder, ["coxph"], "1", ["numbers"])[0].key
    assert before == neutral_tasks(folder, ["coxph"], "1", ["numbers"])[0].key
    monkeypatch.setattr(tasks, "code_digest", lambda _: "other code")
    assert neutral_tasks(folder, ["coxph"], "1", ["numbers"])[0].key != before


KILLED = """
import os, signal, sys
from dcsurv.experiments.store import ResultStore
write, left = ResultStore.write, 3

def dies(self, *arguments):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    write(self, *arguments)

ResultStore.write = dies
sys.path.insert(0, sys.argv.pop(1))
import neutral
neutral.main(sys.argv[1:])
"""


def test_a_run_that_was_killed_goes_on(folder, tmp_path, command):
    words = [folder, "--model", "coxph", "--cohorts", "numbers", "--folds", "1,2", "-o", tmp_path]
    done = subprocess.run([sys.executable, "-c", KILLED, BENCHMARKS, *words], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    before = {path.name: path.read_bytes() for path in tmp_path.glob("rows/*.json")}
    assert len(before) == 3
    assert command(*words)[0] == 0
    now = {path.name: path.read_bytes() for path in tmp_path.glob("rows/*.json")}
    assert len(now) == 4
    assert before.items() <= now.items()


@pytest.mark.filterwarnings("ignore")
def test_on_a_dask_cluster(folder, tmp_path, command):
    from distributed import LocalCluster

    words = [folder, "--model", "coxph", "--cohorts", "numbers", "--folds", "1", "-o"]
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        code, printed = command(*words, tmp_path / "cluster", "--cluster", cluster.scheduler_address)
    assert code == 0, printed
    assert command(*words, tmp_path / "here")[0] == 0
    ours, theirs = (
        pd.read_csv(tmp_path / name / "rows.csv").drop(columns="cpu_seconds") for name in ("here", "cluster")
    )
    pd.testing.assert_frame_equal(ours, theirs)


def edited(name, change):
    def edit(place):
        path = place / name
        path.write_text(change(path.read_text()))

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda place: shutil.rmtree(place), "there is no folder"),
        (lambda place: (place / "cohorts.json").unlink(), "cohorts.json cannot be read"),
        (edited("cohorts.json", lambda text: text[:-1]), "cohorts.json is not JSON"),
        (edited("cohorts.json", lambda text: "[]"), "holds a list"),
        (edited("cohorts.json", lambda text: "{}"), "lists no cohorts"),
        (edited("cohorts.json", lambda text: text.replace('"number"', '"ordinal"')), "use 'number' or 'category'"),
        (edited("cohorts.json", lambda text: text.replace("140", "141")), "has 140 rows, but cohorts.json says 141"),
        (edited("cohorts.json", lambda text: text.replace('"dose"', '"doses"')), r"lacks the columns \['doses'\]"),
        (lambda place: (place / "cohorts" / "numbers.csv").unlink(), "cannot be read from"),
        (edited("cohorts/numbers.csv", lambda text: text.replace(",1\n", ",2\n")), "must be 1 .event. or 0"),
        (edited("cohorts/numbers.csv", lambda text: text.replace(",1,", ",one,", 1)), "numbers, but row .* 'one'"),
        (edited("cohorts/numbers.folds.json", lambda text: "{}"), "has no folds"),
        (edited("cohorts/numbers.folds.json", lambda text: '{"first": [1]}'), "the fold 'first'"),
        (edited("cohorts/numbers.folds.json", lambda text: '{"1": []}'), "should be a list of row numbers"),
        (edited("cohorts/numbers.folds.json", lambda text: '{"1": [0, 140]}'), "each test row once, from 0 to 139"),
        (edited("published_scores.csv", lambda text: text.replace("tuned_", "")), r"lacks .*'tuned_for'"),
        (edited("published_scores.csv", lambda text: text + text.split("\n", 1)[1]), "has more than one harrell_c of"),
        (lambda place: (place / "published_scores.csv").unlink(), "the published scores cannot be read"),
    ],
)  # fmt: skip
def test_files_that_are_not_what_they_should_be_are_refused(edit, words, own_folder, tmp_path, command):
    edit(own_folder)
    code, printed = command(own_folder, "--model", "coxph", "--cohorts", "numbers", "-o", tmp_path / "out")
    assert code == 2
    assert re.search(words, printed), printed
    assert not list(tmp_path.glob("out/rows/*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "nobody"], "there is no model 'nobody'; there are"),
        (["--model", "coxph", "coxph"], "each only once"),
        (["--cohorts", "nowhere"], "there is no cohort 'nowhere'"),
        (["--folds", "3-1"], "folds is '3-1'"),
        (["--folds", "9"], "none of the cohorts has one of the folds 9"),
        (["--workers", "0"], "workers is 0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, words, folder, tmp_path, command):
    code, printed = command(folder, "-o", tmp_path / "out", *options)
    assert code == 2
    assert words in printed


def test_missing_values_and_strange_levels_are_kept(own_folder):
    path = own_folder / "cohorts" / "pooled.csv"
    table = pd.read_csv(path, dtype=str)
    table.loc[0, "site"], table.loc[1, "site"], table.loc[2, "age"] = "None", None, None
    table.to_csv(path, index=False)
    cohort = NeutralFolder(own_folder).cohort("pooled")
    assert cohort.X["site"][0] == "None"
    assert cohort.X["site"].isna().sum() == cohort.X["age"].isna().sum() == 1
    assert cohort.X["site"].map(type).value_counts().to_dict() == {str: 139, float: 1}
    train, test = cohort.split(1)
    assert sorted([*train, *test]) == list(range(140))
    with pytest.raises(PlanError, match="folds is 'x'"):
        chosen_folds("x", [1])
    assert chosen_folds("2-4,9,1", [1, 2, 3]) == [1, 2, 3]
