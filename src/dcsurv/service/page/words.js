"use strict";
// The reader's language: texts of a file of words, numbers, and times.
const Words = (() => {
  const held = document.getElementById("words"); // in the one-file calculator the words are inside
  const inside = held && JSON.parse(held.textContent);
  const languages = inside
    ? Object.fromEntries(Object.entries(inside).map(([code, one]) => [code, one.language]))
    : JSON.parse(document.documentElement.dataset.languages);
  const DAYS = { days: 1, weeks: 7, months: 365.25 / 12, years: 365.25 };
  const LATIN = { numberingSystem: "latn" }; // digits as they are typed
  let words = {}, code = "en", locale = "en", sayings = [];

  // The language that the owner chose, or the first one of the browser that there are words for.
  function preferred() {
    const chosen = document.documentElement.dataset.language;
    for (const wish of chosen ? [chosen] : navigator.languages) {
      const found = Object.keys(languages).find((one) => one === wish) || Object.keys(languages).find((one) => one === wish.split("-")[0]);
      if (found) return found;
    }
    return "en";
  }

  const load = async (language) => (inside ? inside[language] : (await fetch(`words/${language}.json`)).json());
  function use(language, found) {
    [code, words] = [language, found];
    locale = navigator.languages.find((one) => one === code || one.split("-")[0] === code) || code; // en-GB, de-CH
    document.documentElement.lang = code;
    sayings = Object.entries(words.said).map(([english, own]) => [pattern(english), own]);
    for (const element of document.querySelectorAll("[data-word]")) element.textContent = say(element.dataset.word);
    for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", say(element.dataset.label));
  }

  // What a record itself holds: features and levels may be called constructor or toString.
  const own = (record, name) => (Object.hasOwn(record, name) ? record[name] : undefined);

  // A text by its name, with values in its braces; with plural forms, `count` chooses.
  function say(name, values = {}) {
    let text = words[name];
    if (typeof text !== "string") text = text[new Intl.PluralRules(code).select(Number(values.count))] || text.other;
    return text.replace(/\{(\w+)\}/g, (whole, key) => (Object.hasOwn(values, key) ? values[key] : whole));
  }

  // As the beginning of a sentence or a heading.
  const capital = (text) => text.charAt(0).toLocaleUpperCase(code) + text.slice(1);

  // A card with the owner's words in the reader's language, as far as there are any.
  function translated(card) {
    const theirs = own(card.languages, code) || {};
    const features = card.features.map((one) => {
      const { levels, ...rest } = own(theirs.features || {}, one.name) || {};
      return { ...one, ...rest, ...(levels ? { level_labels: { ...one.level_labels, ...levels } } : {}) };
    });
    return { ...card, ...theirs, features };
  }

  // A sentence of the service in the reader's language, if the file of words has it.
  function said(sentence) {
    for (const [one, text] of sayings) {
      const match = one.exec(sentence);
      if (match) return text.replace(/\{(\w+)\}/g, (_, key) => localised(match.groups[key]));
    }
    return code === "en" ? sentence : localised(sentence);
  }
  function pattern(english) {
    const quoted = english.replace(/[.*+?^$()|[\]\\]/g, "\\$&");
    return new RegExp(`^${quoted.replace(/\{(\w+)\}/g, "(?<$1>.+?)")}$`);
  }
  function localised(text) {
    const numbers = text.replace(/\d{1,3}(,\d{3})+(\.\d+)?|\d+\.\d+/g, (one) => number(Number(one.replace(/,/g, "")), 3));
    return numbers.replace(/\b(days|weeks|months|years)\b/g, (unit) => words.time_axis[unit]);
  }

  function number(value, digits = 3) {
    return new Intl.NumberFormat(locale, { ...LATIN, maximumFractionDigits: digits }).format(value);
  }
  function fixed(value, digits) {
    return new Intl.NumberFormat(locale, { ...LATIN, minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
  }
  function percent(share, digits = 1) {
    return new Intl.NumberFormat(locale, { ...LATIN, style: "percent", minimumFractionDigits: digits, maximumFractionDigits: digits }).format(share);
  }
  // A number as one types it: without marks between thousands.
  function typed(value) {
    return new Intl.NumberFormat(locale, { ...LATIN, maximumSignificantDigits: 15, useGrouping: false }).format(value);
  }
  // Of 100 people, as a whole number that does not turn rare into never.
  function people(share) {
    const count = Math.round(100 * share);
    if (count === 0 && share > 0.0005) return say("fewer");
    return count === 100 && share < 0.9995 ? say("more") : number(count);
  }
  const points = (change) => say("points", { n: fixed(Math.abs(100 * change), 1) });
  const axisUnit = (unit) => words.time_axis[unit];
  function date(text) {
    return new Intl.DateTimeFormat(locale, { dateStyle: "long" }).format(text ? new Date(text) : new Date());
  }
  function list(items) {
    return new Intl.ListFormat(code, { type: "conjunction" }).format(items);
  }

  // What is typed as a number: { value }, or { fault } with the sentence that says why not. Marks between thousands are
  // taken only where they can be nothing else: a slip of the finger must not make a value ten times larger.
  function parse(text) {
    const bare = text.trim().replace(/\s/g, " ").replaceAll("’", "'").replace("−", "-");
    const grouped = /^([+-]?\d{1,3}([ '.,])\d{3}(?:\2\d{3})*)(?:(?!\2)[.,](\d+))?$/.exec(bare);
    const simple = /^([+-]?\d*)(?:([.,])(\d*))?(e[+-]?\d+)?$/i.exec(bare);
    let plain = "";
    if (simple) {
      const [, whole, mark, after = "", power = ""] = simple;
      const short = /^[+-]?\d{1,3}$/.test(whole) && !/^[+-]?0+$/.test(whole) && after.length === 3 && !power;
      if (mark && mark !== typed(1.5)[1] && short) {
        const [first, second] = [`${whole}${after}`, `${whole}.${after}`].map((one) => typed(Number(one)));
        return { fault: say("ambiguous", { first, second }) };
      }
      if (/\d/.test(whole + after)) plain = `${whole}.${after}${power}`;
    } else if (grouped) plain = `${grouped[1].split(grouped[2]).join("")}.${grouped[3] || ""}`;
    return plain && Number.isFinite(Number(plain)) ? { value: Number(plain) } : { fault: say("no_number") };
  }

  // A time in the unit that reads best: 10,656 days are 29.2 years.
  function readable(time, unit) {
    if (!unit) return [time, "plain"];
    const days = time * DAYS[unit];
    const better = days >= 2 * 365.25 ? "years" : days >= 92 ? "months" : unit === "weeks" && days >= 14 ? "weeks" : "days";
    return [(time * DAYS[unit]) / DAYS[better], better];
  }
  function inWords(prefix, value, unit, digits) {
    const text = number(value, digits);
    return say(`${prefix}${unit}`, { n: text, count: Number(value.toFixed(digits)) });
  }
  const duration = (time, unit) => inWords("", ...readable(time, unit), 1);
  const within = (time, unit) => inWords("within_", ...readable(time, unit), 1);
  // A horizon as its label has it: 5y is 5 years whatever the unit of the model.
  function horizon(one, unit, prefix = "") {
    const match = /^([\d.]+)([dwmy])$/.exec(one.label);
    const named = match && { d: "days", w: "weeks", m: "months", y: "years" }[match[2]];
    return match ? inWords(prefix, Number(match[1]), named, 3) : inWords(prefix, one.time, unit || "plain", 3);
  }

  return {
    DAYS, languages, preferred, load, use, own, say, translated, said, capital, number, fixed, percent, typed, people, points, date, list, parse,
    readable, axisUnit, duration, within, horizon, within_horizon: (one, unit) => horizon(one, unit, "within_"), language: () => code,
  };
})();
