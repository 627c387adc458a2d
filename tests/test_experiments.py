"""The experiment runner: what a plan becomes, what survives a kill, and what is refused before any training."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from dcsurv import CalibratedEnsemble, CoxPH, DeepSurv, SurvivalCurves, parallel, train_test_indices
from dcsurv.datasets import load
from dcsurv.experiments import (
    ABLATIONS,
    PAPER_MODELS,
    Plan,
    PlanError,
    differences,
    dispatch,
    printed_table,
    run,
    runner,
    summary,
)
from dcsurv.experiments.runner import execute
from dcsurv.experiments.store import ResultStore, compact
from dcsurv.experiments.tables import over_splits
from dcsurv.metrics import evaluate
from dcsurv.preprocessing import Preprocessor
from dcsurv.writing import write_atomically

# Seconds after which a test that hangs is given up; nothing takes a tenth of it.
GUARD = 600
SMALL = {"datasets": ["metabric"], "n_bootstrap": 5}


class Breaks(BaseEstimator):
    """Fails on one split; on another it takes its process down, as the out-of-memory killer would."""

    def __init__(self, how="raise", random_state=None):
        self.how = how
        self.random_state = random_state

    def fit(self, X, y):
        if self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        raise FloatingPointError("the loss is not a number [/here]")

    def predict_survival_function(self, X):
        raise AssertionError("never fitted")


class Interrupted(CoxPH):
    """A model whose training was stopped with Ctrl-C, as the networks report it."""

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y)
        self.training_summary_ = {"stopped_by": "interrupt"}
        return self


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """CoxPH on three splits of METABRIC, run once for all tests that only read."""
    folder = tmp_path_factory.mktemp("results")
    return folder, run(Plan(models=["CoxPH"], splits=[0, 1, 40], **SMALL), folder)


@pytest.fixture
def quick_rows(monkeypatch):
    """Few patients, and no comparison with a perfect model: for tests of what becomes of a row, not of its numbers."""
    monkeypatch.setattr(runner, "load", lambda name: tuple(part[:300] for part in load(name)))
    monkeypatch.setattr(runner, "evaluate", functools.partial(evaluate, n_null=0))


def test_a_plan_is_the_product_of_its_parts_with_one_identity_each():
    tasks = Plan(splits=(0, 1), seeds=(0, 1)).tasks()
    assert len(tasks) == 3 * 8 * 2 * 2
    assert len({task.key for task in tasks}) == len(tasks)
    assert [task.key for task in tasks] == [task.key for task in Plan(splits=(0, 1), seeds=(0, 1)).tasks()]
    changed = Plan(splits=(0, 1), seeds=(0, 1), changes={"max_epochs": 3}).tasks()
    networks = [task for task in tasks if task.model != "CoxPH"]
    assert not {task.key for task in networks} & {task.key for task in changed}, "settings are part of the identity"


def test_identities_tell_apart_what_a_repr_abbreviates():
    names = [f"column number {i}" for i in range(60)]
    plans = [Plan(models={"m": CoxPH(preprocess=Preprocessor(ordinal=[*names, last]))}) for last in ("a", "b")]
    assert plans[0].tasks()[0].key != plans[1].tasks()[0].key


def test_seeds_and_changes_reach_nested_estimators():
    ensemble = CalibratedEnsemble(estimator=DeepSurv())
    tasks = Plan(models={"e": ensemble}, seeds=(3, 4), changes={"max_epochs": 2}, **SMALL).tasks()
    assert [task.estimator.random_state for task in tasks] == [3, 4]
    assert [task.estimator.estimator.random_state for task in tasks] == [3, 4]
    assert [task.estimator.estimator.max_epochs for task in tasks] == [2, 2]


def test_ablations_differ_from_dcs_quant_in_one_setting():
    for name, change in ABLATIONS.items():
        base, other = (Plan(models=[model], datasets=["support"]).tasks()[0] for model in ("DCS-quant", name))
        differing = {key for key in base.settings if base.settings[key] != other.settings[key]}
        assert differing == set(change)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(models=["DCS-cubic"]), "unknown model 'DCS-cubic'; there are 'CoxPH'"),
        (Plan(datasets=["framingham"]), r"unknown datasets \['framingham'\]; there are support"),
        (Plan(models=[]), "no models"),
        (Plan(models="CoxPH"), r"pass a list, such as \['CoxPH'\]"),
        (Plan(splits=[0, 0]), "some splits twice"),
        (Plan(splits=[-1]), "splits holds -1"),
        (Plan(n_bootstrap=1), "at least 2 resamples"),
        (Plan(fewer_splits={"nobody": 5}), "fewer_splits gives 'nobody' 5 splits"),
        (Plan(fewer_splits={"CoxPH": 0}), "fewer_splits gives 'CoxPH' 0 splits"),
        (Plan(changes={"max_epoch": 2}), r"changes names \['max_epoch'\]"),
        (Plan(models={"a": CoxPH}), "an estimator object with fit"),
        (Plan(models={1: CoxPH()}), "a model goes by a name"),
        (Plan(models={"a": CoxPH(preprocess=object())}), "cannot be identified"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_is_written(plan, words, tmp_path):
    with pytest.raises(PlanError, match=words):
        run(plan, tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": 2, "cluster": "tcp://127.0.0.1:1"}, "exclude each other"),
        ({"cluster": "tcp://127.0.0.1:1"}, "no Dask scheduler answers"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_contradictory_options_are_refused(options, words, tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "_ANSWER_WITHIN", "200ms")  # nobody will
    with pytest.raises(PlanError, match=words):
        run(Plan(models=["CoxPH"], **SMALL), tmp_path, **options)


def test_an_unwritable_folder_is_refused(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(PlanError, match="cannot be written"):
        run(Plan(models=["CoxPH"], **SMALL), blocked / "results")


def test_too_little_space_is_refused(tmp_path, monkeypatch):
    """The file system's answer is replaced: filling a real disk would hurt whoever runs this."""
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1024**2))
    with pytest.raises(PlanError, match="only 1 MB are free"):
        run(Plan(models=["CoxPH"], **SMALL), tmp_path)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    store = ResultStore(tmp_path)
    store.prepare()
    with store.locked(), pytest.raises(PlanError, match="another run is writing"):
        run(Plan(models=["CoxPH"], **SMALL), tmp_path)


def test_coxph_rows_hold_the_exact_targets(results):
    _, found = results
    row = found.rows[found.rows["split"] == 40].iloc[0]
    reference = json.loads((Path(__file__).parent / "reference" / "paper_tables.json").read_text())
    target = reference["authors_notebook_c_td_cdauc_ddc"]["metabric, split seed 40 stratified"]["CoxPH"]
    np.testing.assert_allclose(row[["paper C-td", "paper CDAUC", "paper DDC"]].astype(float), target, atol=1e-5)


def test_metrics_can_be_recomputed_from_the_stored_curves(results):
    _, found = results
    X, y = load("metabric")
    for _, row in found.rows.iterrows():
        train, test = train_test_indices(y, random_state=row["split"])
        curves = found.curves(row["key"])
        table = evaluate(y[test], curves, y[train], X=X.iloc[test], n_null=0).set_index("metric")["value"]
        for metric in ("C-td", "CDAUC", "IBS", "DDC"):
            assert table[metric] == row[metric]
        table = evaluate(y[test], curves, y[train], censoring="marginal", n_null=0).set_index("metric")["value"]
        for metric in ("CDAUC", "IBS"):
            assert table[metric] == row[f"marginal {metric}"]


def test_running_a_finished_plan_trains_nothing_and_gives_the_same_rows(results, monkeypatch):
    folder, found = results
    monkeypatch.setattr(CoxPH, "fit", lambda *_: pytest.fail("trained again"))
    again = run(Plan(models=["CoxPH"], splits=[0, 1, 40], **SMALL), folder)
    pd.testing.assert_frame_equal(again.rows, found.rows)


def test_two_runs_with_the_same_seeds_are_identical(tmp_path):
    plan = Plan(models=["DeepSurv", "DCS-quant"], changes={"max_epochs": 2}, **SMALL)
    first, second = (run(plan, tmp_path / name, workers=workers).rows for name, workers in (("a", 1), ("b", 2)))
    clock = ["fit_seconds", "predict_seconds"]
    pd.testing.assert_frame_equal(first.drop(columns=clock), second.drop(columns=clock))
    other = run(Plan(models=["DeepSurv"], seeds=[7], changes={"max_epochs": 2}, **SMALL), tmp_path / "c").rows
    assert other["C-td"].iloc[0] != first["C-td"].iloc[0]


@pytest.mark.parametrize(
    "damage", ["cut short", "edited", "other key", "not json", "empty", "curves gone", "curves changed"]
)
def test_a_damaged_result_is_set_aside_and_computed_again(damage, tmp_path, quick_rows):
    plan = Plan(models=["CoxPH"], splits=[0], **SMALL)
    before = run(plan, tmp_path).rows
    key = before["key"].iloc[0]
    row, curves = tmp_path / "rows" / f"{key}.json", tmp_path / "curves" / f"{key}.npz"
    whole = row.read_bytes()
    if damage == "cut short":
        row.write_bytes(whole[: len(whole) // 2])
    elif damage == "edited":
        row.write_bytes(whole.replace(b'"split": 0', b'"split": 1'))
    elif damage == "other key":
        row.write_bytes(whole.replace(key.encode(), key[:-1].encode() + b"x"))
    elif damage == "not json":
        row.write_bytes(b"\x00" * 100)
    elif damage == "empty":
        row.write_bytes(b"")
    elif damage == "curves gone":
        curves.unlink()
    else:
        curves.write_bytes(curves.read_bytes()[:-1] + b"?")
    assert ResultStore(tmp_path).read(key) is None, "never read as a result"
    assert list((tmp_path / "damaged").iterdir())
    after = run(plan, tmp_path).rows
    clock = ["fit_seconds", "predict_seconds"]
    pd.testing.assert_frame_equal(before.drop(columns=clock), after.drop(columns=clock))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_task_is_reported_and_the_others_go_on(workers, tmp_path, quick_rows):
    plan = Plan(models={"good": CoxPH(), "broken": Breaks()}, splits=[0, 1], **SMALL)
    found = run(plan, tmp_path, workers=workers)
    assert found.rows["model"].tolist() == ["good", "good"]
    assert found.failures["cause"].tolist() == ["FloatingPointError: the loss is not a number [/here]"] * 2
    assert "the loss is not a number" in found.failures["traceback"].iloc[0]


def test_a_training_that_was_interrupted_is_no_result(tmp_path, quick_rows):
    with pytest.raises(KeyboardInterrupt):
        run(Plan(models={"good": CoxPH(), "cut short": Interrupted()}, splits=[0], **SMALL), tmp_path)
    assert [path.name.split("_")[1] for path in tmp_path.glob("rows/*.json")] == ["good"]


@pytest.mark.filterwarnings("ignore")
def test_a_task_that_kills_its_process_is_found_out_and_the_others_go_on(tmp_path):
    models = {"deadly": Breaks("die"), "good": CoxPH(), "better": CoxPH(penalizer=0.1)}
    found = run(Plan(models=models, splits=[0], **SMALL), tmp_path, workers=2)
    assert sorted(found.rows["model"]) == ["better", "good"]
    assert found.failures["model"].tolist() == ["deadly"]
    assert found.failures["cause"].str.contains("its process died").all()


# Once three rows are there, fits wait for the file "go": a run cannot end before it has been struck. Rows hold no
# scores, which take longest: it is about their files.
SCRIPT = """
import os, pathlib, sys, time
from dcsurv import CoxPH
from dcsurv.experiments import Plan, run, runner

class Waits(CoxPH):
    def fit(self, X, y, sample_weight=None):
        folder = pathlib.Path(os.environ["RESULTS"])
        while len(list(folder.glob("rows/*.json"))) >= 3 and not (folder / "go").exists():
            time.sleep(0.02)
        runner.scores = lambda *_: {"default": [], "marginal": [], "paper": []}  # also in processes of workers
        return super().fit(X, y)

if __name__ == "__main__":
    plan = Plan(["metabric"], {"waits": Waits()}, range(6), n_bootstrap=5)
    print(len(run(plan, os.environ["RESULTS"], **{sys.argv[1]: eval(sys.argv[2])}).rows))
"""

# Every life is a fork that is killed at the n-th line that it runs of the code that writes a result.
LIVES = """
import functools, hashlib, json, os, pathlib, signal, sys
from dcsurv import writing
from dcsurv.datasets import load
from dcsurv.experiments import Plan, run, runner, store

# Rows that are there soon: few patients, and no comparison with a perfect model.
runner.load = lambda name: tuple(part[:300] for part in load(name))
runner.evaluate = functools.partial(runner.evaluate, n_null=0)
plan = Plan(["metabric"], ["CoxPH"], range(7), n_bootstrap=2)
folder = pathlib.Path(sys.argv[1])

def die_at(line):
    left, write = line, store.ResultStore.write

    def each_line(frame, event, argument):
        nonlocal left
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return each_line

    def each_call(frame, event, argument):
        return each_line if frame.f_code.co_filename in (writing.__file__, store.__file__) else None

    def traced(*arguments):
        sys.settrace(each_call)
        write(*arguments)
        sys.settrace(None)

    store.ResultStore.write = traced

run(plan, folder / "undisturbed")
for line in map(int, sys.argv[2:]):
    child = os.fork()
    if child == 0:
        die_at(line)
        run(plan, folder / "killed")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    rows = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("killed/rows/*.json")}
    left_over = len(list(folder.glob("killed/*/.*.part")))
    print(json.dumps({"killed": os.WIFSIGNALED(status), "rows": rows, "left over": left_over}), flush=True)
run(plan, folder / "killed")
"""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


def _finished(folder):
    return {path.name: path.read_bytes() for path in folder.glob("rows/*.json")}


def test_kill_9_while_writing_loses_no_finished_row_and_counts_none_twice(tmp_path):
    """A row takes about 110 lines to write, so that every stage of it is hit, in the first result or in the second."""
    moments = [str(line) for line in range(3, 220, 24)]
    done = subprocess.run(
        [sys.executable, "-c", LIVES, tmp_path, *moments], capture_output=True, text=True, env=os.environ | ONE_THREAD
    )
    assert done.returncode == 0, done.stderr
    lives = [json.loads(line) for line in done.stdout.splitlines()]
    assert [life["killed"] for life in lives] == [True] * len(moments)
    for before, after in itertools.pairwise(life["rows"] for life in lives):
        assert before.items() <= after.items(), "a finished row was lost or computed again"
    assert 3 <= len(lives[-1]["rows"]) < 7, "some lives ended a row, and some did not"
    assert any(life["left over"] for life in lives), "some were killed with a file half written"
    assert len(_finished(tmp_path / "killed")) == 7
    assert not list(tmp_path.glob("killed/*/.*.part")), "left-overs of killed writes are removed"
    ours, theirs = (_without_clock(_finished(tmp_path / name)) for name in ("undisturbed", "killed"))
    assert ours == theirs


def _without_clock(rows):
    out = {}
    for name, data in rows.items():
        row = json.loads(data)["row"]
        out[name] = {key: value for key, value in row.items() if not key.endswith("_seconds")}
        out[name]["training"] = {k: v for k, v in row["training"].items() if "second" not in k}
    return out


def test_kill_9_of_a_run_with_worker_processes(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "results"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "workers"]
    environment = os.environ | {"RESULTS": str(folder)}
    process = subprocess.Popen([*command, "2"], env=environment, start_new_session=True)
    _wait_for(lambda: process.poll() is not None or len(_finished(folder)) >= 3)
    assert process.poll() is None, "killed while it works"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = _finished(folder)
    (folder / "go").touch()
    done = subprocess.run([*command, "1"], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "6", done.stderr
    now = _finished(folder)
    assert all(now[name] == data for name, data in before.items())


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    target = tmp_path / "row.json"
    write_atomically(target, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_survives_the_death_of_a_worker(tmp_path):
    """A real scheduler and two worker processes, one of which is killed while it works."""
    folder, address_file = tmp_path / "results", tmp_path / "scheduler.json"
    environment = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "3", "RESULTS": str(folder)}
    quiet = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(address_file)]
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", *common]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny",
              "--local-directory", str(tmp_path), *common]  # fmt: skip
    processes = [subprocess.Popen(scheduler, **quiet)]
    try:
        _wait_for(lambda: address_file.exists() and address_file.read_text().strip().endswith("}"))
        processes += [subprocess.Popen(worker, **quiet) for _ in range(2)]
        address = json.loads(address_file.read_text())["address"]
        from distributed import Client

        with Client(address, timeout=GUARD) as client:
            client.wait_for_workers(2, timeout=GUARD)
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        plan = subprocess.Popen(
            [sys.executable, str(script), "cluster", repr(address)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        _wait_for(lambda: len(list(folder.glob("rows/*.json"))) >= 3 or plan.poll() is not None)
        assert plan.poll() is None, plan.stderr.read()
        processes[1].kill()
        (folder / "go").touch()
        output, errors = plan.communicate(timeout=GUARD)
        assert output.strip() == "6", errors
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore")
def test_a_task_that_kills_its_cluster_worker_is_a_failure_and_not_the_end(tmp_path):
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        plan = Plan(models={"deadly": Breaks("die"), "good": CoxPH()}, splits=[0], **SMALL)
        found = run(plan, tmp_path, cluster=cluster.scheduler_address)
    assert found.rows["model"].tolist() == ["good"]
    assert found.failures["cause"].str.contains("its worker died").all()


@pytest.mark.filterwarnings("ignore")
def test_a_result_that_goes_down_with_its_worker_is_computed_again():
    """It was there, but not fetched yet: neither lost nor a failure."""
    from distributed import Client, LocalCluster

    tasks = [SimpleNamespace(key=f"task {number}") for number in range(4)]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, timeout=GUARD) as client,
    ):
        outcomes = dispatch._on_cluster(tasks, client, _work_of_nobody)
        found = [next(outcomes)]
        _wait_for(lambda: sum(map(len, client.has_what().values())) == len(tasks))
        before = client.run(os.getpid)
        for process in before.values():
            os.kill(process, signal.SIGKILL)
        _wait_for(lambda: not set(before) & set(client.scheduler_info()["workers"]))
        found += outcomes
    assert {one.key: one.failure for one in found} == {task.key: None for task in tasks}


def _work_of_nobody(task):
    return {"task": task.key}, None


def test_a_map_is_worked_into_the_stored_curves():
    _, y = load("metabric")
    values = np.sort(np.random.default_rng(0).random((len(y), 5)), axis=1)[:, ::-1]
    curves = SurvivalCurves(np.linspace(2000, 10600, 5), values, transform=lambda s, t: s**3)
    kept = compact(curves)
    at = np.linspace(0, 10600, 500)
    np.testing.assert_allclose(kept.evaluate(at), curves.evaluate(at), atol=1e-3)


def _wait_for(condition):
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < GUARD, "nothing happens any more"
        time.sleep(0.02)


def test_summary_and_differences_are_over_splits(results):
    rows = results[1].rows
    better = rows.assign(model="better", **{"C-td": rows["C-td"] + [0.01, 0.02, 0.03]})
    both = pd.concat([rows, better])
    table = summary(both).set_index("model")
    assert table.loc["CoxPH", "C-td mean"] == pytest.approx(rows["C-td"].mean())
    assert table.loc["CoxPH", "runs"] == 3
    gap = differences(both, "CoxPH", ["C-td", "DDC"]).set_index("metric")
    assert gap.loc["C-td", "difference"] == pytest.approx(0.02)
    # Student's t at 2 degrees of freedom times sqrt((1/3 + 1/4) * 0.0001)
    half = 4.302652729911275 * np.sqrt((1 / 3 + 0.25) * 1e-4)
    assert gap.loc["C-td", "upper"] == pytest.approx(0.02 + half)
    assert gap.loc["DDC", ["difference", "lower", "upper"]].eq(0).all()
    with pytest.raises(ValueError, match="reference is 'nobody'"):
        differences(both, "nobody")
    other = both.assign(split_sha256=np.arange(len(both)).astype(str))
    with pytest.raises(ValueError, match="cannot be paired"):
        differences(other, "CoxPH")


def test_a_row_with_fewer_splits_is_compared_on_those_that_it_has(results):
    rows = results[1].rows
    fewer = rows.iloc[1:].assign(model="fewer", **{"C-td": rows["C-td"].iloc[1:] + np.array([0.01, 0.03])})
    fewer["IBS"] = [np.nan, 0.2]
    both = pd.concat([rows, fewer])
    table = summary(both).set_index("model")
    assert table.loc["fewer", ["runs", "C-td runs", "IBS runs"]].tolist() == [2, 2, 1]
    assert table.loc["fewer", "IBS mean"] == 0.2
    gap = differences(both, "CoxPH", ["C-td", "IBS"]).set_index("metric")
    assert gap["splits"].tolist() == [2, 1]
    assert gap.loc["C-td", "difference"] == pytest.approx(0.02)
    assert gap.loc["C-td", "keys"].split(";") == [*rows["key"].iloc[1:], *rows["key"].iloc[1:]]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ({("support", "CoxPH"): 5, ("support", "DRSA"): 5}, "over 5 stratified 80/20 splits"),
        (
            {("support", "CoxPH"): 20, ("support", "DRSA"): 5, ("support", "Kamran"): 5},
            "over 20 stratified 80/20 splits (the paper's networks over 5)",
        ),
        (
            {("support", "CoxPH"): 20, ("support", "DRSA"): 5, ("support", "Kamran"): 4, ("metabric", "DRSA"): 20},
            "over 20 stratified 80/20 splits (DRSA on SUPPORT over 5; Kamran over 4)",
        ),
    ],
)
def test_captions_say_over_how_many_splits(runs, words):
    assert over_splits(runs) == words


def test_printed_figures_stand_beside_ours(results):
    rows = results[1].rows
    table = printed_table(rows[rows["split"] == 40], "C-td").iloc[0]
    assert (table["printed"], table["printed_sd"]) == (0.638, 0.02)
    assert table["difference"] == pytest.approx(table["mean"] - 0.638)
    assert table["mean"] == rows.loc[rows["split"] == 40, "paper C-td mean"].iloc[0]


def test_peers_of_other_packages_are_rows_too(tmp_path):
    tasks = Plan(models=["random survival forest"], **SMALL).tasks()
    tasks[0].estimator.set_params(parameters={"n_estimators": 5, "min_samples_leaf": 30})
    outcome = execute(tasks[0])
    assert outcome.failure is None, outcome.failure
    c_td = next(r["value"] for r in outcome.row["metrics"]["default"] if r["metric"] == "C-td")
    assert 0.58 < c_td < 0.75


def test_every_paper_model_has_a_task_that_can_be_built():
    for task in Plan(models=[*PAPER_MODELS, *ABLATIONS]).tasks():
        assert task.cost > 0
        assert task.settings["class"].startswith("dcsurv.models")
