"use strict";
// The form that the card of a model describes. A value is undefined (not given yet), null (unknown), a number or a level.
const Form = (() => {
  const RADIOS = 5, LETTERS = 44, LONG = 10; // more levels, or longer ones, are chosen from a list; a long form has more fields
  let fields = [];

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === true) element.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  // What a feature is called: by its owner, or its name as a table has it.
  const nameOf = (feature) => feature.label || feature.name.replace(/_/g, " ");
  const labelOf = (feature, level) => Words.own(feature.level_labels, level) || (["yes", "no"].includes(level) ? Words.say(level) : level);
  // What it is called that nothing is known: never like a level of the feature.
  function unknownOf(feature) {
    const plain = (text) => text.trim().toLocaleLowerCase();
    const taken = (feature.levels || []).map((level) => plain(labelOf(feature, level)));
    const names = [Words.say("unknown"), Words.say("not_known")];
    return names.find((one) => !taken.includes(plain(one))) || names.join(", ");
  }
  function valueOf(feature, value) {
    if (value === null || value === undefined) return unknownOf(feature);
    if (feature.kind === "number") return [Words.typed(value), feature.unit].filter(Boolean).join(" ");
    return labelOf(feature, value);
  }

  function numberField(feature, k, asks, changed) {
    const input = make("input", { id: `f${k}`, inputmode: "decimal", autocomplete: "off", "aria-describedby": `h${k} s${k}` });
    const unknown = asks && make("input", { type: "checkbox", id: `u${k}` });
    const unit = feature.unit;
    const row = make("div", { class: "row" }, input, ...(unit ? [make("span", { class: "unit", "aria-hidden": "true" }, unit)] : []));
    if (unknown) {
      row.append(make("label", { class: "unknown" }, unknown, ` ${Words.say("unknown")}`, make("span", { class: "unseen" }, nameOf(feature))));
      unknown.addEventListener("change", () => { if (unknown.checked) input.value = ""; changed(); });
    }
    input.addEventListener("input", () => { if (unknown && input.value.trim()) unknown.checked = false; changed(); });
    const label = make("label", { for: `f${k}` }, nameOf(feature), ...(unit ? [make("span", { class: "unseen" }, ` (${unit})`)] : []));
    return {
      parts: [label, row], input,
      read() {
        if (!input.value.trim()) return { value: unknown && unknown.checked ? null : undefined };
        const found = Words.parse(input.value);
        if (!found.fault && feature.whole && !Number.isInteger(found.value)) return { fault: Words.say("need_whole") };
        return found;
      },
      write(value) {
        input.value = value === undefined || value === null ? "" : Words.typed(value);
        if (unknown) unknown.checked = value === null;
      },
    };
  }

  function rangeOf(feature) {
    if (feature.kind !== "number" || feature.low === null) return "";
    return Words.say(feature.whole ? "range_whole" : "range", { low: Words.typed(feature.low), high: Words.typed(feature.high) });
  }

  function choiceField(feature, k, asks, changed) {
    const options = feature.levels.map((level) => [level, valueOf(feature, level)]);
    if (asks) options.push([null, unknownOf(feature)]);
    const letters = options.reduce((sum, [, text]) => sum + text.length, 0);
    if (options.length > RADIOS || letters > LETTERS) {
      const select = make("select", { id: `f${k}`, "aria-describedby": `h${k} s${k}` }, make("option", { value: "" }, Words.say("choose")));
      options.forEach(([, text], place) => select.append(make("option", { value: place }, text)));
      select.addEventListener("change", changed);
      return {
        parts: [make("label", { for: `f${k}` }, nameOf(feature)), select], input: select,
        read: () => ({ value: select.value === "" ? undefined : options[select.value][0] }),
        write: (value) => { const place = options.findIndex(([one]) => one === value); select.value = place < 0 ? "" : place; },
      };
    }
    const radios = options.map((_, place) =>
      make("input", { type: "radio", name: `f${k}`, value: place, id: `f${k}-${place}`, "aria-describedby": `h${k} s${k}` }));
    const labels = options.map(([level, text], place) =>
      make("label", { class: level === null ? "unknown" : null }, radios[place], text));
    const pills = make("div", { class: "pills" }, ...labels);
    pills.addEventListener("change", changed);
    return {
      group: true, parts: [make("legend", {}, nameOf(feature)), pills], input: radios[0],
      read() { const chosen = radios.findIndex((one) => one.checked); return { value: chosen < 0 ? undefined : options[chosen][0] }; },
      write: (value) => radios.forEach((one, place) => { one.checked = value !== undefined && options[place][0] === value; }),
    };
  }

  function build(place, card, changed) {
    const asks = card.policy.missing !== "refuse";
    fields = card.features.map((feature, k) => {
      const field = (feature.kind === "number" ? numberField : choiceField)(feature, k, asks, changed);
      const lines = [feature.help, rangeOf(feature)].filter(Boolean).map((text) => make("span", {}, text));
      const hint = make("p", { class: "hint", id: `h${k}` }, ...lines);
      const said = make("p", { class: "said", id: `s${k}` });
      const box = make(field.group ? "fieldset" : "div", { class: "field" }, ...field.parts, hint, said);
      return Object.assign(field, { feature, box, said });
    });
    place.closest("section").classList.toggle("long", fields.length > LONG);
    place.replaceChildren(...fields.map((one) => one.box));
  }

  // What is in the form: values by feature, which are not given yet or cannot be read, and what was typed as these.
  function read() {
    const values = Object.create(null), typed = new Map(), open = [], wrong = [];
    for (const field of fields) {
      const found = field.read();
      if (found.fault || field.box.dataset.said === "error") mark(field, found.fault || "", "error");
      if (found.fault) typed.set(field.feature.name, field.input.value);
      if (found.fault) wrong.push(field.feature);
      else if (found.value === undefined) open.push(field.feature);
      values[field.feature.name] = found.fault ? undefined : found.value;
    }
    return { values, typed, open, wrong };
  }
  // `typed`: what could not be read stays as it was typed.
  function write(values, typed = new Map()) {
    for (const field of fields) {
      const { name } = field.feature;
      field.write(Words.own(values, name));
      if (typed.has(name)) field.input.value = typed.get(name);
    }
  }

  function mark(field, text, kind) {
    if (field.said.textContent === text && field.box.dataset.said === (text && kind)) return;
    field.said.textContent = text;
    field.box.dataset.said = text ? kind : "";
    if (field.group) return; // radio buttons have no such state
    if (text && kind === "error") field.input.setAttribute("aria-invalid", "true");
    else field.input.removeAttribute("aria-invalid");
  }
  // Sentences at their fields: what was refused, or what has to be noted.
  function markAll(texts, kind) {
    for (const field of fields) mark(field, Words.own(texts, field.feature.name) || "", kind);
  }
  const focus = (name) => { const field = fields.find((one) => one.feature.name === name); if (field) field.input.focus(); };

  function focused() {
    const field = fields.find((one) => one.box.contains(document.activeElement));
    return field && field.feature.name;
  }

  return { make, nameOf, valueOf, build, read, write, markAll, focus, focused };
})();
