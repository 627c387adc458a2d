"use strict";
// What is asked of the model in the page: requests read field by field, and refused as service/asking.py refuses them.
const dcsurvAsking = (() => {
  const { FeatureReader, LONGEST_TEXT, Said, escaped, fieldError, labelNumber, listed, quoted, shortNumber } = dcsurvReading;
  const MOST_PATIENTS = 10000, MOST_HORIZONS = 50, MOST_TIMES = 1000, MOST_POINTS = 1e6, LATEST = 1e12, SHOWN = 20;
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

  const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  const has = (record, name) => Object.hasOwn(record, name);
  const given = (record, name) => (has(record, name) ? record[name] ?? null : null);
  const shortened = (text) => (text.length <= 160 ? text : `${text.slice(0, 159)}…`);
  const unitOf = (name) => (name && has(UNITS, name.trim().toLowerCase()) ? UNITS[name.trim().toLowerCase()] : null);

  function refuse(errors) {
    if (!errors.length) return;
    const more = errors.length === 1 ? "" : errors.length <= SHOWN ? ` And ${errors.length - 1} more.` : " And others.";
    throw new Problem(422, errors[0].detail + more, errors.slice(0, SHOWN));
  }

  function checkedRecord(document, names, needed) {
    if (!isRecord(document)) throw new Problem(422, `the body has to be a JSON object with ${listed([needed])}.`);
    const errors = Object.keys(document)
      .filter((name) => !names.includes(name))
      .map((name) => fieldError(`/${escaped(shortened(name))}`, "unknown", `known are ${listed(names)}.`));
    if (!has(document, needed)) errors.push(fieldError(`/${needed}`, "absent", `${needed} is needed.`));
    refuse(errors);
    return document;
  }

  /** Return {label, time} of a duration such as 5y, or 365 in the model's unit; null, and an error, if it is none. */
  function horizonOf(text, unit, pointer, errors) {
    const wrong = (detail) => {
      errors.push(fieldError(pointer, "horizon", detail));
      return null;
    };
    if (typeof text !== "string" || text.length > LONGEST_TEXT) return wrong("a horizon has to be a text such as 5y or 365.");
    const found = /^\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)\s*$/.exec(text);
    const own = found && unitOf(found[2]);
    if (!found || (found[2] && !own)) return wrong(`${quoted(text.trim())} is not a duration.`);
    const number = Number(found[1]);
    if (!(number > 0 && Number.isFinite(number))) return wrong(`${quoted(text.trim())} is not a duration after time 0.`);
    if (own && !unit) return wrong(`${quoted(text.trim())} names a unit, but it is not known what times are measured in.`);
    const time = own ? (number * DAYS_IN[own]) / DAYS_IN[unit] : number;
    if (time > LATEST) return wrong(`a horizon can be at most ${shortNumber(LATEST)} in the model's unit.`);
    return { label: labelNumber(number) + (own ? own[0] : ""), time };
  }

  /** Reads the requests to the model that a card describes. */
  class Asking {
    constructor(card, readings) {
      this.card = card;
      this.unit = unitOf(card.time_unit);
      this.readers = card.features.map((one, k) => new FeatureReader(one, readings[k], card.policy, readings.length));
    }

    predict(document) {
      const asked = checkedRecord(document, PREDICT, "patients");
      const { patients } = asked;
      if (!Array.isArray(patients) || !(patients.length > 0 && patients.length <= MOST_PATIENTS)) {
        const detail = `patients has to be a list of 1 to ${MOST_PATIENTS} records. Send more of them in several requests.`;
        throw new Problem(422, detail, [fieldError("/patients", "rows", detail)]);
      }
      const errors = [];
      const how = this.how(asked, errors);
      if (how.times && how.times.length * patients.length > MOST_POINTS) {
        const detail = `curves of all patients together may have ${MOST_POINTS} points. Ask for fewer times or patients.`;
        errors.push(fieldError("/times", "points", detail));
      }
      return { ...this.patients(patients, patients.map((_, k) => `/patients/${k}`), errors), how };
    }

    explain(document) {
      const asked = checkedRecord(document, EXPLAIN, "patient");
      const errors = [];
      const horizon = given(asked, "horizon");
      const chosen = horizon === null ? this.card.horizons.at(-1) : this.horizon(horizon, "/horizon", errors);
      return { ...this.patients([asked.patient], ["/patient"], errors), horizon: chosen };
    }

    how(asked, errors) {
      const horizons = this.horizons(given(asked, "horizons"), errors);
      const times = this.times(given(asked, "times"), errors);
      const [level, bands] = this.level(asked, errors);
      return { horizons, times, level: bands ? level : null, interval: this.interval(asked, errors) ? level : null };
    }

    patients(patients, pointers, errors) {
      const names = this.readers.map((reader) => reader.name);
      const whole = patients.every(
        (one) => isRecord(one) && Object.keys(one).length === names.length && names.every((name) => has(one, name)),
      );
      if (!whole) {
        this.findFaults(patients, pointers, names, errors);
        refuse(errors);
      }
      const said = new Said(pointers, errors);
      const rows = patients.map(() => []);
      for (const reader of this.readers) {
        patients.forEach((one, row) => rows[row].push(reader.read(row, one[reader.name], said)));
        if (errors.length > SHOWN) break;
      }
      refuse(errors);
      return { rows, notes: said.notes, unusable: said.unusable };
    }

    /** Name features that are not there, and what is no feature. */
    findFaults(patients, pointers, names, errors) {
      for (let k = 0; k < patients.length && errors.length <= SHOWN; k++) {
        const patient = patients[k];
        if (!isRecord(patient)) {
          errors.push(fieldError(pointers[k], "type", "a patient has to be a record of features and values."));
          continue;
        }
        for (const name of names.filter((one) => !has(patient, one))) {
          const detail = `${name} is not there; send null if it is not known.`;
          errors.push(fieldError(`${pointers[k]}/${escaped(name)}`, "absent", detail, name));
        }
        for (const name of Object.keys(patient).filter((one) => !names.includes(one)).map(shortened)) {
          const detail = `${quoted(name)} is no feature of the model.`;
          errors.push(fieldError(`${pointers[k]}/${escaped(name)}`, "unknown", detail));
        }
      }
    }

    horizons(asked, errors) {
      if (asked === null) return this.card.horizons;
      if (!Array.isArray(asked) || !(asked.length > 0 && asked.length <= MOST_HORIZONS)) {
        const text = `horizons has to be a list of 1 to ${MOST_HORIZONS} durations, such as 5y.`;
        errors.push(fieldError("/horizons", "type", text));
        return this.card.horizons;
      }
      const found = asked.map((one, k) => this.horizon(one, `/horizons/${k}`, errors)).filter(Boolean);
      // 5y and 60m are one time under two names, and both are answered.
      return [...new Map(found.map((one) => [`${one.label} ${one.time}`, one])).values()].sort((a, b) => a.time - b.time);
    }

    /** Return the horizon that a text means; a label of the model means its horizon to the last bit. */
    horizon(text, pointer, errors) {
      const own = this.card.horizons.find((one) => one.label === text);
      return own ? { label: own.label, time: own.time } : horizonOf(text, this.unit, pointer, errors);
    }

    times(asked, errors) {
      if (asked === null) return null;
      const fine = Array.isArray(asked) && asked.length > 0 && asked.length <= MOST_TIMES
        && asked.every((t) => typeof t === "number" && t >= 0 && t <= LATEST);
      if (fine) return [...new Set(asked)].sort((a, b) => a - b);
      const text = `times has to be a list of 1 to ${MOST_TIMES} numbers from 0 to 1e+12, in the model's unit.`;
      errors.push(fieldError("/times", "type", text));
      return null;
    }

    level(asked, errors) {
      const bands = given(asked, "bands");
      let level = given(asked, "level");
      if (bands !== null && typeof bands !== "boolean") {
        errors.push(fieldError("/bands", "type", "bands has to be true or false."));
      }
      if (level !== null && !(typeof level === "number" && level >= 0.01 && level <= 0.99)) {
        errors.push(fieldError("/level", "type", "level has to be a number from 0.01 to 0.99."));
        level = null;
      }
      return [level ?? this.card.level, this.card.has_band && bands !== false];
    }

    interval(asked, errors) {
      const interval = given(asked, "interval");
      if (interval !== null && typeof interval !== "boolean") {
        errors.push(fieldError("/interval", "type", "interval has to be true or false."));
        return false;
      }
      if (interval && !this.card.has_interval) {
        const text = "this model cannot bound a time; leave interval out. A calibrated ensemble can.";
        errors.push(fieldError("/interval", "interval", text));
      }
      return interval === true;
    }
  }

  return { Asking, Problem };
})();
