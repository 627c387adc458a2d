"""The risk calculator's API: a real process on loopback gives the numbers of the command line, with notes."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

import dcsurv
from dcsurv.cohort import ModelCard, apply_columns
from dcsurv.datasets import load_metabric
from dcsurv.durations import Horizon
from dcsurv.service import Policy, Problem, model_card, read_owner_words
from dcsurv.service.asking import Asking
from dcsurv.service.batching import Batcher
from dcsurv.service.limits import Limits, Rate
from dcsurv.service.served import ServedModel
from dcsurv.service.streaming import FileJobs
from serving import Running, records, serve
from test_cli import run

SMALL = ["age", "chemotherapy", "er_positive"]


@pytest.fixture(scope="module")
def cohort() -> tuple[pd.DataFrame, Any]:
    return load_metabric(labels="measured")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, cohort: tuple[pd.DataFrame, Any]) -> Path:
    """A folder with a small Cox model, which comes first, and two versions of another."""
    folder = tmp_path_factory.mktemp("models")
    X, y = cohort
    dcsurv.CoxPH(time_unit="days").fit(X[SMALL], y).save(folder / "adjuvant.safetensors")
    dcsurv.CoxPH(time_unit="days").fit(X, y).save(folder / "breast@9.safetensors")
    ensemble = dcsurv.CalibratedEnsemble(n_members=2, seeds_per_member=1, time_unit="days")
    ensemble.set_params(estimator__max_epochs=2).fit(X.head(200), y[:200]).save(folder / "breast@10.safetensors")
    (folder / "torn.safetensors").write_bytes((folder / "adjuvant.safetensors").read_bytes()[:-9])
    return folder


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[Running]:
    with serve(models, "--rate", 0) as running:
        yield running


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, cohort: tuple[pd.DataFrame, Any]) -> Path:
    path = tmp_path_factory.mktemp("table") / "metabric.csv"
    cohort[0].to_csv(path, index=False)
    return path


def ask(service: Running, document: Any, path: str = "/v1/predict", **query: str) -> httpx.Response:
    return service.client.post(path, json=document, params=query)


def patient(cohort: tuple[pd.DataFrame, Any], **changed: Any) -> dict[str, Any]:
    return {**records(cohort[0][SMALL].head(1))[0], **changed}


# --- the same numbers ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(models: Path, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command line writes for the ensemble."""
    path = tmp_path_factory.mktemp("written") / "predictions.csv"
    run("predict", models / "breast@10.safetensors", table, "--interval", "-o", path)
    return path


def test_json_has_the_numbers_of_the_command_line_to_the_last_bit(
    service: Running, cohort: tuple[pd.DataFrame, Any], written: Path
) -> None:
    expected = pd.read_csv(written, float_precision="round_trip")
    found = ask(service, {"patients": records(cohort[0]), "interval": True}, model="breast").json()
    assert found["model"]["version"] == "10"  # after 9
    labels = [one["label"] for one in found["horizons"]]
    rows = found["patients"]
    assert len(rows) == len(expected) == 1904
    for k, label in enumerate(labels):
        for key, name in (("survival", ""), ("lower", "_lower90"), ("upper", "_upper90")):
            assert [row["horizons"][k][key] for row in rows] == expected[f"survival_{label}{name}"].tolist()
        assert [row["horizons"][k]["risk"] for row in rows] == expected[f"risk_{label}"].tolist()
    for key, name in (
        ("mean", f"mean_to_{labels[-1]}"),
        ("followed_to", "followed_to"),
        ("time_lower", "time_lower90"),
    ):
        assert [row[key] for row in rows] == expected[name].tolist()
    median = [np.nan if row["median"] is None else row["median"] for row in rows]
    np.testing.assert_array_equal(median, expected["median"])
    assert {row["usable"] for row in rows} == {True}


def test_a_file_comes_back_as_the_bytes_that_the_command_line_writes(
    service: Running, table: Path, written: Path
) -> None:
    done = service.client.post(
        "/v1/predict/csv", content=table.read_bytes(), headers={"Content-Type": "text/csv"},
        params={"model": "breast", "interval": "true"},
    )  # fmt: skip
    assert done.status_code == 200
    assert done.content == written.read_bytes()
    assert done.headers["content-type"] == "text/csv; charset=utf-8"
    models = service.client.get("/v1/models").json()["models"]
    assert done.headers["x-model-digest"] == next(one["digest"] for one in models if one["version"] == "10")


def test_a_patient_has_the_same_numbers_alone_and_with_a_curve(
    service: Running, cohort: tuple[pd.DataFrame, Any], written: Path, models: Path
) -> None:
    expected = pd.read_csv(written, float_precision="round_trip").iloc[3]
    card = service.client.get("/v1/model", params={"model": "breast"}).json()
    times = [*np.linspace(0.0, card["last_time"], 121).tolist(), card["horizons"][0]["time"]]
    found = ask(service, {"patients": records(cohort[0])[3:4], "times": times}, model="breast").json()
    one, label = found["patients"][0], found["horizons"][0]["label"]
    assert found["times"] == sorted(times)
    place = found["times"].index(found["horizons"][0]["time"])
    assert one["curve"]["survival"][place] == one["horizons"][0]["survival"]
    band = dcsurv.load(models / "breast@10.safetensors").predict_band(cohort[0].iloc[3:4], found["times"])
    for key in ("survival", "lower", "upper"):
        assert one["curve"][key] == getattr(band, key)[0].round(6).tolist()
    assert one["horizons"][0]["survival"] == expected[f"survival_{label}"]
    assert one["curve"]["survival"][0] == 1
    assert (np.diff(one["curve"]["survival"]) <= 0).all()


def test_a_value_keeps_all_its_digits(service: Running, cohort: tuple[pd.DataFrame, Any], models: Path) -> None:
    age = 61.123456789012345
    found = ask(service, {"patients": [patient(cohort, age=age)], "horizons": ["5y"]}).json()
    frame = pd.DataFrame([patient(cohort, age=age)])
    expected = (
        dcsurv.load(models / "adjuvant.safetensors").predict_survival_function(frame).evaluate(np.array([1826.25]))
    )
    assert found["patients"][0]["horizons"][0]["survival"] == round(float(expected[0, 0]), 6)


# --- what is said of a patient ---------------------------------------------------------------------------------


def test_notes_say_what_is_unlike_training_by_code(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    asked = [
        patient(cohort),
        patient(cohort, age=104),
        patient(cohort, age=5600.5),
        patient(cohort, age=None, chemotherapy="perhaps"),
        dict.fromkeys(SMALL),
    ]
    found = ask(service, {"patients": asked, "horizons": ["5y", "90y"]}).json()["patients"]
    late = {"beyond_all_follow_up"}
    codes = [{note["code"] for note in one["notes"]} - late for one in found]
    assert codes == [set(), {"outside"}, {"far_outside"}, {"missing", "unknown_level"}, {"missing"}]
    assert [one["usable"] for one in found] == [True, True, False, True, False]
    note = next(one for one in found[2]["notes"] if one["code"] == "far_outside")
    assert (note["feature"], note["value"]) == ("age", 5600.5)
    assert note["text"].startswith(
        f"outside training range: age 5600.5 ({note['low']:g} to {note['high']:g}); not to be"
    )
    assert [one["horizons"] for one in found[0]["notes"] if one["code"] in late] == [["90y"]]


def test_what_is_said_in_a_note_is_what_the_command_line_says(service: Running, tmp_path: Path, models: Path) -> None:
    rows = [
        {"age": 104.0, "chemotherapy": "yes", "er_positive": "no"},
        {"age": 560.0, "chemotherapy": "no", "er_positive": "no"},
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "odd.csv", index=False)
    run("predict", models / "adjuvant.safetensors", tmp_path / "odd.csv", "-o", tmp_path / "out.csv")
    said = pd.read_csv(tmp_path / "out.csv")["notes"].tolist()
    found = ask(service, {"patients": rows}).json()["patients"]
    assert ["; ".join(note["text"] for note in one["notes"]) for one in found] == said


def test_an_explanation_adds_up(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    found = ask(service, {"patient": patient(cohort), "horizon": "5y"}, "/v1/explain").json()
    effects = [one["effect"] for one in found["contributions"]]
    assert found["base"] + sum(effects) == pytest.approx(found["risk"], abs=1e-9)
    assert sorted(map(abs, effects), reverse=True) == [abs(one) for one in effects]
    assert {one["feature"] for one in found["contributions"]} == set(SMALL)
    predicted = ask(service, {"patients": [patient(cohort)], "horizons": ["5y"]}).json()["patients"][0]
    assert found["risk"] == pytest.approx(predicted["horizons"][0]["risk"], abs=1e-6)
    assert found["horizon"] == {"label": "5y", "time": 1826.25}


def test_a_risk_assessment_is_one_for_fhir(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    from fhir.resources.R4B.riskassessment import RiskAssessment as Former
    from fhir.resources.riskassessment import RiskAssessment

    done = ask(
        service, {"patient": patient(cohort), "horizon": "5y", "subject": "Patient/7"}, "/v1/fhir/RiskAssessment"
    )
    assert done.headers["content-type"] == "application/fhir+json"
    for kind in (RiskAssessment, Former):
        found = kind.model_validate_json(done.content)
        assert found.subject.reference == "Patient/7"
    predicted = ask(service, {"patients": [patient(cohort)], "horizons": ["5y"]}).json()["patients"][0]
    assert done.json()["prediction"][0]["probabilityDecimal"] == predicted["horizons"][0]["risk"]
    # What is not to be used is not in it.
    far = ask(service, {"patient": patient(cohort, age=9999)}, "/v1/fhir/RiskAssessment")
    assert RiskAssessment.model_validate_json(far.content).status == "cancelled"
    assert "prediction" not in far.json()


# --- what cannot be used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "pointer", "code"),
    [
        ({"age": "old"}, "/patients/1/age", "type"),
        ({"age": True}, "/patients/1/age", "type"),
        ({"age": 10**400}, "/patients/1/age", "type"),
        ({"age": [1]}, "/patients/1/age", "type"),
        ({"chemotherapy": 3}, "/patients/1/chemotherapy", "type"),
        ({"chemotherapy": "x" * 999}, "/patients/1/chemotherapy", "type"),
        ({"aeg/~": 1}, "/patients/1/aeg~1~0", "unknown"),
    ],
    ids=["word", "truth", "huge", "list", "number", "long", "name"],
)
def test_a_field_that_cannot_be_used_is_named(
    service: Running, cohort: tuple[pd.DataFrame, Any], changed: dict[str, Any], pointer: str, code: str
) -> None:
    done = ask(service, {"patients": [patient(cohort), patient(cohort, **changed)]})
    assert done.status_code == 422
    assert done.headers["content-type"] == "application/problem+json"
    problem = done.json()
    assert problem["title"] == "Unprocessable Content" or problem["title"] == "Unprocessable Entity"
    assert [(one["pointer"], one["code"]) for one in problem["errors"]] == [(pointer, code)]


def test_what_is_asked_is_checked_field_by_field(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    whole = {"patients": [patient(cohort)]}
    absent = {name: value for name, value in patient(cohort).items() if name != "age"}
    wrong: dict[str, dict[str, Any]] = {
        "/patients": {"patients": []},
        "/patients/0": {"patients": ["somebody"]},
        "/patients/0/age": {"patients": [absent]},
        "/horizons/1": {**whole, "horizons": ["5y", "soon"]},
        "/horizons": {**whole, "horizons": []},
        "/times": {**whole, "times": [-1]},
        "/level": {**whole, "level": 1},
        "/bands": {**whole, "bands": "yes"},
        "/interval": {**whole, "interval": True},  # a Cox model has none
        "/horizon": {**whole, "horizon": "5y"},
    }
    for pointer, document in wrong.items():
        done = ask(service, document)
        assert (done.status_code, [one["pointer"] for one in done.json()["errors"]]) == (422, [pointer])
    assert ask(service, [1]).status_code == 422
    many = ask(service, {"patients": [{"age": 1}] * 500})
    assert len(many.json()["errors"]) == 20


def test_other_refusals_are_problems_too(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    client = service.client
    document = {"patients": [patient(cohort)]}
    json_type = {"Content-Type": "application/json"}
    done = {
        400: client.post("/v1/predict", content=b'{"patients": [', headers=json_type),
        404: ask(service, document, model="brest"),
        405: client.get("/v1/predict"),
        415: client.post("/v1/predict", content=json.dumps(document), headers={"Content-Type": "text/plain"}),
        413: client.post("/v1/predict", content=b" " * 8_000_001, headers=json_type),
        421: client.get("/health", headers={"Host": "evil.example"}),
        403: client.get("/v1/model", headers={"Origin": "https://evil.example"}),
        422: ask(service, document, age="61"),
    }
    for status, one in done.items():
        assert one.status_code == status
        assert one.headers["content-type"] == "application/problem+json"
        assert one.json()["status"] == status
        assert one.json()["detail"]
    assert "Did you mean 'breast'?" in done[404].json()["detail"]
    assert done[405].headers["allow"] == "POST"
    assert ask(service, document, model="breast", version="11").status_code == 404
    assert client.get("/nowhere").json()["detail"] == "There is nothing at this address."
    deep = client.post("/v1/predict", content=b"[" * 100_000, headers=json_type)
    assert deep.status_code == 400
    for host in ("localhost", "[::1]:80", "LOCALHOST:8000"):
        assert client.get("/health", headers={"Host": host}).status_code == 200


def test_a_file_that_cannot_be_used_is_refused_in_words(service: Running, table: Path) -> None:
    def send(content: bytes, **query: Any) -> tuple[int, str]:
        done = service.client.post(
            "/v1/predict/csv", content=content, headers={"Content-Type": "text/csv"}, params=query
        )
        return done.status_code, done.json()["detail"]

    assert send(b"age,chemotherapy\n61,yes\n")[0] == 422
    assert "er_positive" in send(b"age,chemotherapy\n61,yes\n")[1]
    assert "no rows" in send(b"age,chemotherapy,er_positive\n")[1]
    assert "empty" in send(b"")[1]
    assert "no text" in send(b"\x1f\x8b\x08\x00")[1]
    assert send(table.read_bytes(), horizons="soon")[0] == 422
    assert "no column" in send(table.read_bytes(), keep="name")[1] or "name" in send(table.read_bytes(), keep="name")[1]
    assert send(table.read_bytes(), level="2")[0] == 422


def test_a_file_that_fails_on_the_way_ends_the_connection_before_the_answer(service: Running) -> None:
    """Whoever reads a chunked answer to its end knows that it is whole."""
    good, bad = "61,yes,no\n" * 16_384, "old,yes,no\n" * 16_384
    content = f"age,chemotherapy,er_positive\n{good}{bad}".encode()
    got = bytearray()

    def read() -> None:
        headers = {"Content-Type": "text/csv"}
        with service.client.stream("POST", "/v1/predict/csv", content=content, headers=headers) as done:
            assert done.status_code == 200
            for part in done.iter_bytes():
                got.extend(part)

    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        read()
    assert got.count(b"\n") == 1 + 16_384
    assert "failed on the way: Problem at" in service.logged()


# --- what there is ---------------------------------------------------------------------------------------------


def test_models_are_named_by_their_files_and_a_broken_one_is_told(service: Running) -> None:
    listed = service.client.get("/v1/models").json()["models"]
    assert [(one["name"], one["version"], one["default"]) for one in listed] == [
        ("adjuvant", "1", True), ("breast", "10", False), ("breast", "9", False),
    ]  # fmt: skip
    health = service.client.get("/health").json()
    assert health["status"] == "degraded"
    assert [(one["name"], one["answers"]) for one in health["problems"]] == [("torn", False)]
    card = service.client.get("/v1/model", params={"model": "breast", "version": "9"}).json()
    assert (card["name"], card["version"], card["kind"]) == ("breast", "9", "coxph")
    assert {one["name"] for one in card["features"]} >= set(SMALL)


def test_every_answer_carries_its_headers(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    own = "0e0dfb22-ded2-4fce-93d6-6809dc0154c9"
    done = service.client.post("/v1/predict", json={"patients": [patient(cohort)]}, headers={"X-Request-Id": own})
    assert done.headers["x-request-id"] == own
    assert done.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in done.headers["content-security-policy"]
    assert done.headers["x-content-type-options"] == "nosniff"
    assert done.headers["referrer-policy"] == "no-referrer"
    assert not {"set-cookie", "server", "access-control-allow-origin"} & set(done.headers)
    named = service.client.get("/health", headers={"X-Request-Id": "Mrs Miller"})
    assert re.fullmatch(r"[0-9a-f-]{36}", named.headers["x-request-id"])


def test_counts_are_there_for_prometheus(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    def count(name: str) -> float:
        text = service.client.get("/metrics").text
        found = re.search(rf"(?m)^{re.escape(name)} (\S+)$", text)
        return 0.0 if found is None else float(found[1])

    names = (
        'dcsurv_requests_total{method="POST",route="/v1/predict",status="200"}',
        'dcsurv_request_seconds_count{route="/v1/predict"}',
        'dcsurv_patients_total{model="adjuvant",version="1"}',
    )
    before = [count(name) for name in names]
    ask(service, {"patients": [patient(cohort)] * 3})
    assert [count(name) - then for name, then in zip(names, before, strict=True)] == [1, 1, 3]
    assert count('dcsurv_model_loads_total{result="loaded"}') == 3


def test_nothing_of_a_patient_is_logged(service: Running, cohort: tuple[pd.DataFrame, Any]) -> None:
    ask(service, {"patients": [patient(cohort, age=4.937512e7, chemotherapy="perhapsodic")]})
    ask(service, {"patients": [patient(cohort, age="perhapsodic")]})
    ask(service, {"patient": patient(cohort, age=4.937512e7)}, "/v1/explain")
    service.client.get("/v1/perhapsodic", params={"age": "perhapsodic"}, headers={"X-Request-Id": "perhapsodic"})
    csv = b"age,chemotherapy,er_positive\nperhapsodic,yes,perhapsodic\n49375120,perhapsodic,no\n"
    service.client.post("/v1/predict/csv", content=csv, headers={"Content-Type": "text/csv"})
    logged = service.logged()
    assert "POST /v1/explain 200" in logged
    assert "GET other 404" in logged
    for value in ("perhapsodic", "4937512", "4.9375"):
        assert value not in logged


# --- the schema ------------------------------------------------------------------------------------------------


def test_the_schema_names_the_features(service: Running) -> None:
    document = service.client.get("/openapi.json", params={"model": "breast"}).json()
    features = document["components"]["schemas"]["Patient"]
    assert features["additionalProperties"] is False
    assert features["properties"]["age"]["type"] == ["number", "null"]
    assert "yes" in features["properties"]["chemotherapy"]["examples"]
    assert set(features["required"]) == set(features["properties"])


def test_a_fuzzer_finds_no_answer_that_is_not_in_the_schema(service: Running) -> None:
    import schemathesis
    from schemathesis.checks import load_all_checks
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    load_all_checks()

    def every_answer_is_named(operation: Any, excluded: list[Any]) -> None:
        @given(case=operation.as_strategy())
        @settings(max_examples=24, suppress_health_check=list(HealthCheck))
        def holds(case: Any) -> None:
            case.call_and_validate(excluded_checks=excluded)

        holds()

    schema = schemathesis.openapi.from_url(f"{service.address}openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 8  # all but the document itself
    for operation in operations:
        not_every_text_is_a_table = [positive_data_acceptance] if operation.path.endswith("csv") else []
        every_answer_is_named(operation, not_every_text_is_a_table)


# --- in one process --------------------------------------------------------------------------------------------


def test_the_owner_sets_what_is_refused(models: Path, cohort: tuple[pd.DataFrame, Any]) -> None:
    model = dcsurv.load(models / "adjuvant.safetensors")
    served = ServedModel(model, "a", "1", "", policy=Policy("refuse", "refuse", "refuse"))
    served.warm_up()
    refused = {"age": 104, "chemotherapy": "perhaps", "er_positive": None}
    codes = {"age": "outside", "chemotherapy": "unknown_level", "er_positive": "missing"}
    for name, value in refused.items():
        with pytest.raises(Problem) as caught:
            served.asking.predict({"patients": [patient(cohort, **{name: value})]}, 1)
        assert [(one["feature"], one["code"]) for one in caught.value.errors] == [(name, codes[name])]
    assert len(served.asking.predict({"patients": [patient(cohort)]}, 1)) == 1


def test_values_are_read_as_cells_of_a_table_are(cohort: tuple[pd.DataFrame, Any]) -> None:
    """Codes for missing, other spellings, yes and no as truth values."""
    from dcsurv.cohort.columns import Column

    columns = [Column("age", "number", missing_values=("999",)), Column("er", "yes/no"), Column("stage", "category")]
    asking = Asking(
        columns, {"er": ["no", "yes"], "stage": ["I", "II"]}, ModelCard.of(dcsurv.CoxPH(time_unit="days").fit(
            cohort[0][SMALL], cohort[1])).horizons, "days", level=0.9, has_band=False, has_interval=False,
        policy=Policy(), ranges=None,
    )  # fmt: skip
    asked = [
        {"age": 999, "er": True, "stage": "I"},
        {"age": 61, "er": "no", "stage": "II "},
        {"age": 61.5, "er": False, "stage": "III"},
    ]
    found = asking.predict({"patients": asked}, 9)
    np.testing.assert_array_equal(found.values["age"], [np.nan, 61, 61.5])
    assert found.values["er"].tolist() == ["yes", "no", "no"]
    assert found.values["stage"].tolist() == ["I", "II", None]
    assert {row: [note["code"] for note in notes] for row, notes in found.notes.items()} == {
        0: ["missing"], 2: ["unknown_level"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def coded(cohort: tuple[pd.DataFrame, Any]) -> Asking:
    """Questions to a model with codes for missing values, and without the ranges of training."""
    from dcsurv.cohort.columns import Column

    columns = [Column("age", "number", missing_values=("-9", "999")), Column("stage", "category")]
    horizons = [Horizon("1.9e+06", 1_900_001.0), Horizon("4000000", 4e6)]
    return Asking(
        columns, {"stage": ["I", "II"]}, horizons, None, level=0.9, has_band=False, has_interval=False,
        policy=Policy(), ranges=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "value",
    ["50", True, [1], {}, 10**400, 1e100, -1.1e15],
    ids=["word", "truth", "list", "record", "huge", "large", "low"],
)
@pytest.mark.parametrize("rows", [1, 40])
def test_what_is_no_usable_number_is_no_code_for_missing(coded: Asking, value: Any, rows: int) -> None:
    with pytest.raises(Problem) as caught:
        coded.predict({"patients": [{"age": value, "stage": "I"}] * rows}, 100)
    assert caught.value.status == 422
    assert {(one["feature"], one["code"]) for one in caught.value.errors} == {("age", "type")}


def test_a_number_is_refused_where_a_model_without_ranges_could_not_compute_with_it() -> None:
    model = dcsurv.load(Path(__file__).parent / "fixtures" / "format1" / "CoxPH.safetensors")
    served = ServedModel(model, "old", "1", "")
    nobody = {one["name"]: None for one in served.card["features"]}
    asked = served.asking.predict({"patients": [{**nobody, "age": sign * 1e15} for sign in (1, -1)]}, 2)
    assert np.isfinite(served.predict(asked.values, asked.how).numbers[: 2 * len(asked.how.horizons)]).all()
    with pytest.raises(Problem, match=r"age has to be a number from -1e\+15 to 1e\+15"):
        served.asking.predict({"patients": [{**nobody, "age": 1e100}]}, 1)


def test_every_label_can_be_asked_for_again(coded: Asking) -> None:
    """Also those of older files, which have an exponent; a label means the model's own time, to the last digit."""
    for label, time in (("1.9e+06", 1_900_001.0), ("4000000", 4e6), ("5000000", 5e6)):
        asked, horizon = coded.explain({"patient": {"age": 61, "stage": "I"}, "horizon": label})
        assert asked.how.horizons == (horizon,) == (Horizon(label, time),)
    asked, _, subject = coded.assess({"patient": {"age": 61, "stage": "I"}, "subject": "Patient/7"})
    assert (len(asked), subject) == (1, "Patient/7")


def test_one_time_under_two_names_is_answered_twice(models: Path, cohort: tuple[pd.DataFrame, Any]) -> None:
    served = ServedModel(dcsurv.load(models / "breast@10.safetensors"), "b", "10", "")
    question = {"patients": records(cohort[0].head(2)), "horizons": ["10y", "60m", "5y", "5 y"]}
    asked = served.asking.predict(question, 2)
    found = served.answer(asked, served.predict(asked.values, asked.how))
    assert [one["label"] for one in found["horizons"]] == ["60m", "5y", "10y"]
    for one in found["patients"]:
        first, second, _ = one["horizons"]
        assert first == {**second, "label": "60m"}


def test_times_beyond_all_follow_up_carry_the_note_of_such_horizons(
    models: Path, cohort: tuple[pd.DataFrame, Any]
) -> None:
    served = ServedModel(dcsurv.load(models / "adjuvant.safetensors"), "a", "1", "")

    def notes(*times: float) -> list[tuple[str, str]]:
        asked = served.asking.predict({"patients": [patient(cohort)], "times": list(times), "horizons": ["1y"]}, 1)
        found = served.answer(asked, served.predict(asked.values, asked.how))["patients"][0]["notes"]
        return [(one["code"], one["text"]) for one in found]

    assert notes(0, served.last) == []
    text = f"beyond all follow-up, curves held constant: times after {served.last:g}"
    assert notes(0, served.last + 1) == [("beyond_all_follow_up", text)]


def test_only_texts_that_a_model_knows_are_remembered(coded: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def counted(frame: pd.DataFrame, *given: Any) -> Any:
        looked_up.extend(frame.get("stage", []))
        return apply_columns(frame, *given)

    monkeypatch.setattr("dcsurv.service.reading.apply_columns", counted)
    for _ in range(2):
        coded.predict({"patients": [{"age": 61, "stage": text} for text in ("Miller", " i", "Miller", " i")]}, 9)
    assert looked_up == ["Miller", " i", "Miller"]


def test_a_file_counts_until_its_thread_has_ended(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedModel(dcsurv.load(models / "adjuvant.safetensors"), "a", "1", "")
    enough = threading.Event()

    def slowly(*_: Any) -> Iterator[bytes]:
        enough.wait()
        yield b""

    monkeypatch.setattr("dcsurv.service.streaming.csv_parts", slowly)

    async def ask() -> None:
        jobs = FileJobs(Limits(files=1, seconds=0.05))
        job = jobs.begin(served, {})
        job.take(b"age,chemotherapy,er_positive\n61,yes,no\n")
        with pytest.raises(Problem, match="takes too long"):
            await job.next()
        job.close()
        with pytest.raises(Problem, match="Too many files"):
            jobs.begin(served, {})
        enough.set()
        while True:
            try:
                jobs.begin(served, {}).close()
                return
            except Problem:
                await asyncio.sleep(0)

    asyncio.run(ask())


def test_requests_that_wait_are_predicted_together(models: Path, cohort: tuple[pd.DataFrame, Any]) -> None:
    served = ServedModel(dcsurv.load(models / "adjuvant.safetensors"), "a", "1", "")
    sizes: list[int] = []
    predict = served.predict
    held = threading.Event()

    def slowly(values: Any, how: Any) -> Any:
        held.wait()
        sizes.append(len(values["age"]))
        return predict(values, how)

    served.predict = slowly  # type: ignore[method-assign]
    asked = [
        served.asking.predict(
            {"patients": [patient(cohort, age=30 + k)] * (1 + k % 3), "horizons": [f"{1 + k % 2}y"]}, 9
        )
        for k in range(40)
    ]
    many = served.asking.predict({"patients": records(cohort[0][SMALL])}, 9999)  # in pieces

    async def together() -> list[Any]:
        batcher = Batcher(2)
        waiting = [asyncio.ensure_future(batcher.predict(served, one)) for one in [*asked, many]]
        await asyncio.sleep(0)
        waiting[7].cancel()  # whose client is gone
        held.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        batcher.close()
        return found

    found = asyncio.run(together())
    assert isinstance(found.pop(7), asyncio.CancelledError)
    del asked[7]
    for one, predicted in zip([*asked, many], found, strict=True):
        np.testing.assert_array_equal(predicted.numbers, predict(one.values, one.how).numbers)
    assert len(sizes) <= 8
    assert max(sizes) == 1024


def test_a_value_that_cannot_be_predicted_fails_only_the_request_that_has_it(
    models: Path, cohort: tuple[pd.DataFrame, Any], caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedModel(dcsurv.load(models / "adjuvant.safetensors"), "a", "1", "")
    predict = served.predict
    together: list[int] = []

    def refuse(values: Any, how: Any) -> Any:
        together.append(len(values["age"]))
        if (values["age"] == 77).any():
            raise ValueError("age 77")
        return predict(values, how)

    served.predict = refuse  # type: ignore[method-assign]
    ages = [40, 77, *range(41, 60)]
    asked = [served.asking.predict({"patients": [patient(cohort, age=age)] * 2}, 9) for age in ages]
    pieces = served.asking.predict({"patients": [patient(cohort, age=77)] * 2000}, 9999)

    async def ask_together() -> list[Any]:
        batcher = Batcher(1)
        found = await asyncio.gather(
            *(batcher.predict(served, one) for one in [*asked, pieces]), return_exceptions=True
        )
        batcher.close()
        return found

    found = asyncio.run(ask_together())
    assert max(together[:3]) > 2
    assert [isinstance(one, ValueError) for one in found] == [age == 77 for age in [*ages, 77]]
    for one, predicted in zip(asked, found, strict=False):
        if not isinstance(predicted, ValueError):
            np.testing.assert_array_equal(predicted.numbers, predict(one.values, one.how).numbers)
    del found
    gc.collect()
    assert "77" not in caplog.text  # of an error that nobody waits for


def test_without_the_packages_of_the_extra_it_is_named() -> None:
    code = """
import sys
sys.modules["fastapi"] = sys.modules["uvicorn"] = None
from dcsurv.cli import main
sys.argv[1:] = ["serve", "model.safetensors"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "dcsurv[serve]"' in " ".join(done.stderr.split())


def test_a_rate_lets_a_burst_pass_and_then_so_many_a_second() -> None:
    rate = Rate(10)
    assert [rate.wait("a", 0.0) == 0 for _ in range(21)] == [True] * 20 + [False]
    assert rate.wait("b", 0.0) == 0
    assert rate.wait("a", 0.05) > 0
    assert rate.wait("a", 0.2) == 0
    assert all(Rate(0).wait("a", 0.0) == 0 for _ in range(1000))


def test_the_owners_words_are_checked(tmp_path: Path, models: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text('{"title": "Breast cancer", "features": {"age": {"label": "Age", "unit": "years"}}}', "utf-8")
    model = dcsurv.load(models / "adjuvant.safetensors")
    card = model_card(model, name="a", words=read_owner_words(path))
    assert card["title"] == "Breast cancer"
    assert next(one["unit"] for one in card["features"] if one["name"] == "age") == "years"
    for text in ('{"titel": "x"}', '{"title": 3}', "[]", "{", '{"features": {"age": {"unit": ""}}}'):
        path.write_text(text, "utf-8")
        with pytest.raises(ValueError, match=r"words\.json cannot be used: .*"):
            read_owner_words(path)
