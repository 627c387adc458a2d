"""The calculator in one file: a real browser computes what Python computes, asks nobody, and says what is in it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcsurv
from dcsurv.datasets import load_metabric, load_support
from dcsurv.service import Policy, Problem, write_calculator
from dcsurv.service.inside import what_it_tells
from dcsurv.service.served import ServedModel
from programs import GUARD, chromium
from test_cli import OUTCOME, patients, run

SCREENSHOTS = Path(__file__).parents[1] / "build" / "calculator"
FEATURES = ["EGFR", "MKI67", "age", "chemotherapy", "er_positive", "radiotherapy"]
WORDS = {
    "title": "After breast cancer",
    "notice": "For the study only.",
    "features": {"age": {"label": "Age at diagnosis", "unit": "years"}},
    "languages": {"de": {"title": "Nach Brustkrebs"}},
}


@pytest.fixture(scope="module")
def browser():
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with chromium() as one:
        yield one


def metabric() -> tuple[pd.DataFrame, Any]:
    X, y = load_metabric(labels="measured")
    return X[FEATURES], y


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    X, y = metabric()
    ensemble = dcsurv.CalibratedEnsemble(n_members=2, seeds_per_member=1, random_state=0, time_unit="days")
    ensemble.set_params(estimator__max_epochs=5)
    many, outcome = load_support()
    return {
        "default": ensemble.fit(X.iloc[:1200], y[:1200]),
        "recalibrated": dcsurv.Recalibrated(ensemble).fit(X.iloc[1200:1600], y[1200:1600]),
        "cox": dcsurv.CoxPH(time_unit="days").fit(many.iloc[:3000], outcome[:3000]),
    }


@pytest.fixture(scope="module")
def folder(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calculators")
    for name, model in models.items():
        write_calculator(model, folder / f"{name}.html", name=name)
    return folder


class Opened:
    """A page from a file, with everything that it asked for or complained about."""

    def __init__(self, browser: Any, path: Path, script: str = "", **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.context.set_default_timeout(GUARD)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.on("console", lambda one: self.complaints.append(one.text))
        self.page.on("pageerror", lambda one: self.complaints.append(str(one)))
        if script:
            self.page.add_init_script(script)
        self.page.goto(path.as_uri())

    def ask(self, what: str, request: Any) -> Any:
        """Ask the engine of the page; a problem comes back as one."""
        asked = f"""request => dcsurvEngine.{what}(request).catch(
            ({{status, detail, errors}}) => ({{problem: {{status, detail, errors}}}}))"""
        return self.page.evaluate(asked, request)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def records(X: pd.DataFrame) -> list[dict[str, Any]]:
    return [{name: None if pd.isna(value) else value for name, value in row.items()} for row in X.to_dict("records")]


def odd_patients(X: pd.DataFrame) -> list[dict[str, Any]]:
    """Patients with missing, outlying and unknown values."""
    number = next(name for name in X.columns if X[name].dtype.kind == "f")
    word = next((name for name in X.columns if X[name].dtype.kind not in "fiu"), None)
    first = records(X.head(1))[0]
    changes: list[dict[str, Any]] = [{number: None}, {number: 1e6}, {number: -3.25}, dict.fromkeys(first)]
    changes += [] if word is None else [{word: "YES "}, {word: "perhaps"}, {word: None}]
    return [first | change for change in changes]


def differences(got: Any, want: Any, path: str = "") -> list[str]:
    """Where two answers differ: numbers by more than a millionth, of large ones by more than a millionth of them."""
    if isinstance(want, float) and isinstance(got, int | float) and not isinstance(got, bool):
        if np.isnan(want):
            return [f"{path}: {got} for {want}"]
        return [] if abs(got - want) <= 1.001e-6 * max(1.0, abs(want)) else [f"{path}: {got} for {want}"]
    if isinstance(want, dict) and isinstance(got, dict):
        if list(got) != list(want):
            return [f"{path}: {list(got)} for {list(want)}"]
        return [text for key in want for text in differences(got[key], want[key], f"{path}/{key}")]
    if isinstance(want, list | tuple) and isinstance(got, list):
        if len(got) != len(want):
            return [f"{path}: {len(got)} for {len(want)}"]
        return [
            text for k, (a, b) in enumerate(zip(got, want, strict=True)) for text in differences(a, b, f"{path}/{k}")
        ]
    return [] if got == want else [f"{path}: {got!r} for {want!r}"]


def answer_of(served: ServedModel, request: dict[str, Any]) -> Any:
    import msgspec

    asked = served.asking.predict(request, 10_000)
    found = served.answer(asked, served.predict(asked.values, asked.how))
    return msgspec.json.decode(msgspec.json.encode(found))  # as a client reads it


@pytest.mark.parametrize("name", ["default", "recalibrated", "cox"])
def test_a_browser_computes_what_the_service_answers(name, browser, models, folder):
    X = load_support()[0] if name == "cox" else metabric()[0]
    served = ServedModel(models[name], name, "1", "")
    last = served.last
    patients = [*records(X.iloc[1200:1500]), *odd_patients(X)]
    requests: list[dict[str, Any]] = [{"patients": patients}]
    requests.append(
        {"patients": patients[-9:], "horizons": ["30d", "2y", "90y"], "times": np.linspace(0, last * 1.1, 40).tolist()}
    )
    requests.append({"patients": patients[:9], "level": 0.5, "interval": served.card["has_interval"]})
    requests.append({"patients": patients[:1], "bands": False, "times": [last / 2]})
    with Opened(browser, folder / f"{name}.html") as opened:
        card = opened.page.evaluate("dcsurvEngine.card()")
        assert card.pop("inside")
        assert card == json.loads(json.dumps(served.card))
        for request in requests:
            request = json.loads(json.dumps(request))
            assert not differences(opened.ask("predict", request), answer_of(served, request))[:5]
        assert len(opened.page.workers) == 1
        assert opened.asked[0].endswith(f"{name}.html")
        assert [one for one in opened.asked[1:] if not one.startswith("blob:")] == opened.complaints == []


@pytest.mark.parametrize("name", ["default", "cox"])
def test_a_browser_explains_as_python_does(name, browser, models, folder):
    """METABRIC has few features, and all coalitions; SUPPORT has many, and the same orders are sampled."""
    X = load_support()[0] if name == "cox" else metabric()[0]
    model = models[name]
    served = ServedModel(model, name, "1", "")
    row = X.iloc[[1300]]
    with Opened(browser, folder / f"{name}.html") as opened:
        got = opened.ask("explain", {"patient": records(row)[0]})
    time = served.facts.horizons[-1].time
    explained = dcsurv.explain(model, row, times=[time])
    want = explained.at(time)
    assert got["method"] == explained.method
    assert got["method"].startswith("sampled" if name == "cox" else "exact")
    assert got["background"] == explained.background
    assert got["horizon"] == served.facts.horizons[-1].to_dict()
    assert got["base"] == pytest.approx(want.base, abs=1e-6)
    assert got["risk"] == pytest.approx(want.predicted[0], abs=1e-6)
    effects = {one["feature"]: one["effect"] for one in got["contributions"]}
    assert effects == pytest.approx(dict(zip(want.features, want.values[0], strict=True)), abs=1e-6)
    sizes = [abs(one["effect"]) for one in got["contributions"]]
    assert sizes == sorted(sizes, reverse=True)
    texts = dict(zip(want.features, want.texts[0], strict=True))
    assert {one["feature"]: one["value"] for one in got["contributions"]} == texts
    if want.error is None:
        assert {one["error"] for one in got["contributions"]} == {None}
    else:
        errors = {one["feature"]: one["error"] for one in got["contributions"]}
        assert errors == pytest.approx(dict(zip(want.features, want.error[0], strict=True)), abs=1e-6)


def bad_requests(patient: dict[str, Any]) -> list[tuple[str, Any]]:
    short = {name: value for name, value in patient.items() if name != "age"}
    one = [patient]
    wrong: list[Any] = [
        7, [], {}, {"patients": []}, {"patients": 3}, {"patients": [3]}, {"patients": one, "colour": 1},
        {"patients": [short]}, {"patients": [short | {"Age": 1, "a/b~c": 2}]}, {"patients": [patient | {"extra": 1}]},
        {"patients": [patient | {"age": "old"}, patient | {"age": True}, patient | {"age": [1]}]},
        {"patients": [patient | {"chemotherapy": 3}, patient | {"chemotherapy": "x" * 300}]},
        {"patients": [patient | {"age": "old", "EGFR": "much"}] * 30},
        {"patients": one, "horizons": []}, {"patients": one, "horizons": ["soon", 5, "0y", "9z", "1e9y"]},
        {"patients": one, "horizons": "5y"}, {"patients": one, "times": [-1]}, {"patients": one, "times": ["a"]},
        {"patients": one, "times": []}, {"patients": one, "bands": "yes"}, {"patients": one, "level": 1},
        {"patients": one, "level": True}, {"patients": one, "interval": 1},
        {"patients": one, "horizons": ["5"], "times": None, "bands": None, "level": None, "interval": None},
    ]  # fmt: skip
    explain: list[Any] = [{}, {"patient": short}, {"patient": patient, "horizon": "x"}, {"patient": [], "horizons": 1}]
    return [*(("predict", one) for one in wrong), *(("explain", one) for one in explain)]


def refusal_of(served: ServedModel, what: str, request: Any) -> Any:
    try:
        served.asking.explain(request) if what == "explain" else served.asking.predict(request, 10_000)
    except Problem as problem:
        return problem.status, [(one["pointer"], one["feature"], one["code"]) for one in problem.errors]
    return None


def test_a_browser_refuses_what_the_service_refuses(browser, models, folder, tmp_path):
    """Field by field, with the same codes; also where the owner refuses values that are unlike training."""
    strict = Policy(out_of_range="refuse", unknown_level="refuse", missing="refuse")
    write_calculator(models["default"], tmp_path / "strict.html", policy=strict)
    X = metabric()[0]
    patient = records(X.head(1))[0]
    requests = [*bad_requests(patient), ("predict", {"patients": odd_patients(X)})]
    for path, policy in ((folder / "default.html", Policy()), (tmp_path / "strict.html", strict)):
        served = ServedModel(models["default"], "default", "1", "", policy=policy)
        refused = 0
        with Opened(browser, path) as opened:
            for what, request in requests:
                request = json.loads(json.dumps(request))
                found = opened.ask(what, request).get("problem")
                got = found and (
                    found["status"], [(one["pointer"], one["feature"], one["code"]) for one in found["errors"]]
                )  # fmt: skip
                assert got == refusal_of(served, what, request), request
                refused += got is not None
        assert refused == len(requests) - (1 if policy == strict else 2)


@pytest.fixture(scope="module")
def odd_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model with codes for missing values, levels in other letters, and times in a small unit."""
    folder = tmp_path_factory.mktemp("odd")
    table = patients(120)
    table["days"] *= 1440.0
    table["site"] = np.array(["ΟΔΟΣ", "Straße", "Iğdır"])[np.arange(120) % 3]
    table.loc[::9, "age"] = -9
    table.to_csv(folder / "odd.csv", index=False)
    fitting = ("--model", "coxph", "--evaluate", "none", "--missing-values=-9,999", "-o", folder / "m.safetensors")
    run("fit", folder / "odd.csv", *OUTCOME, *fitting)
    return dcsurv.load(folder / "m.safetensors")


def test_a_browser_reads_odd_values_as_the_service_does(browser, odd_model, tmp_path):
    served = ServedModel(odd_model, "odd", "1", "")
    write_calculator(odd_model, tmp_path / "odd.html", name="odd")
    one = {"age": 61.0, "stage": "I", "smoker": "yes", "site": "ΟΔΟΣ"}
    assert set(one) == {feature["name"] for feature in served.card["features"]}
    spelt = [
        "οδος",
        "οδοσ",
        "Οδος ",
        "\x85ΟΔΟΣ\x1c",
        "\ufeffΟΔΟΣ",
        "STRASSE",
        "STRAẞE",
        "IĞDIR",
        "iğdır",
        "iğdir",
        "-9",
    ]
    fine = [one | {"site": text} for text in spelt] + [one | {"age": age} for age in (-9, 999.0, 1e200, 1e16)]
    labels = [horizon.label for horizon in served.facts.horizons]
    assert float(labels[-1]) >= 1e6
    requests: list[dict[str, Any]] = [
        {"patients": fine, "horizons": ["2000000", *labels, "0.00002", "1234567"]},
        {"patients": [one], "times": [0, served.last, served.last * 2]},
    ]
    wrong = [{"patients": [one | {"age": age}] * 40} for age in ("50", True, [1], {}, 1e305)]
    with Opened(browser, tmp_path / "odd.html") as opened:
        for request in json.loads(json.dumps(requests)):
            got, want = opened.ask("predict", request), answer_of(served, request)
            for note in [note for answer in (got, want) for one in answer["patients"] for note in one["notes"]]:
                note["text"] = note["text"].replace("\\ufeff", "\ufeff")  # as Python quotes it
            assert not differences(got, want)[:5]
        for request in wrong:
            found = opened.ask("predict", request)["problem"]
            assert (found["status"], found["errors"][0]["code"]) == (422, "type")
            assert refusal_of(served, "predict", request)[0] == 422
        for label in labels:
            assert opened.ask("explain", {"patient": one, "horizon": label})["horizon"]["label"] == label


def test_a_browser_refuses_numbers_that_a_model_without_ranges_cannot_compute_with(browser, tmp_path):
    model = dcsurv.load(Path(__file__).parent / "fixtures" / "format1" / "CoxPH.safetensors")
    served = ServedModel(model, "old", "1", "")
    write_calculator(model, tmp_path / "old.html", name="old")
    nobody = dict.fromkeys(feature["name"] for feature in served.card["features"])
    fine = {"patients": [nobody | {"age": age} for age in (61.0, 1e15, -1e15)], "horizons": ["60m", "5y", "5 y", "1y"]}
    with Opened(browser, tmp_path / "old.html") as opened:
        assert not differences(opened.ask("predict", fine), answer_of(served, fine))
        for age in (1.1e15, -1e100, 1e299):
            found = opened.ask("predict", {"patients": [nobody | {"age": age}]})["problem"]
            with pytest.raises(Problem) as caught:
                served.asking.predict({"patients": [nobody | {"age": age}]}, 1)
            assert (found["detail"], found["errors"]) == (caught.value.detail, caught.value.errors)


def test_the_page_works_from_a_file_without_a_network(browser, models, folder):
    with Opened(browser, folder / "default.html", viewport={"width": 1280, "height": 1000}) as opened:
        page = opened.page
        page.click("#example")
        page.wait_for_selector("#found:not([hidden])")
        assert page.locator("#drawing svg, svg#drawing").count() >= 1
        page.click("#why summary")
        page.wait_for_selector("#why-said :not(p)")
        said = page.inner_text("#about-model")
        assert "What is in this file" in said
        assert "It was developed with 1,200 patients" in said
        page.screenshot(path=SCREENSHOTS / "desktop.png", full_page=True)
        assert opened.complaints == []
        assert all(one.startswith(("file:", "blob:", "data:")) for one in opened.asked)
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "device_scale_factor": 2}
    # Where a browser allows no worker, the page computes by itself.
    with Opened(browser, folder / "default.html", "delete window.Worker", locale="de-DE", **phone) as opened:
        opened.page.click("#example")
        opened.page.wait_for_selector("#found:not([hidden])")
        assert "Was in dieser Datei steckt" in opened.page.inner_text("#about-model")
        assert "Es wurde mit 1.200 Patienten entwickelt" in opened.page.inner_text("#about-model")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
        opened.page.screenshot(path=SCREENSHOTS / "phone.png", full_page=True)
        assert opened.complaints == []


def test_an_old_browser_is_told_so(browser, folder):
    with Opened(browser, folder / "cox.html", "delete window.Worker; delete window.DecompressionStream") as opened:
        opened.page.wait_for_selector("#trouble .warning")
        assert "too old to open the model" in opened.page.inner_text("#trouble")


def test_the_same_model_gives_the_same_bytes_and_no_row_of_a_patient(models, folder, tmp_path):
    made = write_calculator(models["default"], tmp_path / "again.html", name="default")
    content = made.path.read_bytes()
    assert content == (folder / "default.html").read_bytes()
    assert made.size == len(content)
    X = metabric()[0]
    made_up = pd.DataFrame(next(one.values for one in what_it_tells(models["default"]) if one.what == "made up"))
    numbers = [k for k, name in enumerate(X.columns) if X[name].dtype.kind == "f"]
    own = {tuple(row) for row in np.round(X.iloc[:, numbers].to_numpy(), 6)}
    assert not own & {tuple(row) for row in np.round(made_up[numbers].to_numpy(float), 6)}


def inside_of(path: Path) -> tuple[dict[str, Any], bytes]:
    """What a reader finds in a calculator's file: the description, and all that is packed."""
    letters = re.search(r'id="packed">"([^"]+)"', path.read_text(encoding="utf-8"))
    assert letters is not None
    whole = zlib.decompress(base64.b64decode(letters[1]))
    return json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")]), whole


def test_a_file_tells_what_it_says_that_it_tells(tmp_path):
    """And neither the event column, nor the fingerprint of the table, nor a column that was left out."""
    patients(80).to_csv(tmp_path / "ward.csv", index=False)
    model = tmp_path / "m.safetensors"
    run("fit", tmp_path / "ward.csv", *OUTCOME, "--model", "coxph", "--evaluate", "none", "-o", model)
    said = " ".join(run("calculator", model, "-o", tmp_path / "c.html").stdout.split())
    description, whole = inside_of(tmp_path / "c.html")
    card = dcsurv.load(model).card_
    text = whole.decode("latin-1")
    assert card["data"]["sha256"] not in text
    left_out = [one["name"] for one in card["columns"] if one["kind"] == "left out"]
    assert "patient_id" in left_out
    assert not [name for name in left_out if name in text]
    assert card["outcome"]["event"] not in text
    assert "ward.csv" in text
    assert "Names of tables: ward.csv." in said
    assert (
        description["card"]["inside"]
        == json.loads(run("calculator", model, "-o", tmp_path / "c.html", "--json").stdout)["tells"]
    )
    told = " ".join(description["card"]["inside"])
    for reading in description["readings"]:
        assert reading["name"] in told
        assert all(level in told for level in reading["levels"])


def test_the_command_writes_a_page_with_the_owners_words(browser, models, tmp_path):
    models["cox"].save(tmp_path / "model.safetensors")
    (tmp_path / "words.json").write_text(json.dumps(WORDS), encoding="utf-8")
    said = run(
        "calculator", tmp_path / "model.safetensors", "--words", tmp_path / "words.json", "--language", "de",
        "--out-of-range", "refuse", "-o", tmp_path / "c.html",
    ).stdout  # fmt: skip
    text = " ".join(said.split())
    size = (tmp_path / "c.html").stat().st_size
    assert f"{size / 1e6:.1f} MB. It holds no row of a patient" in text
    assert "It was developed with 3,000 patients" in text
    with Opened(browser, tmp_path / "c.html") as opened:
        page = opened.page
        page.locator("#title", has_text="Nach Brustkrebs").wait_for()
        assert page.title() == "Nach Brustkrebs"
        assert page.get_attribute("html", "lang") == "de"
        assert "For the study only." in page.inner_text("#notice")
        assert "Age at diagnosis" in page.inner_text("#form")
        card = page.evaluate("dcsurvEngine.card()")
        models_ = page.evaluate("dcsurvEngine.models()")["models"]
    assert card["policy"]["out_of_range"] == "refuse"
    assert len(card["digest"]) == 64
    assert [(one["name"], one["default"]) for one in models_] == [("model", True)]
    shown = json.loads(run("calculator", tmp_path / "model.safetensors", "-o", tmp_path / "d.html", "--json").stdout)
    assert shown["size"] == (tmp_path / "d.html").stat().st_size


def test_words_that_are_not_the_models_are_refused(models, tmp_path):
    models["cox"].save(tmp_path / "model.safetensors")
    file, page = tmp_path / "words.json", tmp_path / "c.html"
    for text, complaint in {
        "{": "cannot be used",
        '{"titel": "x"}': "unknown field",
        '{"title": 3}': "cannot be used",
        '{"features": {"Age": {}}}': "Did you mean 'age'?",
        '{"features": {"age": {"levels": {"IV": "four"}}}}': "'IV' is no level of 'age'",
    }.items():
        file.write_text(text, encoding="utf-8")
        failed = run("calculator", tmp_path / "model.safetensors", "--words", file, "-o", page, code=2)
        assert complaint in " ".join(failed.stderr.split())
    failed = run("calculator", tmp_path / "model.safetensors", "--language", "xx", "-o", page, code=2)
    assert "the page has no words in 'xx'" in " ".join(failed.stderr.split())
    assert not page.exists()
