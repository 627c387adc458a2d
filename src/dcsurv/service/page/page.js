"use strict";
// The page: reads the form, asks the engine, shows what it answers. Nothing is stored, and nothing is in the address.
(() => {
  const by = (id) => document.getElementById(id);
  const engine = window.dcsurvEngine;
  const { make } = Form;
  const WAIT = 150, REST = 700, EARLIER = 8; // milliseconds before a prediction and a reason are asked for; states on offer
  const STEPS = 120, BEYOND = 1.5, PAPER = 880; // of the curve; how wide it is drawn for a full sheet
  let models = [], card = null, chosen = null; // which there are, the card of one, and which of several it is
  let written = null; // the card as its owner wrote it; `card` has it in the reader's language
  let now = null, before = null; // the present state { values, answer, patient }, and the one to compare with
  let kept = [], earlier = []; // states on offer
  let last = null, settled = true; // the last state that was shown, and whether typing has ended since then
  let horizon = null, wanted = false; // which of the card's horizons; whether the awaited state is to be kept
  let turn = 0, timer = 0, rest = 0, whyTurn = 0, opening = 0, speaking = 0; // of two that are under way the later one counts

  const states = () => {
    const present = { ...now, kind: "now", name: Words.say("now") };
    return before ? [{ ...before, kind: "then", name: before.name || Words.say("earlier") }, present] : [present];
  };
  const page = document.querySelector("main");
  // While an answer is awaited, what is shown belongs to other values than those in the form.
  const outdated = (whether) => page.classList.toggle("outdated", whether);

  async function start() {
    const language = Words.preferred();
    Words.use(language, await Words.load(language));
    const choice = by("language");
    choice.replaceChildren(...Object.entries(Words.languages).map(([code, name]) => make("option", { value: code, lang: code }, name)));
    choice.value = Words.language();
    choice.addEventListener("change", () => speak(choice.value));
    by("form").addEventListener("submit", (event) => event.preventDefault());
    by("form").addEventListener("change", () => { settled = true; });
    by("rest").addEventListener("click", () => fill((feature, value) => (value === undefined ? null : value), true));
    by("example").addEventListener("click", () => fill(typical));
    by("clear").addEventListener("click", () => { fill(() => undefined); Form.focus(card.features[0].name); });
    by("print").addEventListener("click", () => window.print());
    by("keep").addEventListener("click", keep);
    by("back").addEventListener("click", () => fill((feature) => before.values[feature.name]));
    by("compare").addEventListener("change", compare);
    by("why").addEventListener("toggle", explain);
    by("at").addEventListener("input", () => Results.read(card));
    by("drawing").addEventListener("pointermove", (event) => Results.read(card, event));
    by("token-form").addEventListener("submit", unlock);
    by("models").addEventListener("change", () => open(models[by("models").value]));
    new ResizeObserver(() => { if (!matchMedia("print").matches) show(false); }).observe(by("results"));
    window.addEventListener("beforeprint", () => { if (now) Results.curve(card, states(), PAPER * (before || by("why").open ? 1.2 : 1)); });
    window.addEventListener("afterprint", () => show(false));
    await enter();
  }

  async function enter() {
    try {
      ({ models } = await engine.models());
      by("token-section").hidden = true;
      by("model-choice").hidden = models.length < 2;
      const first = models.find((one) => one.default) || models[0];
      await open(models.length > 1 ? { name: first.name, version: first.version } : null);
    } catch (problem) {
      trouble(problem, enter);
    }
  }
  async function unlock(event) {
    event.preventDefault();
    engine.unlock(by("token").value);
    by("token-said").textContent = "";
    await enter();
    if (!by("token-section").hidden) by("token-said").textContent = Words.say("token_wrong");
    else by("token").value = "";
  }

  async function open(model) {
    const mine = (opening += 1);
    let found;
    try {
      found = await engine.card(model);
    } catch (problem) {
      if (mine !== opening) return;
      if (card) nothing("", Form.read().values);
      choose(); // the model so far is still the one that is asked
      trouble(problem, () => open(model));
      return;
    }
    if (mine !== opening) return; // another one was chosen meanwhile
    by("replaced").replaceChildren();
    horizon = null;
    take(found, model);
    Form.write({});
    changed();
  }

  // The file of the model was replaced: `fits` says whether a card is that of the new one. Results of two models are not
  // comparable, so that only values stay, where they mean the same.
  async function renew(fits, problem) {
    const mine = (opening += 1);
    let found = null;
    try {
      found = await engine.card(chosen);
    } catch (other) {
      problem = other;
    }
    if (mine !== opening) return;
    if (!found || !fits(found.digest)) {
      nothing("", Form.read().values);
      trouble(problem, changed);
      return;
    }
    const { values, typed } = Form.read(), { features } = card, focused = Form.focused();
    take(found, chosen);
    const same = card.features.filter((one) => features.some((two) => ["name", "kind", "unit"].every((what) => one[what] === two[what])));
    Form.write(Object.fromEntries(same.map(({ name }) => [name, values[name]])), new Map([...typed].filter(([name]) => same.some((one) => one.name === name))));
    Form.focus(focused);
    by("replaced").replaceChildren(make("p", { class: "warning screen", "data-word": "replaced" }, Words.say("replaced")));
    changed();
  }
  function take(found, model) {
    [written, chosen, now, last, before, kept, earlier] = [found, model, null, null, null, [], []];
    clearTimeout(rest);
    whyTurn += 1;
    const { horizons } = found;
    horizon = horizons.find((one) => horizon && one.time === horizon.time) || horizons[Math.floor((horizons.length - 1) / 2)];
    for (const id of ["found", "brief"]) by(id).hidden = true;
    dress();
  }

  async function speak(language) {
    const mine = (speaking += 1);
    const found = await Words.load(language);
    if (mine !== speaking) return;
    const { values, typed } = card ? Form.read() : {}; // numbers as they are typed are read in the language so far
    Words.use(language, found);
    if (!card) return;
    dress();
    Form.write(values, typed);
    changed();
  }

  // Everything that depends on the card and the language, but not on a patient.
  function dress() {
    card = Words.translated(written);
    for (const id of ["patient", "results", "about"]) by(id).hidden = false;
    const title = card.title || Words.say("title", { name: card.name.replace(/_/g, " ") });
    document.title = title;
    by("title").textContent = title;
    by("under").textContent = Words.say("under", { patients: Words.number(card.training.patients) });
    by("notice").textContent = card.notice || Words.say("notice");
    by("patient-hint").textContent = Words.say(card.policy.missing === "refuse" ? "patient_hint_all" : "patient_hint");
    by("rest").hidden = card.policy.missing === "refuse";
    const identity = Words.say("foot_print", { ...card, digest: card.digest || "–" });
    by("foot").replaceChildren(make("span", { class: "screen" }, Words.say("foot")),
      make("span", { class: "paper" }, `${identity}. ${Words.say("printed", { date: Words.date() })}.`));
    const called = (one) => one.title || one.name;
    by("models").replaceChildren(...models.map((one, k) => make("option", { value: k },
      models.some((two) => two !== one && called(two) === called(one)) ? `${called(one)} (${one.name} ${one.version})` : called(one))));
    choose();
    Form.build(by("form"), card, changed);
    by("horizons").replaceChildren(...card.horizons.map((one, k) => {
      const input = make("input", { type: "radio", name: "horizon", value: k, checked: one.time === horizon.time });
      input.addEventListener("change", () => { horizon = one; show(true); explain(); });
      return make("label", {}, input, Words.horizon(one, card.time_unit));
    }));
    About.show(by("about-model"), card);
  }

  function choose() {
    by("models").value = models.findIndex((one) => chosen && one.name === chosen.name && one.version === chosen.version);
  }

  // `wrong`: whether values that cannot be read stay as they are.
  function fill(value, wrong = false) {
    const { values, typed } = Form.read();
    Form.write(Object.fromEntries(card.features.map((one) => [one.name, value(one, values[one.name])])), wrong ? typed : undefined);
    settled = true;
    changed();
  }
  function typical(feature) {
    if (feature.kind !== "number") return feature.levels[0];
    if (feature.middle === null) return null;
    return feature.whole ? Math.round(feature.middle) : Number(feature.middle.toPrecision(3));
  }

  function changed() {
    const { values, open: missing, wrong } = Form.read();
    clearTimeout(timer);
    turn += 1;
    if (wrong.length || missing.length) {
      const names = missing.slice(0, 4).map(Form.nameOf).concat(missing.length > 4 ? ["…"] : []);
      const text = wrong.length ? Words.say("waiting_wrong")
        : missing.length === card.features.length ? Words.say("waiting_all")
          : Words.say("waiting", { n: Words.number(missing.length), count: missing.length, features: names.join(", ") });
      nothing(text, values);
      return;
    }
    outdated(true);
    timer = setTimeout(ask, WAIT, values, turn);
  }
  function nothing(text, values) {
    outdated(false);
    wanted = false;
    given(values, null);
    by("results").removeAttribute("aria-busy");
    by("waiting").textContent = text;
    by("summary").textContent = text;
    by("trouble").replaceChildren();
    by("unusable").replaceChildren();
    by("brief").hidden = true;
    by("found").hidden = true;
    now = null;
  }

  // The curve goes somewhat beyond the last horizon.
  function request(values) {
    const end = Math.min(card.last_time, BEYOND * card.horizons[card.horizons.length - 1].time);
    return { patients: [values], times: Array.from({ length: STEPS + 1 }, (_, k) => (k * end) / STEPS) };
  }

  async function ask(values, mine) {
    by("results").setAttribute("aria-busy", "true");
    try {
      const answer = await engine.predict(request(values), chosen);
      if (mine !== turn) return; // an answer to what is no longer in the form
      if (answer.model.digest !== card.digest) {
        await renew((digest) => digest === answer.model.digest, { status: 503 });
        return;
      }
      const [patient] = answer.patients;
      Form.markAll(Results.fieldNotes(card, patient), patient.usable ? "note" : "error");
      if (!patient.usable) { // numbers that nobody should go by are not shown
        const far = patient.notes.some((one) => one.code === "far_outside");
        nothing(Words.say(far ? "unusable" : "unusable_nothing"), values);
        if (far) by("unusable").replaceChildren(...Results.notes(card, patient));
        return;
      }
      remember(values);
      now = last = { values, answer, patient };
      by("waiting").textContent = "";
      by("trouble").replaceChildren();
      by("unusable").replaceChildren();
      outdated(false);
      show(true);
      if (wanted) keep();
      if (by("why").open) reason();
    } catch (problem) {
      if (mine !== turn) return;
      if (foreign(problem)) await renew((digest) => digest !== card.digest, problem);
      else refused(problem, values, () => ask(values, mine));
    } finally {
      if (mine === turn) by("results").removeAttribute("aria-busy");
    }
  }
  // What was shown becomes an earlier state, but not with every letter that is typed into one field.
  function remember(values) {
    const names = (one, two) => Results.changes(card, one, two).map((change) => change.feature).join();
    if (!last || !names(last.values, values)) return;
    const newest = earlier[0];
    if (!settled && newest && newest !== before && names(newest.values, newest.next) === names(last.values, values)) {
      newest.next = values;
      if (!names(newest.values, values)) earlier.shift(); // it was typed back
    } else earlier = [{ ...last, next: values }, ...earlier].slice(0, EARLIER);
    settled = false;
  }

  // The page sends what its card asks for: a service that misses a feature, or does not know one, has another model.
  const foreign = (problem) => (problem.errors || []).some((one) => ["absent", "unknown"].includes(one.code));
  function refused(problem, values, again) {
    const texts = Object.create(null);
    for (const one of problem.errors || []) {
      const feature = card.features.find((two) => two.name === one.feature);
      if (!feature) continue;
      const code = one.code === "far_outside" ? "outside" : one.code;
      const range = { low: Words.typed(feature.low), high: Words.typed(feature.high) };
      texts[feature.name] = ["missing", "outside", "unknown_level", "type"].includes(code) ? Words.say(`error_${code}`, range) : one.detail;
    }
    nothing("", values);
    if (Object.keys(texts).length) {
      Form.markAll(texts, "error");
      by("waiting").textContent = Words.say("failed_fields");
      by("summary").textContent = Words.say("failed_fields");
    } else trouble(problem, again);
  }
  function trouble(problem, again) {
    if (problem.status === undefined) throw problem; // a fault of the page, not of the service
    by("found").hidden = true;
    if (problem.status === 401 && engine.unlock) {
      by("token-section").hidden = false;
      by("token").focus();
      return;
    }
    by("results").hidden = false;
    const text = problem.status === 0 ? Words.say("failed_network")
      : [429, 503].includes(problem.status) ? Words.say("failed_busy") : Words.say("failed", { detail: problem.detail });
    const button = make("button", { type: "button" }, Words.say("again"));
    button.addEventListener("click", () => { by("trouble").replaceChildren(); again(); });
    by("trouble").replaceChildren(make("p", { class: "warning" }, text), button);
  }

  // `aloud`: also for those who listen; not after a mere change of size.
  function show(aloud) {
    if (!now) return;
    const summary = Results.show(card, states(), horizon);
    if (aloud) by("summary").textContent = summary;
    given(now.values, before && states()[0]);
    by("brief").hidden = false;
    by("brief").textContent = Results.brief(card, now, horizon);
    by("differences").replaceChildren(...Results.differences(card, states()));
    by("keep").textContent = Words.say("keep", { name: String.fromCharCode(65 + (kept.length % 26)) });
    by("back").hidden = !before || !Results.changes(card, before.values, now.values).length;
    if (before) by("back").textContent = Words.say("back", { name: before.name || Words.say("earlier") });
    if (aloud) offer();
  }
  function offer() {
    const label = (one) => {
      const [first, ...more] = Results.changes(card, one.values, one.next);
      return Words.say(more.length ? "compare_before_more" : "compare_before", { ...first, n: more.length, count: more.length });
    };
    const group = (name, all, text) => {
      const options = all.map((one, k) => make("option", { value: `${name}${k}` }, text(one)));
      return all.length ? [make("optgroup", { label: Words.say(name) }, ...options)] : [];
    };
    by("compare").replaceChildren(make("option", { value: "" }, Words.say("compare_nobody")),
      ...group("compare_kept", kept, (one) => one.name), ...group("compare_earlier", earlier, label));
    by("compare").value = !before ? "" : kept.includes(before) ? `compare_kept${kept.indexOf(before)}` : `compare_earlier${earlier.indexOf(before)}`;
  }
  function keep() {
    wanted = page.classList.contains("outdated"); // those in the form are kept, as soon as there is their result
    if (wanted) return;
    before = { ...now, name: String.fromCharCode(65 + (kept.length % 26)) };
    kept = [...kept, before];
    show(true);
  }
  function compare() {
    const [, name, place] = /^(\w+?)(\d+)$/.exec(by("compare").value) || [];
    before = !name ? null : (name === "compare_kept" ? kept : earlier)[place];
    if (before && !kept.includes(before)) { before = { ...before, name: "" }; earlier[place] = before; }
    show(true);
  }

  // An explanation takes seconds: it is asked for when it is looked at and the values have come to rest.
  function reason() {
    by("why-said").replaceChildren(make("p", {}, Words.say("why_loading")));
    whyTurn += 1;
    clearTimeout(rest);
    rest = setTimeout(explain, REST);
  }
  async function explain() {
    if (!by("why").open || !now) return;
    const mine = (whyTurn += 1);
    const place = by("why-said");
    place.replaceChildren(make("p", {}, Words.say("why_loading")));
    try {
      const { values } = now;
      const found = await engine.explain({ patient: values, horizon: horizon.label }, chosen);
      if (mine !== whyTurn) return;
      if (found.model.digest === card.digest) place.replaceChildren(...Results.why(card, found, values));
      else await renew((digest) => digest === found.model.digest, { status: 503 });
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      if (mine !== whyTurn) return;
      if (foreign(problem)) await renew((digest) => digest !== card.digest, problem);
      else place.replaceChildren(make("p", { class: "warning" }, Words.say("failed", { detail: problem.detail })));
    }
  }

  // The values as text, for paper; those that differ from another state with both.
  function given(values, other) {
    const text = (one, all) => (all[one.name] === undefined ? "–" : Form.valueOf(one, all[one.name]));
    const both = (one) => `${other.name}: ${text(one, other.values)}, ${Words.say("now")}: ${text(one, values)}`;
    by("given").replaceChildren(...card.features.map((one) => make("div", {}, make("dt", {}, Form.nameOf(one)),
      make("dd", {}, other && other.values[one.name] !== values[one.name] ? both(one) : text(one, values)))));
  }

  start();
})();
