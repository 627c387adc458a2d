"use strict";
// What the model is, on whom it was developed, how well it did, and what it does not know.
const About = (() => {
  const { make } = Form;

  function show(place, card) {
    const entries = [
      [Words.say("about_what"), what(card)],
      [Words.say("about_whom"), whom(card)],
      [Words.say("about_well"), card.evaluation ? well(card) : [Words.say("about_not_evaluated")]],
      [Words.say("about_limits"), [make("ul", {}, ...card.limits.map((text) => make("li", {}, sentence(text))))]],
      [Words.say("about_policy"), [Words.say(card.policy.out_of_range === "refuse" ? "policy_refuse" : "policy_note")]],
      [Words.say("about_identity"), [
        Words.say("identity", card), ...(card.digest ? [Words.say("digest", card)] : []),
        Words.say("program", { version: card.versions.dcsurv }),
      ]],
    ];
    if (card.inside) {
      const told = make("ul", {}, ...card.inside.map((text) => make("li", {}, sentence(text))));
      entries.push([Words.say("about_inside"), [Words.say("inside"), told]]);
    }
    const paragraphs = (all) => all.map((one) => (typeof one === "string" ? make("p", {}, one) : one));
    place.replaceChildren(make("dl", { class: "answers" }, ...entries.map(([name, all]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, ...paragraphs(all))))));
  }

  const sentence = (text) => Words.capital(Words.said(text));

  function what(card) {
    const out = [card.meaning ? `${card.model}: ${Words.said(card.meaning)}.` : card.model];
    const parts = card.made_of.map((one) => make("li", {}, `${Words.percent(one.weight, 0)} ${Words.said(one.meaning)}`));
    return parts.length ? [...out, Words.say("about_made"), make("ul", {}, ...parts)] : out;
  }

  function whom(card) {
    const count = ({ patients, events }) => ({ patients: Words.number(patients), events: Words.number(events) });
    const out = [Words.say("about_patients", count(card.training))];
    if (card.training.created) out.push(Words.say("about_created", { date: Words.date(card.training.created) }));
    for (const one of card.recalibrated_on) out.push(Words.say("about_recalibrated", count(one)));
    return [...out, ...card.remarks.map(sentence)];
  }

  function well(card) {
    const found = card.evaluation, metric = (name) => found.metrics.filter((one) => one.metric === name && one.value !== null);
    const out = [Words.say("about_evaluated", { patients: Words.number(found.patients), events: Words.number(found.events), how: Words.said(found.how) })];
    for (const one of metric("C-td").slice(0, 1)) out.push(Words.say("about_ranks", { share: Words.number(100 * one.value, 0) }));
    for (const one of metric("ICI").slice(-1)) {
      const within = Words.within_horizon({ label: one.label || "", time: one.horizon }, card.time_unit);
      if (one.floor !== null) out.push(Words.say("about_calibration", { within, points: Words.points(one.value), floor: Words.points(one.floor) }));
    }
    const known = found.metrics.filter((one) => one.value !== null);
    const rows = known.map((one, k) => [
      one.label || one.horizon ? `${one.metric}, ${Words.horizon({ label: one.label || "", time: one.horizon }, card.time_unit)}` : one.metric,
      digits(one.value),
      one.lower !== null ? `${digits(one.lower)} – ${digits(one.upper)}` : one.floor !== null ? Words.say("chance", { floor: digits(one.floor) }) : "",
      k && known[k - 1].metric === one.metric ? "" : Words.said(one.meaning),
    ]);
    const heads = ["metric", "value", "interval", "meaning"].map((name) => Words.say(name));
    const whole = Results.table(Words.say("about_all_metrics"), heads, rows);
    whole.firstChild.className = "wordy";
    const remarks = make("ul", {}, ...found.notes.map((text) => make("li", {}, sentence(text))));
    const notes = found.notes.length ? [make("h3", {}, Words.say("about_remarks")), remarks] : [];
    return [...out, make("details", {}, make("summary", {}, Words.say("about_all_metrics")), whole, ...notes)];
  }
  const digits = (value) => Words.fixed(value, Math.abs(value) < 0.0095 ? 4 : 3);

  return { show };
})();
