"""The calculator's page in a real browser, in front of a real service: filled, changed, compared, printed, heard."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcsurv
from dcsurv.datasets import load_metabric
from dcsurv.messages import InputError
from dcsurv.service import SERVED_POLICY, assemble, page_files, read_languages
from programs import GUARD, chromium
from serving import Running, serve

TOKEN = "a-token-that-is-long-enough"
STAGES = ["0", "I", "II", "IIIa", "IIIb", "IV", "not staged"]
ODD = ["__proto__", "constructor", "toString", "Unknown"]
PATIENT = {"age": 61.5, "PGR": 6.25, "er_positive": "yes", "chemotherapy": "no", "stage": "II", "nodes": 3}
WORDS = {
    "title": "Survival after breast cancer",
    "event": "die",
    "event_free": "alive",
    "features": {
        "age": {"label": "Age at diagnosis", "unit": "years", "help": "On the day of the operation."},
        "er_positive": {"label": "Oestrogen receptor", "levels": {"yes": "positive", "no": "negative"}},
    },
    "languages": {
        "de": {
            "title": "Überleben nach Brustkrebs",
            "event": "sterben",
            "features": {"age": {"label": "Alter", "unit": "Jahre"}, "er_positive": {"levels": {"yes": "positiv"}}},
        }
    },
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    A model with a band, categories and missing values, one of the same features that looks less far ahead, one with
    names that mean something to a browser, and one of many numbers without a unit of time.
    """
    folder = tmp_path_factory.mktemp("models")
    X, y = load_metabric(labels="measured")
    X, y = X.head(400).reset_index(drop=True), y[:400]
    draw = np.random.default_rng(0)
    table = X[["age", "PGR", "er_positive", "chemotherapy"]].copy()
    table.loc[::9, "PGR"] = np.nan
    table["stage"] = pd.Categorical(draw.choice(STAGES, len(X)), STAGES)
    table["nodes"] = draw.integers(0, 20, len(X)).astype(float)
    model = dcsurv.CalibratedEnsemble(estimator=dcsurv.CoxPH(), n_members=2, time_unit="days", random_state=0)
    model.fit(table, y).save(folder / "breast.safetensors")
    sooner = y.copy()
    sooner["time"] = np.ceil(y["time"] / 4)
    dcsurv.CoxPH(time_unit="days").fit(table, sooner).save(folder / "later.safetensors")
    odd = pd.DataFrame({"age": X["age"], "constructor": draw.integers(0, 20, len(X)).astype(float)})
    odd["__proto__"] = pd.Categorical(draw.choice(ODD, len(X)), ODD)
    dcsurv.CoxPH(time_unit="days").fit(odd, y).save(folder / "odd.safetensors")
    many = pd.DataFrame(draw.normal(size=(400, 14)), columns=[f"x_{k}" for k in range(14)])
    dcsurv.CoxPH().fit(many, y).save(folder / "plain.safetensors")
    return folder


@pytest.fixture(scope="module")
def services(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """One that notes, with the owner's words, and one that refuses and wants a token."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.json").write_text(json.dumps(WORDS))
    (folder / "token").write_text(TOKEN)
    (folder / "languages").mkdir()
    french = {"language": "Français", "results_title": "Résultat", "yes": "oui"}
    (folder / "languages" / "fr.json").write_text(json.dumps(french))
    strict = ["--out-of-range", "refuse", "--missing", "refuse", "--token-file", folder / "token"]
    with ThreadPoolExecutor(2) as pool:
        noting = pool.submit(
            serve, models, "--rate", 0, "--words", folder / "words.json", "--languages", folder / "languages"
        )
        refusing = pool.submit(serve, models / "breast.safetensors", "--rate", 0, *strict)
        with noting.result() as one, refusing.result() as two:
            yield {"notes": one, "refuses": two}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as one:
        yield one


Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, services: dict[str, Running]) -> Opened:
    """Open the page; in the end nothing has been said to the console, and nobody else was asked for anything."""

    @contextmanager
    def open_(service: str = "notes", width: int = 1280, expected: str = "", **options: Any) -> Iterator[Any]:
        address = services[service].address
        context = browser.new_context(viewport={"width": width, "height": 900}, **{"locale": "en-GB", **options})
        page = context.new_page()
        page.set_default_timeout(GUARD)
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        yield page
        assert [text for text in said if not (expected and expected in text)] == []
        elsewhere = [url for url in asked if not url.startswith((address, "data:"))]
        assert elsewhere == []
        assert all(re.search(r"(\?model=\w+&version=\w+)?$", url) for url in asked)
        assert not any("?" in url and "model=" not in url for url in asked), "no value of a patient is in an address"
        assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 0]
        context.close()

    return open_


def until(page: Any, expression: str) -> None:
    """Wait for something; as a function, since the page's policy lets no text be run."""
    page.wait_for_function(f"() => {expression}")


def fill(page: Any, values: dict[str, Any]) -> None:
    """Fill the form as a person would, by the labels of its fields in English."""
    labels = {"age": "Age at diagnosis (years)", "er_positive": "Oestrogen receptor"}
    texts = {"er_positive": {"yes": "positive", "no": "negative"}}
    for name, value in values.items():
        label = labels.get(name, name)
        text = texts.get(name, {}).get(value, value)
        if name in ("er_positive", "chemotherapy"):
            page.get_by_role("group", name=label).get_by_text("unknown" if value is None else text, exact=True).check()
        elif name == "stage":
            page.get_by_label(label, exact=True).select_option(label="unknown" if value is None else text)
        elif value is None:
            page.get_by_role("checkbox", name=f"unknown {label.removesuffix(' (years)')}").check()
        else:
            page.get_by_label(label, exact=True).fill(str(value))


def shown(page: Any, patient: dict[str, Any], service: Running, model: str = "breast") -> dict[str, Any]:
    """Wait until the page shows what the service answers for a patient, and return that answer."""
    found = service.client.post(f"/v1/predict?model={model}&version=1", json={"patients": [patient]}).json()[
        "patients"
    ][0]
    risks = [f"{100 * one['risk']:.1f}%" for one in found["horizons"]]
    page.wait_for_function(
        "risks => { const rows = [...document.querySelectorAll('#risks tbody tr')].map(r => r.textContent);"
        " return !document.querySelector('#found').hidden && rows.length === risks.length"
        " && rows.every((text, k) => text.includes(risks[k])); }",
        arg=risks,
    )
    return found


def accessible(page: Any) -> None:
    """Nothing that axe-core knows of is wrong, and nothing lies beside the screen."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_a_prediction_follows_every_change(opened: Opened, services: dict[str, Running]) -> None:
    with opened() as page:
        page.wait_for_selector("#form .field")
        assert page.title() == page.inner_text("h1") == WORDS["title"]
        assert "research" in page.inner_text("#notice")
        assert not page.is_visible("#found")
        accessible(page)
        fill(page, {name: value for name, value in PATIENT.items() if name != "nodes"})
        until(page, "document.querySelector('#waiting').textContent.includes('nodes')")
        fill(page, {"nodes": 3})
        found = shown(page, PATIENT, services["notes"])
        lead = page.inner_text(".lead")
        risk = found["horizons"][1]["risk"]
        assert re.fullmatch(
            rf"Of 100 people with these values, {100 * risk:.0f} are expected to die within \d+ years\.", lead
        )
        assert lead in page.inner_text("#summary"), "it is said to those who listen"
        assert page.locator(".icons .filled").count() == round(100 * risk)
        assert page.locator(".icons path").count() == 100
        assert page.locator("#drawing .band").count() == 1
        accessible(page)
        page.get_by_text("The curve as a table").click()
        # The table next to the curve says what is drawn, and the slider what is at a time.
        assert page.locator("#curve-table tbody tr").count() >= 3
        page.focus("#at")
        page.keyboard.press("Home")
        assert page.inner_text("#read") == "At 0 days: 100 (100 to 100) of 100 alive"
        fill(page, {"age": 80})
        shown(page, {**PATIENT, "age": 80}, services["notes"])
        fill(page, {"PGR": None, "stage": None})
        shown(page, {**PATIENT, "age": 80, "PGR": None, "stage": None}, services["notes"])
        assert page.inner_text("#notes li").startswith("Unknown: PGR and stage.")
        page.click("#clear")
        assert not page.is_visible("#found")
        page.click("#example")
        page.wait_for_selector("#found:not([hidden])")
        page.click("#clear")
        page.click("#rest")
        until(page, "document.querySelector('#waiting').textContent.includes('nothing is known of this person')")
        fill(page, {"age": 50})
        shown(page, {**dict.fromkeys(PATIENT), "age": 50}, services["notes"])


def test_by_keyboard_alone(opened: Opened, services: dict[str, Running]) -> None:
    with opened(reduced_motion="reduce") as page:
        page.wait_for_selector("#form .field")
        press = page.keyboard.press

        def to(wanted: str) -> None:
            for _ in range(40):
                press("Tab")
                if page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
                    return
            raise AssertionError(f"{wanted} cannot be reached")

        press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the result"
        to("#f0")
        page.keyboard.type("61.5")
        to("#f1")
        page.keyboard.type("6.25")
        to("input[name=f2]")
        press("Space")
        press("ArrowRight")
        to("input[name=f3]")
        press("Space")
        to("#f4")
        page.keyboard.type("II")
        to("#f5")
        page.keyboard.type("3")
        shown(page, PATIENT, services["notes"])
        # Whoever has the focus can be seen to have it.
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        to("input[name=horizon]")
        press("ArrowRight")
        assert page.evaluate("document.querySelector('[name=horizon]:checked').value") == "2"
        to("#keep")
        press("Enter")
        assert page.inner_text(".state .name.then") == "A"
        to("#why summary")
        press("Enter")
        page.wait_for_selector(".bars li")


def test_two_states_beside_each_other(opened: Opened, services: dict[str, Running]) -> None:
    with opened() as page:
        page.wait_for_selector("#form .field")
        fill(page, PATIENT)
        first = shown(page, PATIENT, services["notes"])
        page.click("#keep")
        fill(page, {"age": 80})
        shown(page, {**PATIENT, "age": 80}, services["notes"])
        fill(page, {"chemotherapy": "yes"})
        second = shown(page, {**PATIENT, "age": 80, "chemotherapy": "yes"}, services["notes"])
        row = page.locator("#risks tbody tr").nth(2).inner_text()
        change = second["horizons"][2]["risk"] - first["horizons"][2]["risk"]
        assert f"{100 * first['horizons'][2]['risk']:.1f}%" in row
        assert f"{change * 100:+.1f} points".replace("-", "−") in row
        assert [one.inner_text() for one in page.locator("#differences tbody tr").all()] == [
            "Age at diagnosis\t61.5 years\t80 years",
            "chemotherapy\tno\tyes",
        ]
        assert page.locator("#drawing polyline.then").count() >= 1
        assert page.locator(".icons").count() == 2
        page.click("#why summary")
        page.wait_for_selector(".bars li")
        parts = page.locator(".bars .how.paper").all_inner_texts()
        assert len(parts) == len(PATIENT)
        accessible(page)
        page.click("#back")
        until(page, "document.querySelector('#differences').textContent.startsWith('The values are the same')")
        page.select_option("#compare", label="before Age at diagnosis and one more")
        assert page.inner_text(".state .name.then") == "Earlier"
        page.select_option("#compare", "")
        assert page.locator(".state").count() == 1


def test_values_that_the_model_has_not_seen(opened: Opened, services: dict[str, Running]) -> None:
    with opened() as page:
        page.wait_for_selector("#form .field")
        fill(page, {**PATIENT, "age": 119})
        shown(page, {**PATIENT, "age": 119}, services["notes"])
        assert "lies outside" in page.inner_text("#s0")
        fill(page, {"age": 900})
        until(page, "document.querySelector('#waiting').textContent.startsWith('No result is shown')")
        assert "far outside" in page.inner_text("#s0")
        assert "far outside" in page.inner_text("#unusable")
        assert not page.is_visible("#found"), "numbers that nobody should go by are not shown"
        accessible(page)
        for text, fault in (("abc", "enter a number"), ("1,234", "1234 or 1.234"), ("2.5", "whole number")):
            page.fill("#f5", text)
            assert fault in page.inner_text("#s5")
            assert page.get_attribute("#f5", "aria-invalid") == "true"
            assert not page.is_visible("#found")
        accessible(page)

        # A level that the page does not offer: as if another version of the model answered.
        def other_level(route: Any) -> None:
            question = json.loads(route.request.post_data)
            question["patients"][0]["stage"] = "V"
            route.continue_(post_data=json.dumps(question))

        page.route("**/v1/predict*", other_level)
        fill(page, PATIENT)
        until(page, "document.querySelector('#s4').textContent.includes('does not know V')")


def test_a_slip_of_the_finger_is_no_other_number(opened: Opened) -> None:
    wrong = [
        "5..5",
        "6,5.0",
        "1.5,",
        "62.45.",
        "1.2.3",
        "1,234,56",
        "1 2",
        "5 5,0",
        "1,234.",
        "1 234,567.8",
        "- 5",
        ".",
    ]
    fine = {
        "1 234": 1234,
        "1\u202f234\u202f567,5": 1234567.5,
        "1’234.5": 1234.5,
        "1,234,567": 1234567,
        "−2": -2,
        ".5": 0.5,
    }
    fine |= {"1.234,5": 1234.5, "1,234.5": 1234.5, "0,500": 0.5, "5.": 5, "1e3": 1000, "+6,25": 6.25, "1,2345": 1.2345}
    for locale, twofold, plain in (("en-GB", "1,234", "1.234"), ("de-DE", "1.234", "1,234")):
        with opened(locale=locale) as page:
            page.wait_for_selector("#form .field")
            read = page.evaluate("texts => texts.map(one => Words.parse(one))", [*wrong, twofold, "-" + twofold])
            assert [one.keys() for one in read] == [{"fault"}] * len(read)
            assert {one["fault"] for one in read[: len(wrong)]} == {page.evaluate("Words.say('no_number')")}
            read = page.evaluate("texts => texts.map(one => Words.parse(one).value)", [*fine, plain])
            assert read == [*fine.values(), 1.234]
            page.fill("#f0", "5..5")
            assert page.inner_text("#s0") == page.evaluate("Words.say('no_number')")


@contextmanager
def asking_for_a_password(service: Running) -> Iterator[str]:
    """A proxy as docs/deploy/nginx.conf describes it: it lets only those through who give a name and a password."""
    wanted = f"Basic {b64encode(b'ward:secret').decode()}"

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != wanted:
                self.reply(401, b"", {"WWW-Authenticate": 'Basic realm="Risk calculator"'})
                return
            kept = {name: value for name in ("Content-Type", "Origin") if (value := self.headers.get(name))}
            found = service.client.request(self.command, self.path, content=body, headers=kept)
            self.reply(found.status_code, found.content, {"Content-Type": found.headers["content-type"]})

        do_POST = do_GET

        def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_behind_a_proxy_that_asks_for_a_password(browser: Any, services: dict[str, Running]) -> None:
    with asking_for_a_password(services["notes"]) as address:
        context = browser.new_context(locale="en-GB", http_credentials={"username": "ward", "password": "secret"})
        page = context.new_page()
        page.set_default_timeout(GUARD)
        page.goto(address)
        page.wait_for_selector("#form .field, #token-section:not([hidden])")
        assert not page.is_visible("#token-section"), "the password is enough"
        fill(page, PATIENT)
        shown(page, PATIENT, services["notes"])
        context.close()


def test_refused_values_and_a_token(opened: Opened, services: dict[str, Running]) -> None:
    with opened("refuses", expected="Failed to load resource") as page:
        page.wait_for_selector("#token-section:not([hidden])")
        accessible(page)
        assert not any(page.is_visible(f"#{name}") for name in ("patient", "results", "about")), "there is nothing yet"
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#token-said').textContent.includes('not accepted')")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#form .field")
        assert not page.is_visible("#token-section")
        assert page.locator("#form").get_by_text("unknown").count() == 0
        page.click("#example")
        page.wait_for_selector("#found:not([hidden])")
        page.fill("#f0", "300")
        until(page, "document.querySelector('#s0').textContent.includes('refused')")
        assert page.get_attribute("#f0", "aria-invalid") == "true"
        assert not page.is_visible("#found")
        accessible(page)
        page.fill("#f0", "60")
        page.wait_for_selector("#found:not([hidden])")
        assert not page.is_visible("#s0")
        assert TOKEN not in page.content()


def test_german_and_other_languages(opened: Opened, services: dict[str, Running]) -> None:
    with opened(locale="de-DE") as page:
        page.wait_for_selector("#form .field")
        assert page.get_attribute("html", "lang") == "de"
        assert page.inner_text("h1") == "Überleben nach Brustkrebs"
        page.click("#example")
        page.get_by_label("Alter (Jahre)", exact=True).fill("61,5")
        page.get_by_label("PGR", exact=True).fill("6.25")
        until(page, "document.querySelector('#given').textContent.includes('61,5 Jahre')")
        page.wait_for_selector("#found:not([hidden])")
        lead = r"Von 100 Menschen mit diesen Werten werden voraussichtlich \d+ innerhalb von \d+ Jahren sterben\."
        assert re.fullmatch(lead, page.inner_text(".lead"))
        page.fill("#f1", "6.250")
        assert page.inner_text("#s1") == "Meinen Sie 6250 oder 6,25? Bitte ohne Tausendertrennzeichen schreiben."
        page.select_option("#language", "fr")
        until(page, "document.documentElement.lang === 'fr'")
        assert page.input_value("#f1") == "6.250", "what is wrong stays, to be corrected"
        page.fill("#f1", "x")
        page.select_option("#language", "de")
        until(page, "document.documentElement.lang === 'de'")
        assert (page.input_value("#f1"), page.inner_text("#s1")) == ("x", "Bitte geben Sie eine Zahl ein.")
        page.fill("#f1", "6,25")
        page.click("#keep")
        accessible(page)
        page.select_option("#language", "en")
        until(page, "document.documentElement.lang === 'en'")
        assert page.input_value("#f0") == "61.5"
        page.select_option("#language", "fr")
        until(page, "document.documentElement.lang === 'fr'")
        # What a file of words leaves out is there in English.
        assert (page.inner_text("#results h2"), page.inner_text("#patient h2")) == ("Résultat", "Values")
        assert page.input_value("#f0") == "61,5"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(opened: Opened, services: dict[str, Running], scheme: str) -> None:
    with opened(width=360, color_scheme=scheme, has_touch=True) as page:
        page.wait_for_selector("#form .field")
        fill(page, PATIENT)
        shown(page, PATIENT, services["notes"])
        assert page.is_visible("#brief"), "the result is seen while values are changed"
        page.click("#keep")
        fill(page, {"age": 40})
        shown(page, {**PATIENT, "age": 40}, services["notes"])
        page.click("#why summary")
        page.wait_for_selector(".bars li")
        accessible(page)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in dark[4:-1].split(",")) < 200) == (scheme == "dark")
        small = "[...document.querySelectorAll('button, select, .pills label')].filter(e => e.checkVisibility())"
        assert page.evaluate(f"Math.min(...{small}.map(e => e.getBoundingClientRect().height))") >= 24


def test_several_models_and_paper(opened: Opened, services: dict[str, Running]) -> None:
    def sheets() -> int:
        data = page.pdf(prefer_css_page_size=True, print_background=True)
        return len(re.findall(rb"/Type\s*/Page\b(?!s)", data))

    with opened() as page:
        page.wait_for_selector("#form .field")
        fill(page, {**PATIENT, "PGR": None, "age": 119})
        page.wait_for_selector("#found:not([hidden])")
        assert sheets() == 1
        page.click("#keep")
        fill(page, {"age": 40, "stage": "IV", "chemotherapy": "yes", "nodes": 0})
        until(page, "document.querySelector('#given').textContent.includes('A: 119 years, Now: 40 years')")
        page.click("#why summary")
        page.wait_for_selector(".bars li")
        assert sheets() == 1
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.is_visible("#given")
        assert not any(page.locator(what).is_visible() for what in ("#form", "#about", "#print", "#keep", "#at"))
        page.emulate_media(media="null", color_scheme="light")
        page.select_option("#models", label="Survival after breast cancer (plain 1)")
        until(page, "document.querySelectorAll('#form .field').length === 14")
        assert not page.is_visible("#found"), "what was said of one model is not shown with another"
        page.click("#example")
        page.wait_for_selector("#found:not([hidden])")
        assert page.locator("#drawing .band").count() == 0
        assert "by time" in page.inner_text(".lead")
        accessible(page)
        page.click("#keep")
        for k in range(14):
            page.fill(f"#f{k}", "1")
        until(page, "document.querySelector('#given').textContent.includes('Now: 1')")
        page.wait_for_selector(".bars li")
        assert sheets() == 1


def test_late_answers_and_a_service_that_is_away(opened: Opened, services: dict[str, Running]) -> None:
    with opened(expected="Failed to load resource") as page:
        page.wait_for_selector("#form .field")
        held: list[Any] = []
        page.route("**/v1/predict*", lambda route: route.continue_() if held else held.append(route))
        fill(page, PATIENT)
        until(page, "document.querySelector('#results').getAttribute('aria-busy')")
        fill(page, {"age": 80})
        shown(page, {**PATIENT, "age": 80}, services["notes"])
        with page.expect_response("**/v1/predict*"):
            held[0].continue_()
        until(page, "!document.querySelector('#results').getAttribute('aria-busy')")
        shown(page, {**PATIENT, "age": 80}, services["notes"])
        page.unroute("**/v1/predict*")
        page.route("**/v1/predict*", lambda route: route.abort())
        fill(page, {"age": 70})
        page.wait_for_selector("#trouble .warning")
        assert page.inner_text("#trouble .warning") == "The service does not answer. Your values are still here."
        assert not page.is_visible("#found")
        accessible(page)
        page.unroute("**/v1/predict*")
        page.click("#trouble button")
        shown(page, {**PATIENT, "age": 70}, services["notes"])


def instead(page: Any, name: str) -> None:
    """Another model answers under the name of the first one, as after its file has been replaced."""
    page.route(
        lambda url: "/v1/" in url and "model=breast&" in url,
        lambda route: route.continue_(url=route.request.url.replace("model=breast&", f"model={name}&")),
    )


def test_a_model_that_is_replaced(opened: Opened, services: dict[str, Running]) -> None:
    with opened(expected="Failed to load resource") as page:
        page.wait_for_selector("#form .field")
        fill(page, PATIENT)
        shown(page, PATIENT, services["notes"])
        page.click("#keep")
        fill(page, {"nodes": 4})
        shown(page, {**PATIENT, "nodes": 4}, services["notes"])
        old = page.inner_text("#horizons")
        instead(page, "later")
        fill(page, {"age": 80})
        shown(page, {**PATIENT, "nodes": 4, "age": 80}, services["notes"], "later")
        card = services["notes"].client.get("/v1/model?model=later&version=1").json()
        assert page.inner_text("#replaced").startswith("The model was replaced")
        assert page.inner_text("#horizons") != old
        assert page.locator(".state").count() == 1
        assert page.locator("#compare option").all_inner_texts() == ["nobody"], (
            "another model's results are no comparison"
        )
        assert card["digest"] in page.text_content("#foot")
        assert card["digest"] in page.inner_text("#about-model")
        assert page.evaluate("document.activeElement.id") == "f0", "whoever types can go on"
        accessible(page)
        # An explanation may be the first to tell it, and a model of other features refuses what is sent.
        page.unroute_all()
        page.click("#why summary")
        page.wait_for_selector(".bars li")
        shown(page, {**PATIENT, "nodes": 4, "age": 80}, services["notes"])
        assert page.inner_text("#horizons") == old
        instead(page, "odd")
        fill(page, {"age": 70})
        until(page, "document.querySelectorAll('#form .field').length === 3")
        assert page.input_value("#f0") == "70", "what means the same stays"
        assert page.is_hidden("#found")


def test_paper_never_pairs_new_values_with_an_old_risk(opened: Opened, services: dict[str, Running]) -> None:
    with opened() as page:
        page.wait_for_selector("#form .field")
        fill(page, PATIENT)
        shown(page, PATIENT, services["notes"])
        held: list[Any] = []
        page.route("**/v1/predict*", lambda route: held.append(route))
        with page.expect_request("**/v1/predict*"):
            fill(page, {"age": 80})
        assert "61.5 years" in page.text_content("#given"), "the values of the result that is shown"
        until(page, "getComputedStyle(document.querySelector('#found')).opacity < 0.5")
        until(page, "document.querySelector('#awaited').checkVisibility({ visibilityProperty: true })")
        assert page.inner_text("#awaited") == "Being computed …"
        page.click("#keep")
        assert page.locator(".state").count() == 1, "there is nothing yet to be kept of these values"
        page.emulate_media(media="print")
        assert not page.is_visible("#found")
        assert not page.is_visible("#given")
        assert page.inner_text("#awaited").endswith("Please print again.")
        page.emulate_media(media="null")
        held[0].continue_()
        shown(page, {**PATIENT, "age": 80}, services["notes"])
        assert not page.is_visible("#awaited")
        assert page.inner_text(".state .name.then") == "A"
        assert page.inner_text("#differences p").startswith("The values are the same")
        page.emulate_media(media="print")
        assert "80 years" in page.inner_text("#given")
        assert page.is_visible("#found")


def test_of_two_models_the_later_choice_counts(opened: Opened, services: dict[str, Running]) -> None:
    with opened() as page:
        page.wait_for_selector("#form .field")
        fill(page, PATIENT)
        shown(page, PATIENT, services["notes"])
        held: list[Any] = []
        page.route(re.compile("/v1/model.model=plain"), lambda route: held.append(route))
        page.route("**/v1/explain*", lambda route: held.append(route))
        with page.expect_request("**/v1/explain*"):
            page.click("#why summary")
        with page.expect_request(re.compile("/v1/model.model=plain")):
            page.select_option("#models", label="Survival after breast cancer (plain 1)")
        page.select_option("#models", label="Survival after breast cancer (odd 1)")
        until(page, "document.querySelectorAll('#form .field').length === 3")
        page.fill("#f0", "50")
        explanation, card = held
        for one, path in ((card, "**/v1/model*"), (explanation, "**/v1/explain*")):
            with page.expect_response(path) as late:
                one.continue_()
            late.value.finished()
        page.evaluate("() => new Promise((resolve) => setTimeout(resolve))")
        assert page.locator("#form .field").count() == 3
        assert page.input_value("#f0") == "50"
        assert page.locator("#models option:checked").inner_text().endswith("(odd 1)")
        assert page.locator(".bars li").count() == 0, "a reason of the other model"


def test_names_that_mean_something_to_a_browser(opened: Opened, services: dict[str, Running]) -> None:
    with opened() as page:
        page.wait_for_selector("#form .field")
        page.select_option("#models", label="Survival after breast cancer (odd 1)")
        until(page, "document.querySelectorAll('#form .field').length === 3")
        assert [page.input_value(f"#f{k}") for k in range(2)] == ["", ""]
        choices = page.locator("#form fieldset .pills label, #f2 option").all_inner_texts()
        assert [one for one in choices if one != "please choose"] == [*ODD, "not known"]
        page.fill("#f0", "60")
        page.fill("#f1", "3")
        patient = {"age": 60, "constructor": 3}
        for level, text in (*((one, one) for one in ODD), (None, "not known")):
            if page.locator("select#f2").count():
                page.select_option("#f2", label=text)
            else:
                page.locator("#form fieldset").get_by_text(text, exact=True).check()
            shown(page, {**patient, "__proto__": level}, services["notes"], "odd")
            assert page.locator("#given dd").last.text_content() == text
            assert page.locator("#form .said").all_text_contents() == ["", "", ""]
        assert "before proto : Unknown → not known" in re.sub(r"\s+", " ", page.text_content("#compare"))
        page.click("#why summary")
        page.wait_for_selector(".bars li")
        page.fill("#f1", "900")
        until(page, "document.querySelector('#s1').textContent.includes('far outside')")
        page.select_option("#language", "de")
        until(page, "document.documentElement.lang === 'de'")
        assert page.input_value("#f1") == "900"


class Elements(HTMLParser):
    """The scripts and styles of a page, and which elements carry either in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_served_page_holds_no_script_of_its_own(services: dict[str, Running]) -> None:
    client = services["refuses"].client
    answer = client.get("/")
    assert answer.headers["content-security-policy"] == SERVED_POLICY
    assert "unsafe" not in SERVED_POLICY
    seen = Elements()
    seen.feed(answer.text)
    assert all(attributes.get("src") for tag, attributes in seen.found if tag == "script")
    assert not any(tag == "style" or "style" in attributes for tag, attributes in seen.found)
    assert not any(name.startswith("on") for _, attributes in seen.found for name in attributes)
    for name, file in page_files().items():
        given = client.get(f"/{name}")
        assert (given.status_code, given.headers["content-type"]) == (200, file.media_type)


def test_the_whole_page_runs_what_it_holds_and_asks_nobody(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "whole.html"
    text = assemble(scripts=["over_http.js"], data={"packed": {"text": "</script><b>"}}, title="A <b> & c")
    file.write_text(text, encoding="utf-8")
    page = browser.new_page(locale="de-DE")
    page.set_default_timeout(GUARD)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    page.wait_for_selector("#trouble .warning")
    assert page.title() == "A <b> & c"
    assert page.inner_text("#trouble .warning") == "Der Dienst antwortet nicht. Ihre Eingaben sind noch da."
    assert page.evaluate("JSON.parse(document.getElementById('packed').textContent).text") == "</script><b>"
    assert page.evaluate("getComputedStyle(document.querySelector('main')).display") == "grid"
    # The only thing that is refused is to ask.
    assert said
    assert [one for one in said if "connect" not in one or "Security Policy" not in one] == []
    page.close()


def test_data_may_not_hide_an_element_of_the_page() -> None:
    with pytest.raises(ValueError, match="the data need another id"):
        assemble(scripts=[], data={"results": 1}, title="")


def test_every_language_has_every_word(tmp_path: Path) -> None:
    folder = Path(dcsurv.__file__).parent / "service" / "page" / "words"
    english, german = (json.loads((folder / f"{code}.json").read_text()) for code in ("en", "de"))
    assert list(english) == list(german)

    def places(text: Any) -> set[str]:
        return set(re.findall(r"\{\w+\}", json.dumps(text)))

    assert {key for key in english if key != "said" and places(english[key]) != places(german[key])} == set()
    scripts = "".join(file.content.decode() for name, file in page_files().items() if not name.startswith("words"))
    named = set(re.findall(r'(?:say\("|data-word="|data-label=")(\w+)"', scripts))
    assert named <= set(english)
    for name, content, fault in (
        ("fr.json", "{", "cannot be read"),
        ("fr.json", "[]", "the name of the language in itself"),
        ("fr.json", '{"language": "F", "results_titel": "x"}', "Did you mean 'results_title'"),
        ("fr.json", '{"language": "F", "title": "{nom}"}', "speaks of {nom}"),
        ("fr.json", '{"language": "F", "title": 3}', "has to be a text"),
        ("French.json", '{"language": "F"}', "named by its language"),
    ):
        own = tmp_path / name.removesuffix(".json") / str(len(fault))
        own.mkdir(parents=True)
        (own / name).write_text(content)
        with pytest.raises(InputError, match=re.escape(fault)):
            read_languages(own)
    with pytest.raises(InputError, match="no folder"):
        read_languages(tmp_path / "nowhere")
