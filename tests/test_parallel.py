"""Tasks give the same results wherever they run, also where a worker dies; and how long the rest will take."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dcsurv
from dcsurv import CalibratedEnsemble
from dcsurv.cli import app
from dcsurv.cli.shell import StepLine
from dcsurv.datasets import simulate
from dcsurv.parallel import ClusterError, on_cluster, run_tasks, time_left, watch_tasks

GUARD = 300  # seconds after which a test that hangs ends
pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, about sockets that close


def wait_for(condition: Callable[[], Any]) -> None:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < GUARD
        time.sleep(0.02)


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, []
        at = folder / "scheduler.json"
        self.common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(at)]
        self._start("dask_scheduler", "--port", "0")
        wait_for(lambda: at.exists() and at.read_text().strip().endswith("}"))
        self.address = json.loads(at.read_text())["address"]

    def _start(self, what: str, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{what}", *more, *self.common]
        paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, **quiet))
        return self.processes[-1]

    def workers(self, number: int) -> None:
        """Have so many workers, whoever died before."""
        from distributed import Client

        living = sum(one.poll() is None for one in self.processes[1:])
        for _ in range(number - living):
            self._start("dask_worker", "--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder))
        with Client(self.address, timeout=GUARD) as client:
            wait_for(lambda: len(client.scheduler_info()["workers"]) == number)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.end()


def kill_all(folder: str, sums: Any, number: int) -> float:
    """Workers die while fewer than two have, and with them the data that they were sent."""
    if len(list(Path(folder).iterdir())) < 2:
        (Path(folder) / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return float(sums.sum()) + number


def failing(number: int) -> int:
    if number == 2:
        raise ArithmeticError("no such number")
    return number


def nested(numbers: tuple[int, ...]) -> list[int]:
    return run_tasks([joblib.delayed(failing)(one) for one in numbers], n_jobs=2)


def test_results_come_in_the_order_of_the_tasks() -> None:
    tasks = [joblib.delayed(failing)(one) for one in (5, 4, 3, 1)] + [joblib.delayed(nested)((7, 8))]
    told = []
    for jobs in (1, 2):
        with watch_tasks(lambda done, total, left: told.append((done, total, left is None))):
            assert run_tasks(tasks, jobs) == [5, 4, 3, 1, [7, 8]]
    # One of each kind comes first, after which the time of the rest is known; tasks within tasks are not told.
    assert told[:5] == [(1, 5, True), (2, 5, False), (3, 5, False), (4, 5, False), (5, 5, False)]
    assert [one[:2] for one in told[5:]] == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_a_task_is_raised_as_it_is(jobs: int) -> None:
    with pytest.raises(ArithmeticError, match="no such number"):
        run_tasks([joblib.delayed(failing)(one) for one in range(4)], jobs)


def test_how_long_the_rest_will_take() -> None:
    a, b = ("fit", "Long"), ("fit", "Short")
    waiting = Counter({a: 2, b: 3})
    assert time_left(waiting, {a: 10.0}, worked=10.0, elapsed=10.0) is None  # nobody knows what a short one takes
    assert time_left(waiting, {a: 10.0, b: 1.0}, worked=11.0, elapsed=11.0) == pytest.approx(23.0)
    assert time_left(waiting, {a: 10.0, b: 1.0}, worked=22.0, elapsed=11.0) == pytest.approx(11.5)  # two side by side
    assert time_left(Counter({a: 0}), {}, worked=1.0, elapsed=1.0) == 0.0


def test_a_line_now_and_then_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    step = StepLine(None, clock=lambda: now[0])
    step("fitting to all 300 patients")
    for second in range(1, 46):
        now[0] = float(second)
        step.tasks(second, 45, None if second < 10 else 2.0 * (45 - second) * 10)
    step.epoch(3, None)
    now[0] += 30
    step.epoch(4, None)
    assert capsys.readouterr().err.splitlines() == [
        "fitting to all 300 patients ...",
        "fitting to all 300 patients: 20 of 45 tasks, about 8 min left",
        "fitting to all 300 patients: 40 of 45 tasks, about 2 min left",
        "fitting to all 300 patients: 45 of 45 tasks; epoch 4",
    ]


def test_processes_have_torch_before_their_first_task() -> None:
    """One that imports it later has grown so much since then that joblib takes it for one that leaks, and ends it."""
    code = (
        "from dcsurv.parallel import run_tasks; asks = (eval, (\"'torch' in __import__('sys').modules\",), {});"
        "print(run_tasks([asks] * 4, 2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[True, True, True, True]", done.stderr


def test_an_error_on_the_cluster_is_raised_as_it_is(cluster: Cluster) -> None:
    cluster.workers(2)
    with on_cluster(cluster.address), pytest.raises(ArithmeticError, match="no such number"):
        run_tasks([joblib.delayed(failing)(one) for one in range(4)], None)


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcsurv.parallel, "_ANSWER_WITHIN", "200ms")
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers.*or start one"), on_cluster("tcp://127.0.0.1:1"):
        pass


def test_the_command_fits_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    cluster.workers(2)
    cohort = simulate("independent", 300)
    table = pd.DataFrame(np.asarray(cohort.X)).add_prefix("x").assign(time=cohort.y["time"], died=cohort.y["event"] * 1)
    table.to_csv(tmp_path / "p.csv", index=False)
    common = ["fit", str(tmp_path / "p.csv"), "--time", "time", "--event", "died", "--model", "calibrated-deepsurv",
              "--quick", "--evaluate", "none"]  # fmt: skip
    for name, more in (("here", ["--jobs", "1"]), ("there", ["--cluster", cluster.address])):
        done = CliRunner().invoke(app, [*common, *more, "-o", str(tmp_path / f"{name}.safetensors")])
        assert done.exit_code == 0, done.stderr
    here, there = (dcsurv.load(tmp_path / f"{name}.safetensors") for name in ("here", "there"))
    X = table.drop(columns=["time", "died"])
    np.testing.assert_array_equal(here.predict_survival_function(X).values, there.predict_survival_function(X).values)


def test_the_command_predicts_a_folder_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """In a process of its own, which knows less of scikit-learn than the workers do."""
    cluster.workers(2)
    cohort = simulate("independent", 300)
    model = CalibratedEnsemble(estimator=dcsurv.CoxPH(), n_members=3, random_state=0).fit(cohort.X, cohort.y)
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "parts").mkdir()
    for k in range(4):
        cohort.X[50 * k : 50 * k + 50].to_parquet(tmp_path / "parts" / f"{k}.parquet")
    words = ["predict", "model.safetensors", "parts", "--horizons", "5", "-o"]
    with contextlib.chdir(tmp_path):
        done = CliRunner().invoke(app, [*words, "here"])
    assert done.exit_code == 0, done.output
    program = "from dcsurv.cli import main; main()"
    there = [sys.executable, "-c", program, *words, "there", "--cluster", cluster.address]
    done = subprocess.run(there, cwd=tmp_path, capture_output=True, timeout=GUARD)
    assert done.returncode == 0, done.stderr.decode()
    for k in range(4):
        here, there = (pd.read_parquet(tmp_path / name / f"{k}.parquet") for name in ("here", "there"))
        pd.testing.assert_frame_equal(here, there, check_exact=True)
    alone = CliRunner().invoke(
        app,
        ["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "parts" / "0.parquet"), "--cluster", "any",
         "-o", str(tmp_path / "x.csv")],
    )  # fmt: skip
    assert alone.exit_code != 0
    assert "folder of Parquet files" in alone.stderr


def test_an_ensemble_with_refits_is_the_same_on_a_cluster_one_of_whose_workers_dies(
    cluster: Cluster,
) -> None:
    cluster.workers(2)
    cohort = simulate("independent", 240)
    model = CalibratedEnsemble(
        n_members=3, seeds_per_member=1, companions=("spline-cox",), bands="bootstrap", n_refits=2, random_state=0
    ).set_params(estimator__max_epochs=3)
    here = dcsurv.CalibratedEnsemble(**model.get_params(deep=False)).fit(cohort.X, cohort.y)
    victim = next(one for one in cluster.processes[1:] if one.poll() is None)

    def kill(done: int, total: int, left: float | None) -> None:
        if victim.poll() is None:
            victim.kill()

    with on_cluster(cluster.address), watch_tasks(kill):
        there = model.fit(cohort.X, cohort.y)
    assert victim.wait(GUARD) == -signal.SIGKILL
    one, other = (fitted.predict_survival_function(cohort.X[:20]).values for fitted in (here, there))
    np.testing.assert_array_equal(one, other)
    one, other = (fitted.predict_band(cohort.X[:20]).lower for fitted in (here, there))
    np.testing.assert_array_equal(one, other)


def test_data_that_went_down_with_all_workers_are_sent_again(cluster: Cluster, tmp_path: Path) -> None:
    cluster.workers(2)
    before = [one for one in cluster.processes if one.poll() is None]
    data = np.arange(1000.0)

    def replace() -> None:
        wait_for(lambda: sum(one.poll() is not None for one in before) == 2)
        cluster.workers(1)

    helper = threading.Thread(target=replace)
    helper.start()
    with on_cluster(cluster.address):
        found = run_tasks([joblib.delayed(kill_all)(str(tmp_path), data, one) for one in range(4)], None)
    helper.join()
    assert found == [data.sum() + one for one in range(4)]
