"use strict";
// What a prediction says: people of 100, curve, risks, times, notes, and the same of a second state beside it.
const Results = (() => {
  const { make, nameOf, valueOf } = Form;
  const by = (id) => document.getElementById(id);
  const featureOf = (card, name) => card.features.find((one) => one.name === name);
  let drawn = null, lines = [];

  const eventOf = (card) => card.event || Words.say("event");
  // What a state says of a horizon, found by its time.
  const at = ({ answer, patient }, horizon) => patient.horizons[answer.horizons.findIndex((one) => one.time === horizon.time)];
  const risk = (state, horizon) => 1 - at(state, horizon).survival;
  const bandOf = (state, horizon, digits) => {
    const one = at(state, horizon);
    return one.lower === null ? "" : digits === null
      ? [Words.people(1 - one.upper), Words.people(1 - one.lower)]
      : `${Words.percent(1 - one.upper, digits)} – ${Words.percent(1 - one.lower, digits)}`;
  };
  const freeOf = (card) => card.event_free || Words.say("event_free");
  const brief = (card, state, horizon) =>
    Words.say("brief", { n: Words.people(risk(state, horizon)), within: Words.within_horizon(horizon, card.time_unit) });
  function sentence(card, state, horizon) {
    const share = risk(state, horizon), n = Words.people(share);
    return Words.say("of_100", { n, count: Math.round(100 * share), event: eventOf(card), within: Words.within_horizon(horizon, card.time_unit) });
  }
  const levelOf = (answer) => Words.percent(answer.level, 0);

  // `states`: the present one last; an earlier one, with its name, before it.
  function show(card, states, horizon) {
    const now = states[states.length - 1];
    by("found").hidden = false;
    by("people").replaceChildren(...states.map((one) => people(card, one, horizon, states.length > 1)));
    by("notes").replaceChildren(...notes(card, now.patient));
    curve(card, states);
    by("risks").replaceChildren(risks(card, states));
    by("times").replaceChildren(...times(card, states));
    const said = [sentence(card, now, horizon)];
    if (states.length > 1) said.push(compared(card, states, horizon));
    return said.join(" ");
  }

  function compared(card, [then, now], horizon) {
    const within = Words.within_horizon(horizon, card.time_unit);
    return Words.say("compared", { name: then.name, then: Words.people(risk(then, horizon)), now: Words.people(risk(now, horizon)), within });
  }

  function people(card, state, horizon, named) {
    const band = bandOf(state, horizon, null);
    const text = make("div", { class: "words" });
    if (named) text.append(make("p", { class: `name ${state.kind}` }, state.name));
    text.append(make("p", { class: "lead" }, sentence(card, state, horizon)));
    text.append(make("p", { class: "rest" }, Words.say("rest_100", { n: Words.people(1 - risk(state, horizon)), free: freeOf(card) })));
    if (band) text.append(make("p", { class: "soft" }, Words.say("band", { level: levelOf(state.answer), lower: band[0], upper: band[1] })));
    const meaning = band ? Words.say("band_meaning", { level: levelOf(state.answer) }) : Words.say("no_band");
    if (!named) text.append(make("p", { class: "fine" }, meaning));
    return make("div", { class: "state" }, Icons.draw(risk(state, horizon), state.kind), text);
  }

  function noteText(card, note) {
    const feature = note.feature && featureOf(card, note.feature);
    const horizonOf = (label) => card.horizons.find((one) => one.label === label) || { label, time: Number(label) };
    const horizons = (note.horizons || []).map((label) => Words.horizon(horizonOf(label), card.time_unit));
    const range = (limit) => (limit === null || limit === undefined ? "…" : Words.typed(limit));
    return Words.say(`note_${note.code}`, {
      feature: feature ? nameOf(feature) : "", value: feature ? valueOf(feature, note.value) : "",
      low: range(note.low), high: range(note.high),
      times: Words.list(horizons), time: Words.duration(card.last_time, card.time_unit),
    });
  }
  // Sentences at the fields, by feature; that a value is unknown needs none there.
  function fieldNotes(card, patient) {
    const told = patient.notes.filter((one) => one.feature && one.code !== "missing");
    return Object.fromEntries(told.map((one) => [one.feature, noteText(card, one)]));
  }
  function notes(card, patient) {
    const missing = patient.notes.filter((one) => one.code === "missing");
    const texts = patient.notes.filter((one) => one.code !== "missing").map((one) => noteText(card, one));
    if (missing.length === 1) texts.push(noteText(card, missing[0]));
    const names = missing.map((one) => nameOf(featureOf(card, one.feature)));
    if (missing.length > 1) texts.push(Words.say("note_missing_many", { features: Words.list(names) }));
    if (!texts.length) return [];
    const list = make("ul", {}, ...texts.map((text) => make("li", {}, text)));
    return [make("div", { class: "warning" }, make("h3", {}, Words.say("notes_title")), list)];
  }

  const axisTitle = (card) => Words.say("curve_axis", { free: Words.capital(freeOf(card)) });
  function curve(card, states, width) {
    lines = states.map(({ answer, patient, kind, name }) => ({ times: answer.times, curve: patient.curve, followed: patient.followed_to, kind, name }));
    drawn = Curve.draw(by("drawing"), lines, card.time_unit, axisTitle(card), width);
    read(card);
    const now = states[states.length - 1];
    const key = [];
    if (now.patient.curve.lower) key.push(Words.say("curve_key_band", { level: levelOf(now.answer) }));
    if (lines.some((one) => one.followed !== null && one.followed < drawn.last)) key.push(Words.say("curve_key_dashed"));
    by("key").textContent = key.join("; ");
    by("curve-table").replaceChildren(curveTable(card, states));
  }
  function read(card, event) {
    if (!drawn) return;
    if (event) by("at").value = (1000 * drawn.timeAt(event)) / drawn.last;
    const time = (by("at").value / 1000) * drawn.last;
    drawn.mark(time);
    const said = lines.map((one) => {
      const value = (values) => Words.number(100 * Curve.at(one.times, values, time), 0);
      const band = one.curve.lower ? ` ${Words.say("curve_band", { lower: value(one.curve.lower), upper: value(one.curve.upper) })}` : "";
      return `${lines.length > 1 ? `${one.name}: ` : ""}${value(one.curve.survival)}${band}`;
    });
    by("read").textContent = Words.say("curve_at", { time: Words.duration(time, card.time_unit), share: said.join(", "), free: freeOf(card) });
    by("at").setAttribute("aria-valuetext", by("read").textContent);
  }

  function table(caption, heads, rows) {
    const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
    const body = rows.map(([first, ...cells]) =>
      make("tr", {}, make("th", { scope: "row" }, first), ...cells.map((cell) => make("td", {}, ...[cell].flat()))));
    const whole = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", { class: "wide", role: "region", tabindex: "0", "aria-label": caption }, whole);
  }
  const under = (text) => (text ? make("span", { class: "under" }, text) : "");

  function curveTable(card, states) {
    const heads = [Words.say("time"), ...states.map((one) => (states.length > 1 ? one.name : Words.capital(freeOf(card))))];
    const last = lines[lines.length - 1];
    if (states.length === 1 && last.curve.lower) heads.push(Words.say("band_column", { level: levelOf(states[0].answer) }));
    const rows = drawn.ticks.slice(1).map((time) => {
      const value = (values) => Words.percent(Curve.at(last.times, values, time));
      const row = [Words.duration(time, card.time_unit), ...lines.map((one) => Words.percent(Curve.at(one.times, one.curve.survival, time)))];
      if (heads.length > row.length) row.push(`${value(last.curve.lower)} – ${value(last.curve.upper)}`);
      return row;
    });
    return table(axisTitle(card), heads, rows);
  }

  function difference(share) {
    if (Math.abs(share) < 0.0005) return Words.say("no_difference");
    return `${share > 0 ? "+" : "−"}${Words.points(share)}`;
  }
  function risks(card, states) {
    const now = states[states.length - 1];
    const { horizons } = now.answer, name = (one) => Words.horizon(one, card.time_unit);
    if (states.length === 1) {
      const band = now.answer.level !== null;
      const heads = [Words.say("within_column"), Words.say("risk_column"), Words.capital(freeOf(card))];
      const rows = horizons.map((one) => [name(one), Words.percent(risk(now, one)), Words.percent(1 - risk(now, one))]);
      if (band) heads.splice(2, 0, Words.say("band_column", { level: levelOf(now.answer) }));
      if (band) rows.forEach((row, k) => row.splice(2, 0, bandOf(now, horizons[k], 1)));
      return table(Words.say("risks_caption"), heads, rows);
    }
    const cell = (state, one) => [Words.percent(risk(state, one)), under(bandOf(state, one, 1))];
    const rows = horizons.map((one) => [name(one), ...states.map((state) => cell(state, one)), difference(risk(now, one) - risk(states[0], one))]);
    return table(Words.say("risks_caption"), [Words.say("within_column"), ...states.map((one) => one.name), Words.say("difference")], rows);
  }

  function times(card, states) {
    const now = states[states.length - 1].patient, unit = card.time_unit;
    const each = (text) => states.map((one) => {
      const name = states.length > 1 ? [make("span", { class: `name ${one.kind}` }, one.name), " "] : [];
      return make("dd", { class: "value" }, ...name, text(one.patient));
    });
    const median = each((one) => (one.median === null ? Words.say("median_none") : Words.duration(one.median, unit)));
    const said = now.median === null
      ? Words.say("median_none_text", { time: Words.duration(card.last_time, unit), free: freeOf(card) })
      : Words.say("median", { event: eventOf(card), within: Words.within(now.median, unit) });
    const answer = states[states.length - 1].answer, last = answer.horizons[answer.horizons.length - 1];
    const mean = each((one) => Words.duration(one.mean, unit));
    const tile = (label, value, text) => make("div", {}, make("dt", {}, label), ...value, make("dd", {}, text));
    return [
      tile(Words.say("median_label"), median, said),
      tile(Words.say("mean_label"), mean, Words.say("mean", { time: Words.horizon(last, unit), free: freeOf(card) })),
    ];
  }

  // Which values differ between two states.
  function changes(card, then, now) {
    return card.features.filter((one) => then[one.name] !== now[one.name])
      .map((one) => ({ feature: nameOf(one), old: valueOf(one, then[one.name]), new: valueOf(one, now[one.name]) }));
  }
  function differences(card, states) {
    if (states.length < 2) return [];
    const found = changes(card, states[0].values, states[1].values);
    const rows = found.map((one) => [one.feature, one.old, one.new]);
    const heads = [Words.say("patient_title"), ...states.map((one) => one.name)];
    const first = rows.length ? table(Words.say("compare_changed"), heads, rows) : make("p", {}, Words.say("compare_same"));
    return [first, make("p", { class: "fine" }, Words.say("compare_caution"))];
  }

  const MOST = 12; // values that a list of contributions shows one by one
  function why(card, found, values) {
    const within = Words.within_horizon(found.horizon, card.time_unit);
    const shown = found.contributions.slice(0, MOST), rest = found.contributions.slice(MOST);
    const largest = Math.max(0.01, ...found.contributions.map((one) => Math.abs(one.effect)));
    const items = shown.map((one) => {
      const feature = featureOf(card, one.feature);
      return bar(`${nameOf(feature)}: ${valueOf(feature, values[one.feature])}`, one.effect, largest);
    });
    const sum = rest.reduce((total, one) => total + one.effect, 0);
    if (rest.length) items.push(bar(Words.say("why_rest", { n: Words.number(rest.length), count: rest.length }), sum, largest));
    return [
      make("p", {}, Words.say("why_lead", { within, base: Words.number(100 * found.base, 1), risk: Words.number(100 * found.risk, 1) })),
      make("ul", { class: "bars", "aria-label": Words.say("why_caption") }, ...items),
      make("p", { class: "fine" }, Words.say("why_fine")),
      make("p", { class: "fine screen" }, Words.say("why_how", { method: Words.said(found.method), background: Words.said(found.background) })),
    ];
  }
  function bar(name, effect, largest) {
    const small = Math.abs(effect) < 0.0005;
    const text = Words.say(small ? "why_none" : effect > 0 ? "why_up" : "why_down", { points: Words.points(effect) });
    const fill = make("span", { class: effect > 0 ? "up" : "down" });
    fill.style.setProperty("--size", small ? 0 : Math.abs(effect) / largest);
    const parts = [make("span", { class: "how screen" }, text), make("span", { class: "how paper" }, difference(effect))];
    return make("li", {}, make("span", {}, name), make("span", { class: "bar", "aria-hidden": "true" }, fill), ...parts);
  }

  return { show, notes, curve, brief, read, fieldNotes, changes, differences, why, table };
})();
