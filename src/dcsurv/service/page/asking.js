"use strict";
// What is asked of the model in the page: requests read field by field, refused as the API refuses them.
// The rules are those of service/asking.py; the codes and pointers of errors are the same.
const dcsurvAsking = (() => {
  const LONGEST_TEXT = 200, MOST_HORIZONS = 50, MOST_TIMES = 1000, MOST_PATIENTS = 10000, SHOWN = 20;
  const PREDICT = ["patients", "horizons", "times", "bands", "level", "interval"];
  const EXPLAIN = ["patient", "horizon"];
  const DAYS_IN = { days: 1, weeks: 7, months: 365.25 / 12, years: 365.25 };
  const UNITS = {
    d: "days", day: "days", days: "days", w: "weeks", week: "weeks", weeks: "weeks",
    m: "months", mo: "months", month: "months", months: "months", y: "years", yr: "years", year: "years", years: "years",
  };

  /** A request that is not answered as it was meant: what the API sends as problem details. */
  class Problem extends Error {
    constructor(status, detail, errors = []) {
      super(detail);
      Object.assign(this, { name: "Problem", status, detail, errors });
    }
  }

  const fieldError = (pointer, code, detail, feature = null) => ({ pointer, feature, code, detail });
  const escaped = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");
  const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const has = (record, name) => Object.hasOwn(record, name);
  const quoted = (text) => (text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll("'", "\\'")}'`);

  function listed(items, limit = 12) {
    const shown = items.slice(0, limit).map(quoted).join(", ");
    return items.length <= limit ? shown : `${shown} and ${items.length - limit} more`;
  }

  /** Write a number with up to six digits, as notes have it: 560, 0.25, 1e+07. */
  function shortNumber(value) {
    if (value === 0) return "0";
    const [mantissa, exponent] = value.toExponential(5).split("e");
    if (exponent >= -4 && exponent < 6) return String(Number(value.toPrecision(6)));
    return `${Number(mantissa)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }

  /** What spellings of one level have in common: no case, no needless blanks, composed accents. */
  const fold = (text) => text.normalize("NFC").toUpperCase().toLowerCase().split(/\s+/).filter(Boolean).join(" ");

  /** Name a level: "1.0" and "1" are the same one. */
  function levelText(value) {
    const text = String(value);
    return /^[+-]?\d+\.0+$/.test(text) ? text.split(".")[0] : text;
  }

  /** Return the level that a text means, null if nothing, undefined if it is unknown. */
  function levelOf(text, reading) {
    const plain = levelText(text);
    if (reading.missing_values.includes(plain)) return null;
    if (reading.kind === "category") {
      if (reading.levels.includes(plain)) return plain;
      const folded = fold(plain);
      // Of two equal letters, such as the genotypes AA and aa, case matters.
      if (folded.length === 2 && folded[0] === folded[1]) {
        const written = plain.split(/\s+/).filter(Boolean).join(" ");
        return reading.levels.find((level) => level.split(/\s+/).filter(Boolean).join(" ") === written);
      }
    }
    const folded = fold(plain);
    return has(reading.words, folded) ? reading.words[folded] : undefined;
  }

  function missing(reading, policy, pointer, notes, errors) {
    if (policy.missing === "refuse") {
      errors.push(fieldError(pointer, "missing", `${reading.name} is needed for a prediction.`, reading.name));
    } else {
      const text = `${reading.name} is not known; the model goes by patients of whom nothing is said about it`;
      notes.push({ code: "missing", feature: reading.name, text });
    }
    return null;
  }

  /** Return a value as the model takes it, null if it is missing; what is to be said goes to notes or errors. */
  function readValue(value, reading, policy, pointer, notes, errors) {
    const name = reading.name;
    if (value === null) return missing(reading, policy, pointer, notes, errors);
    if (reading.kind === "number") {
      if (typeof value !== "number" || !Number.isFinite(value)) {
        errors.push(fieldError(pointer, "type", `${name} has to be a finite number, or null if it is not known.`, name));
        return null;
      }
      if (reading.missing_values.includes(String(value))) return missing(reading, policy, pointer, notes, errors);
      return value;
    }
    let said = value;
    if (reading.kind === "yes/no" && typeof said === "boolean") said = said ? "yes" : "no";
    if (typeof said !== "string" || said.length > LONGEST_TEXT) {
      const wanted = reading.kind === "yes/no" ? "true, false or one of" : "one of";
      const text = `${name} has to be ${wanted} ${listed(reading.levels)}, or null if it is not known.`;
      errors.push(fieldError(pointer, "type", text, name));
      return null;
    }
    const level = levelOf(said, reading);
    if (level === null) return missing(reading, policy, pointer, notes, errors);
    if (level !== undefined) return level;
    const text = `${name} ${quoted(said)} is unknown to the model`;
    if (policy.unknown_level === "refuse") {
      errors.push(fieldError(pointer, "unknown_level", `${text}. Known are ${listed(reading.levels)}.`, name));
    } else {
      notes.push({ code: "unknown_level", feature: name, value: said, text: `${text}, taken as missing` });
    }
    return null;
  }

  function refuse(errors) {
    if (!errors.length) return;
    const more = errors.length > SHOWN ? " and others" : "";
    throw new Problem(422, errors[0].detail + more, errors.slice(0, SHOWN));
  }

  function record(document, names, needed) {
    if (!isRecord(document)) throw new Problem(422, `the body has to be a JSON object with ${listed([needed])}.`);
    const errors = Object.keys(document)
      .filter((name) => !names.includes(name))
      .map((name) => fieldError(`/${escaped(name.slice(0, LONGEST_TEXT))}`, "unknown", `known are ${listed(names)}.`));
    if (!has(document, needed)) errors.push(fieldError(`/${needed}`, "absent", `${needed} is needed.`));
    refuse(errors);
    return document;
  }

  /** Return {label, time} of a duration such as 5y or 365. */
  function horizonOf(text, unit, pointer, errors) {
    const wrong = (detail) => {
      errors.push(fieldError(pointer, "horizon", detail));
      return null;
    };
    if (typeof text !== "string" || text.length > LONGEST_TEXT) return wrong("a horizon has to be a text such as 5y or 365.");
    const found = /^\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)\s*$/.exec(text);
    const own = found && UNITS[found[2].toLowerCase()];
    if (!found || (found[2] && !own)) return wrong(`${quoted(text.trim())} is not a duration.`);
    const number = Number(found[1]);
    if (!(number > 0 && Number.isFinite(number))) return wrong(`${quoted(text.trim())} is not a duration after time 0.`);
    if (!own) return { label: shortNumber(number), time: number };
    if (!unit) return wrong(`${quoted(text.trim())} names a unit, but it is not known what times are measured in.`);
    return { label: shortNumber(number) + own[0], time: (number * DAYS_IN[own]) / DAYS_IN[unit] };
  }

  /** Reads the requests to the model that a card describes. */
  class Asking {
    constructor(card, readings) {
      this.card = card;
      this.readings = readings;
      this.unit = UNITS[(card.time_unit || "").trim().toLowerCase()];
    }

    predict(document) {
      const asked = record(document, PREDICT, "patients");
      const patients = asked.patients;
      if (!Array.isArray(patients) || !(patients.length > 0 && patients.length <= MOST_PATIENTS)) {
        const detail = `patients has to be a list of 1 to ${MOST_PATIENTS} records. Send more of them in several requests.`;
        throw new Problem(422, detail, [fieldError("/patients", "rows", detail)]);
      }
      const errors = [];
      const how = {
        horizons: this.horizons(asked.horizons ?? null, errors),
        times: this.times(asked.times ?? null, errors),
        level: this.level(asked, errors),
        interval: this.interval(has(asked, "interval") ? asked.interval : false, errors),
      };
      return { ...this.patients(patients, patients.map((_, k) => `/patients/${k}`), errors), how };
    }

    explain(document) {
      const asked = record(document, EXPLAIN, "patient");
      const errors = [];
      const given = asked.horizon ?? null;
      const horizon = given === null ? null : horizonOf(given, this.unit, "/horizon", errors);
      return { ...this.patients([asked.patient], ["/patient"], errors), horizon };
    }

    patients(patients, pointers, errors) {
      const rows = [], notes = [];
      for (let k = 0; k < patients.length && errors.length <= SHOWN; k++) {
        const patient = patients[k], said = [], row = [];
        notes.push(said);
        rows.push(row);
        if (!isRecord(patient)) {
          errors.push(fieldError(pointers[k], "type", "a patient has to be a record of features and values."));
          continue;
        }
        for (const reading of this.readings) {
          const at = `${pointers[k]}/${escaped(reading.name)}`;
          if (!has(patient, reading.name)) {
            errors.push(fieldError(at, "absent", `${reading.name} is not there; send null if it is not known.`, reading.name));
          } else {
            row.push(readValue(patient[reading.name], reading, this.card.policy, at, said, errors));
          }
        }
        for (const name of Object.keys(patient)) {
          if (this.readings.some((reading) => reading.name === name)) continue;
          const shown = name.slice(0, LONGEST_TEXT);
          errors.push(fieldError(`${pointers[k]}/${escaped(shown)}`, "unknown", `${quoted(shown)} is no feature of the model.`));
        }
      }
      refuse(errors);
      return { rows, notes };
    }

    horizons(given, errors) {
      if (given === null) return this.card.horizons;
      if (!Array.isArray(given) || !(given.length > 0 && given.length <= MOST_HORIZONS)) {
        const text = `horizons has to be a list of 1 to ${MOST_HORIZONS} durations, such as 5y.`;
        errors.push(fieldError("/horizons", "type", text));
        return this.card.horizons;
      }
      const byTime = new Map();
      given.forEach((one, k) => {
        const found = horizonOf(one, this.unit, `/horizons/${k}`, errors);
        if (found) byTime.set(found.time, found);
      });
      return [...byTime.values()].sort((a, b) => a.time - b.time);
    }

    times(given, errors) {
      if (given === null) return null;
      const fine = Array.isArray(given) && given.length > 0 && given.length <= MOST_TIMES
        && given.every((t, k) => typeof t === "number" && t >= 0 && t <= 1e12 && (k === 0 || given[k - 1] < t));
      if (fine) return given;
      const text = `times has to be a list of 1 to ${MOST_TIMES} ascending numbers from 0 on, in the model's unit.`;
      errors.push(fieldError("/times", "type", text));
      return null;
    }

    level(asked, errors) {
      const level = asked.level ?? null, bands = has(asked, "bands") ? asked.bands : true;
      if (typeof bands !== "boolean") errors.push(fieldError("/bands", "type", "bands has to be true or false."));
      if (level !== null && !(typeof level === "number" && level >= 0.01 && level <= 0.99)) {
        errors.push(fieldError("/level", "type", "level has to be a number from 0.01 to 0.99."));
        return null;
      }
      if (!this.card.has_band || bands !== true) return null;
      return level === null ? this.card.level : level;
    }

    interval(given, errors) {
      if (typeof given !== "boolean") {
        errors.push(fieldError("/interval", "type", "interval has to be true or false."));
        return false;
      }
      if (given && !this.card.has_interval) {
        const text = "this model cannot bound a time; leave interval out. A calibrated ensemble can.";
        errors.push(fieldError("/interval", "interval", text));
      }
      return given;
    }
  }

  return { Asking, Problem, fieldError, quoted, refuse, shortNumber };
})();
