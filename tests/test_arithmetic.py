"""A model as arithmetic: onnxruntime and a browser compute what the library predicts."""

from __future__ import annotations

import base64
import functools
import json
import warnings
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

import dcsurv
from dcsurv.arithmetic import OPERATIONS, Graph, packed, to_onnx
from dcsurv.arithmetic.functions import normal_tail, quantile_of_level, through_points
from dcsurv.arithmetic.whole import Arithmetic
from dcsurv.kinds import kinds
from dcsurv.models import SurvivalEstimator, SurvivalModel
from dcsurv.models.bands import student_reach
from dcsurv.plain import level_text
from dcsurv.preprocessing import OutsideTrainingWarning, Preprocessor, UnknownLevelsWarning
from programs import GUARD, chromium
from test_cli import run

SCRIPT = resources.files("dcsurv.service").joinpath("page/arithmetic.js").read_text(encoding="utf-8")
NEAR = 1e-6
N = 200


@functools.cache
def cohort() -> tuple[pd.DataFrame, Any]:
    """Numbers, some of them missing, a category, one in an order, and truth values; times in years, some ties."""
    rng = np.random.default_rng(0)
    age = rng.normal(60, 10, N)
    stage = rng.integers(0, 4, N)
    X = pd.DataFrame(
        {
            "age": np.where(rng.random(N) < 0.1, np.nan, age),
            "times": rng.gamma(2.0, 3.0, N),  # a name that an input has already
            "stage": pd.Series(np.array(["I", "II", "III", None], dtype=object)[stage]),
            "grade": pd.Categorical.from_codes(rng.integers(0, 3, N), ["low", "middle", "high"]),
            "smoker": (rng.random(N) < 0.4).astype(object),
        }
    )
    hazard = np.exp(0.04 * (age - 60) + 0.3 * stage)
    time = np.round(rng.exponential(14.0 / hazard), 2) + 0.01
    censored = rng.uniform(0.5, 9.0, N) * np.where(age > 60, 0.3, 1.0)  # who was followed for how long depends on age
    return X, dcsurv.make_outcome(np.minimum(time, censored), time <= censored)


def patients() -> pd.DataFrame:
    """Some patients of the cohort, and some that no model has seen the like of."""
    X, _ = cohort()
    odd = X.head(6).copy()
    odd.loc[0, ["age", "times"]] = np.nan
    odd.loc[1, "age"] = 900.0  # so far outside that it is taken for the edge of the range
    odd.loc[2, "times"] = -400.0
    odd.loc[3, "stage"] = "IV"
    odd.loc[4, "age"] = 101.0
    odd.loc[5, :] = None
    return pd.concat([X.tail(30), odd], ignore_index=True)


def numbers() -> pd.DataFrame:
    """The columns that are numbers, with no gaps."""
    X, _ = cohort()
    return X[["age", "times"]].fillna(60.0).assign(smoker=X["smoker"].astype(float))


QUICK: dict[str, dict[str, Any]] = {
    "deepsurv": {"max_epochs": 2, "layer_size": 8},
    "coxtime": {"max_epochs": 2, "layer_size": 8, "layers": 2},
    "drsa": {"max_epochs": 2, "decoder_size": 4, "n_nodes": 12},
    "kamran": {"max_epochs": 2, "decoder_size": 4, "n_nodes": 12, "step_input": True, "aggregation_layers": 2},
    "dcs": {
        "max_epochs": 2,
        "decoder_layers": 2,
        "decoder_size": 4,
        "n_nodes": 12,
        "bidirectional": True,
        "skip": True,
    },
    "boosted": {"max_rounds": 6, "n_blocks": 3},
    "forest": {"n_trees": 8, "n_blocks": 3},
}


def of_kind(name: str, **changes: Any) -> SurvivalModel:
    X, y = cohort()
    model = dcsurv.kinds.make_model(name).set_params(**QUICK.get(name, {}) | changes)
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=0)
    fitted: SurvivalModel = model.fit(X, y)
    return fitted


def ensemble(**changes: Any) -> dcsurv.CalibratedEnsemble:
    X, y = cohort()
    asked = {"n_members": 2, "seeds_per_member": 2, "random_state": 0} | changes
    model = dcsurv.CalibratedEnsemble(**asked)
    if "estimator" not in changes:
        model.set_params(estimator__max_epochs=2, estimator__n_nodes=12)
        model.set_params(companions=["spline-cox", "spline-aft", dcsurv.BoostedHazards(max_rounds=5, folds=2)])
    return model.fit(X, y)


def without_names() -> SurvivalModel:
    return dcsurv.CoxPH(preprocess=None).fit(numbers().to_numpy(), cohort()[1])


def recalibrated(inside: Callable[[], SurvivalModel], *maps: str) -> SurvivalModel:
    X, y = cohort()
    return dcsurv.Recalibrated(inside(), maps).fit(X[::2], y[::2])


def spread(**settings: Any) -> SurvivalModel:
    return of_kind("dcs", decoder_layers=0, feature_bins=4, bidirectional=False, skip=False, **settings)


RANKED: dict[str, Any] = {"estimator": dcsurv.SplineAFT(), "maps": ("rank",)}
CASES: dict[str, Callable[[], SurvivalModel]] = {
    **{name: functools.partial(of_kind, name) for name in ("coxph", "deepsurv", "coxtime", "drsa", "kamran", "dcs")},
    **{name: functools.partial(of_kind, name) for name in ("spline-cox", "boosted", "forest")},
    **{
        f"spline-aft {name}": functools.partial(of_kind, "spline-aft", distribution=name)
        for name in ("weibull", "log-logistic", "log-normal")
    },
    "spline-cox of few columns": functools.partial(of_kind, "spline-cox", strongest=2),
    "dcs in bins": functools.partial(spread, encoder_layers=1),
    "dcs in bins, no encoder": functools.partial(spread, encoder_layers=0, aggregation_layers=2),
    "drsa, no encoder": functools.partial(of_kind, "drsa", encoder_layers=0),
    "ordinal": functools.partial(of_kind, "coxph", preprocess=Preprocessor(ordinal=("grade",))),
    "without names": without_names,
    "calibrated": ensemble,
    "one family in steps": functools.partial(ensemble, estimator=dcsurv.CoxPH()),
    "bootstrap": functools.partial(ensemble, estimator=dcsurv.SplineCox(), bands="bootstrap", n_refits=3),
    "recalibrated": functools.partial(recalibrated, ensemble, "horizon", "rank"),
    "recalibrated steps": functools.partial(recalibrated, functools.partial(of_kind, "coxph"), "horizon"),
    "two maps of ranks": functools.partial(recalibrated, functools.partial(ensemble, **RANKED), "rank"),
}


class Expected:
    """What the library predicts."""

    def __init__(self, model: SurvivalModel) -> None:
        self.model = model
        self.whole: Arithmetic = model.arithmetic()
        self.X = numbers().to_numpy()[:20] if not hasattr(model, "feature_names_in_") else patients()
        self.last = float(model.nodes[-1])
        between = np.linspace(0, self.last, 17)[1:-1] * 1.001
        self.times = np.unique(np.concatenate([[0.0], model.nodes[:2], between, [self.last, 2 * self.last]]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OutsideTrainingWarning)
            warnings.simplefilter("ignore", UnknownLevelsWarning)
            prepared = model.prepare(self.X)
        curves = model.curves_of(prepared)
        self.tables = {"survival": curves.evaluate(self.times)}
        if model.has_band:
            band = model.curves_with_band(prepared, self.times, 0.8)[1]
            self.tables |= {"lower": band.lower, "upper": band.upper}
        self.end = 0.7 * self.last
        grid = np.linspace(0, self.end, 257)
        mean = curves.rmst(self.end) if curves.transform is None else np.trapezoid(curves.evaluate(grid), grid, axis=1)
        self.in_time = {"median": curves.median(), "mean": mean, "followed_to": model.followed_to_of(prepared)}
        if model.time_bounds_ is not None:
            self.in_time["time_lower"] = model.interval_of(prepared, 0.9, both=False)[0]

    def columns(self) -> dict[str, list[Any]]:
        """The features as a form has them."""
        frame = self.X if isinstance(self.X, pd.DataFrame) else pd.DataFrame(self.X, columns=self.names())
        out = {}
        for feature in self.whole.features:
            column = frame[feature.name].astype(object)
            text = feature.levels is not None
            out[feature.name] = [None if pd.isna(one) else level_text(one) if text else float(one) for one in column]
        return out

    def names(self) -> list[str]:
        return [feature.name for feature in self.whole.features]

    def compare(self, found: dict[str, Any]) -> None:
        for name, expected in self.tables.items():
            assert np.abs(np.reshape(found[name], expected.shape) - expected).max() < NEAR, name
        for name, expected in self.in_time.items():
            if name in found:
                own = np.asarray(found[name], dtype=np.float64)
                np.testing.assert_allclose(own, expected, rtol=0, atol=NEAR * self.last, equal_nan=True, err_msg=name)


@functools.cache
def expected(case: str) -> Expected:
    return Expected(CASES[case]())


@pytest.mark.parametrize("case", CASES)
def test_onnxruntime_computes_the_same(case: str) -> None:
    own = expected(case)
    session = onnxruntime.InferenceSession(to_onnx(own.model), providers=["CPUExecutionProvider"])
    features = json.loads(session.get_modelmeta().custom_metadata_map["features"])
    assert [one["name"] for one in features] == own.names()
    columns = own.columns()
    fed: dict[str, Any] = {"times": own.times}
    for one in features:
        cells = columns[one["name"]]
        if one["levels"] is None:
            fed[one["input"]] = np.array([np.nan if cell is None else cell for cell in cells])
        else:
            fed[one["input"]] = np.array(["" if cell is None else cell for cell in cells], dtype=object)
    if own.model.has_band:
        fed["level"] = np.array(0.8)
    outputs = [one.name for one in session.get_outputs()]
    found = dict(zip(outputs, session.run(outputs, fed), strict=True))
    assert set(own.tables) | {"followed_to"} == set(found)
    own.compare(found)


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with chromium() as browser:
        own = browser.new_page()
        own.set_default_timeout(GUARD)
        own.add_script_tag(content=SCRIPT)
        yield own


ASK = """([description, block, columns, times, level, end]) => {
    const bytes = Uint8Array.from(atob(block), (one) => one.charCodeAt(0));
    const model = dcsurvArithmetic.open(JSON.parse(description), bytes);
    const some = model.patients(columns);
    const found = model.hasBand ? some.band(times, level) : { survival: some.survival(times) };
    Object.assign(found, { median: some.median(), mean: some.mean(end), followed_to: some.followedTo() });
    if (model.hasInterval) found.time_lower = some.timeLower(0.9);
    const plain = (values) => Array.from(values, (one) => (Number.isNaN(one) ? null : one));
    return Object.fromEntries(Object.entries(found).map(([name, values]) => [name, plain(values)]));
}"""


def asked(page: Any, own: Expected) -> dict[str, Any]:
    description, block = packed(own.whole)
    text = json.dumps(description, allow_nan=False)
    encoded = base64.b64encode(block).decode("ascii")
    found: dict[str, Any] = page.evaluate(ASK, [text, encoded, own.columns(), own.times.tolist(), 0.8, own.end])
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_browser_computes_the_same(case: str, page: Any) -> None:
    own = expected(case)
    found = asked(page, own)
    assert set(own.tables) | set(own.in_time) == set(found)
    own.compare(found)


def test_the_cases_hold_what_they_are_to_test() -> None:
    assert len(np.unique(expected("coxph").in_time["followed_to"])) > 1
    trees = [expected(case).model.trees_ for case in ("boosted", "forest")]
    assert all((one.feature == one.n_columns).any() for one in trees)  # some ask for the block of time
    assert np.isnan(expected("coxph").in_time["median"]).any()
    assert sum(weight > 0 for weight in expected("calibrated").model.weights_.values()) > 2
    assert len(expected("two maps of ranks").whole.curves.maps) == 2


def test_every_kind_of_model_has_arithmetic() -> None:
    done = {type(expected(case).model) for case in CASES}
    assert {kind.model for kind in kinds()} <= done


def test_the_script_knows_the_operations() -> None:
    assert [name for name in OPERATIONS if name not in SCRIPT] == []


def test_many_patients_are_computed_in_pieces_and_as_they_would_be_alone(page: Any) -> None:
    description, block = packed(expected("calibrated").whole)
    columns = {name: cells * 20 for name, cells in expected("calibrated").columns().items()}
    found = page.evaluate(
        """([description, block, columns, few]) => {
            const bytes = Uint8Array.from(atob(block), (one) => one.charCodeAt(0));
            const model = dcsurvArithmetic.open({ ...JSON.parse(description), rows: 100 }, bytes);
            const all = model.patients(columns).band([1, 2, 5], 0.9);
            const some = model.patients(few);
            const alone = [some.survival([1, 2, 5]), some.band([1, 2, 5], 0.9)];
            return [all.lower, all.survival, alone[1].lower, alone[0]].map((one) => Array.from(one));
        }""",
        [json.dumps(description), base64.b64encode(block).decode("ascii"), columns, expected("calibrated").columns()],
    )
    lower, survival, *few = (np.array(one) for one in found)
    assert np.array_equal(lower, np.tile(few[0], 20))
    assert np.array_equal(survival, np.tile(few[1], 20))


def test_a_model_that_does_not_say_its_arithmetic_is_refused_in_words() -> None:
    class Silent(dcsurv.CoxPH):
        survival_arithmetic = SurvivalEstimator.survival_arithmetic

    X, y = cohort()
    with pytest.raises(ValueError, match=r"Silent does not say its arithmetic.* survival_arithmetic\(prepared\)"):
        Silent().fit(X, y).arithmetic()


def test_a_preprocessing_of_another_library_is_refused_in_words() -> None:
    from sklearn.preprocessing import StandardScaler

    model = dcsurv.CoxPH(preprocess=StandardScaler()).fit(numbers(), cohort()[1])
    with pytest.raises(ValueError, match="StandardScaler has no arithmetic that is known here"):
        model.arithmetic()


def test_an_unknown_operation_is_refused() -> None:
    graph = Graph()
    with pytest.raises(ValueError, match="there is no operation 'Sin'"):
        graph.apply("Sin", graph.value("x"))
    with pytest.raises(ValueError, match="another graph"):
        graph.value("x") + Graph().value("x")


def test_the_same_operation_is_done_once() -> None:
    graph = Graph()
    x = graph.value("x")
    assert (x * 2.0 + 1.0).number == (graph.value("x") * 2.0 + 1.0).number


def of_one_value(make: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """Compute a function of values with onnxruntime."""
    from dcsurv.arithmetic.lowering import OPSET, TREE_DOMAIN, TREE_OPSET, Lowering

    graph = Graph()
    graph.outputs["y"] = make(graph.value("x")).number
    lowering = Lowering(graph, {"x": "x"})
    lowering.write(graph.needed_for(["y"]))
    helper = onnx.helper
    lowering.nodes.append(helper.make_node("Identity", [lowering.name_of(graph.outputs["y"])], ["y"]))
    ends = [[helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [None])] for name in "xy"]
    model = helper.make_model(
        helper.make_graph(lowering.nodes, "one", *ends, lowering.initializers),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(TREE_DOMAIN, TREE_OPSET)],
        ir_version=10,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    out: np.ndarray = session.run(["y"], {"x": x})[0]
    return out


def test_functions_are_those_of_the_library() -> None:
    from statistics import NormalDist

    from scipy.special import ndtr

    z = np.linspace(-9, 9, 301)
    np.testing.assert_allclose(of_one_value(normal_tail, z), ndtr(-z), rtol=1e-12, atol=0)
    level = np.array([0.01, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999])
    reaches: list[Callable[[float], float]] = [lambda share: NormalDist().inv_cdf((1 + share) / 2)]
    reaches += [functools.partial(student_reach, freedom=freedom) for freedom in (1, 4, 9, 19)]
    for reach in reaches:
        own = of_one_value(functools.partial(quantile_of_level, quantile=reach), level)
        np.testing.assert_allclose(own, [reach(one) for one in level], rtol=1e-9)
    points, heights = np.array([0.0, 1.0, 1.5, 4.0]), np.array([0.0, 3.0, 2.0, 2.5])
    for count in (1, 2, 4):
        line = functools.partial(through_points, points=points[:count], values=heights[:count])
        x = np.array([-1.0, 0.0, 0.3, 1.0, 1.2, 1.5, 3.0, 4.0, 9.0])
        np.testing.assert_allclose(of_one_value(line, x), np.interp(x, points[:count], heights[:count]), atol=1e-12)


def test_the_command_writes_a_file_that_says_what_it_is(tmp_path: Path) -> None:
    expected("coxph").model.save(tmp_path / "model.safetensors")
    said = json.loads(run("export", tmp_path / "model.safetensors", "-o", tmp_path / "m.onnx", "--json").stdout)
    written = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(written, full_check=True)
    told = {one.key: one.value for one in written.metadata_props}
    assert told["kind"] == "CoxPH"
    assert told["digest"] == said["digest"]
    assert [one["label"] for one in json.loads(told["horizons"])] == [one["label"] for one in said["horizons"]]
    assert [one.name for one in written.graph.input] == ["age", "feature times", "stage", "grade", "smoker", "times"]
    assert [one.name for one in written.graph.output] == ["survival", "followed_to"]
    done = run("export", tmp_path / "model.safetensors", "-o", tmp_path / "m.txt", code=2)
    assert "a name that ends in .onnx" in done.stderr


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r"dcsurv\[onnx\]"):
        to_onnx(expected("coxph").model)


def test_a_packed_model_loses_no_digit_and_is_small() -> None:
    own = expected("calibrated")
    description, block = packed(own.whole)
    assert json.loads(json.dumps(description, allow_nan=False)) == json.loads(json.dumps(description))
    graph = own.whole.graph
    held = [graph.arrays[one] for one in graph.needed_for(list(graph.outputs)) if one in graph.arrays]
    for array, (kind, shape, offset) in zip(held, description["arrays"], strict=False):
        found = np.frombuffer(block, np.dtype(kind).newbyteorder("<"), int(np.prod(shape)), offset)
        assert np.array_equal(found.astype(np.float64), array.ravel().astype(np.float64), equal_nan=True)
