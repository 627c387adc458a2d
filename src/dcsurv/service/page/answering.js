"use strict";
// Answers of the model in the page: those of POST /v1/predict and POST /v1/explain, computed here.
const dcsurvAnswering = (() => {
  const { note, shortNumber } = dcsurvReading;
  const { Asking, Problem } = dcsurvAsking;
  const LENGTH = 8; // bytes that say how long the description is
  // Rows that are computed together, mixtures that are kept, and workers that help with them.
  const ROWS_AT_ONCE = 128, MOST_KEPT = 50000, MOST_HELPERS = 3;

  /** Round to six decimals as NumPy does, a half to the even neighbour; null where there is no number. */
  function rounded(value) {
    if (!Number.isFinite(value)) return null;
    const scaled = value * 1e6, below = Math.floor(scaled), rest = scaled - below;
    return (rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? below + 1 : below) / 1e6;
  }

  /** Write a value as an explanation has it: 62.4, II, missing. */
  function valueText(value) {
    if (value === null) return "missing";
    if (typeof value !== "number" || Number.isInteger(value)) return String(value);
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en");
    return size >= 10 ? value.toFixed(1) : shortNumber(Number(value.toPrecision(3)));
  }

  /** Answers requests with the model of `inside`, what service/calculator.py packs, and its arrays. */
  class Answers {
    constructor(inside, block) {
      this.card = inside.card;
      this.asking = new Asking(inside.card, inside.readings);
      this.model = dcsurvArithmetic.open(inside.arithmetic, block);
      this.places = this.model.features.map(({ levels }) => levels && new Map(levels.map((level, k) => [level, k])));
      this.compared = { ...inside.compared, rows: inside.compared.rows.map((row) => this.numbers(row)) };
      const { name, version, digest } = inside.card;
      this.identity = { name, version, digest };
      this.turn = 0;
      this.kept = { times: "", found: new Map() };
    }

    /** Return the values of a patient as numbers: places of levels, NaN where one is missing. */
    numbers(row) {
      return row.map((value, k) => (this.places[k] ? this.places[k].get(value) : value) ?? NaN);
    }

    patients(rows) {
      const { features } = this.model;
      return this.model.patients(
        Object.fromEntries(features.map(({ name }, k) => [name, Float64Array.from(rows, (row) => row[k])])),
      );
    }

    predict(request) {
      const asked = this.asking.predict(request);
      const { horizons, times, level, interval } = asked.how;
      const some = this.patients(asked.rows.map((row) => this.numbers(row)));
      const at = (moments) => (level === null ? { survival: some.survival(moments) } : some.band(moments, level));
      const found = {
        ...at(horizons.map((one) => one.time)),
        median: some.median(),
        mean: some.mean(horizons.at(-1).time),
        followedTo: some.followedTo(),
        timeLower: interval === null ? null : some.timeLower(interval),
        curve: times && at(times),
      };
      return {
        model: this.identity,
        time_unit: this.card.time_unit,
        level: level ?? interval,
        horizons: horizons.map(({ label, time }) => ({ label, time })),
        times,
        patients: asked.rows.map((_, row) => this.patient(row, asked, found)),
      };
    }

    patient(row, asked, found) {
      const { horizons, times } = asked.how;
      const followedTo = rounded(found.followedTo[row]);
      const part = (array, width) => Array.from(array.subarray(row * width, (row + 1) * width), rounded);
      const ends = [found.survival, found.lower, found.upper];
      const [survival, lower, upper] = ends.map((one) => one && part(one, horizons.length));
      return {
        horizons: horizons.map(({ label }, k) => ({
          label,
          survival: survival[k],
          risk: rounded(1 - found.survival[row * horizons.length + k]),
          lower: lower ? lower[k] : null,
          upper: upper ? upper[k] : null,
        })),
        median: rounded(found.median[row]),
        mean: rounded(found.mean[row]),
        followed_to: followedTo,
        time_lower: found.timeLower && rounded(found.timeLower[row]),
        curve: found.curve && {
          survival: part(found.curve.survival, times.length),
          lower: found.curve.lower ? part(found.curve.lower, times.length) : null,
          upper: found.curve.upper ? part(found.curve.upper, times.length) : null,
        },
        usable: !asked.unusable.has(row),
        notes: [...asked.notes[row], ...this.followUpNotes(horizons, followedTo), ...this.timesNotes(times)],
      };
    }

    /** Say that times of a curve lie beyond the follow-up of all patients. */
    timesNotes(times) {
      const last = this.card.last_time;
      if (times === null || times.at(-1) <= last) return [];
      const text = `beyond all follow-up, curves held constant: times after ${shortNumber(last)}`;
      return [note("beyond_all_follow_up", text, {})];
    }

    /** Say which horizons lie beyond the follow-up of such patients, and which beyond that of all. */
    followUpNotes(horizons, followedTo) {
      const late = horizons.filter((one) => one.time > this.card.last_time).map((one) => one.label);
      const such = horizons
        .filter((one) => one.time <= this.card.last_time && followedTo !== null && followedTo < one.time)
        .map((one) => one.label);
      const out = [];
      if (such.length) {
        const text = `beyond the follow-up of such patients: ${such.join(" ")}`;
        out.push(note("beyond_follow_up", text, { horizons: such }));
      }
      if (late.length) {
        const text = `beyond all follow-up, curves held constant: ${late.join(" ")}`;
        out.push(note("beyond_all_follow_up", text, { horizons: late }));
      }
      return out;
    }

    /** Return survival at times of rows of numbers, row by row. */
    rowsAt({ rows, times }) {
      return this.patients(rows).survival(times);
    }

    /**
     * Promise the survival of many mixtures of patients at a time. All horizons are computed at once and kept: another
     * horizon, or a patient who differs in one feature, then takes less. Helpers take a part of the pieces. Between two
     * pieces others are answered; what is asked later takes the place of this.
     */
    async survival(rows, time, turn) {
      const times = [...new Set([...this.card.horizons.map((one) => one.time), time])].sort((a, b) => a - b);
      const known = this.kept.times === String(times) && this.kept.found.size < MOST_KEPT;
      if (!known) this.kept = { times: String(times), found: new Map() };
      const { found } = this.kept;
      const unknown = rows.filter((row) => !found.has(String(row)));
      const underWay = new Set();
      const work = async (compute) => {
        while (unknown.length && turn === this.turn) {
          const some = unknown.splice(-ROWS_AT_ONCE);
          const piece = compute({ rows: some, times }).then((survival) => {
            some.forEach((row, k) => found.set(String(row), survival.subarray(k * times.length, (k + 1) * times.length)));
          });
          underWay.add(piece);
          try {
            await piece;
          } catch (error) {
            unknown.push(...some); // whoever cannot leaves it to the others
            throw error;
          } finally {
            underWay.delete(piece);
          }
        }
      };
      const here = async (request) => {
        await new Promise((resolve) => setTimeout(resolve)); // others have their turn
        return this.rowsAt(request);
      };
      if (unknown.length > ROWS_AT_ONCE && this.helpers) this.helpers().forEach((one) => one.then(work).catch(() => {}));
      while (unknown.length + underWay.size && turn === this.turn) {
        await work(here);
        await Promise.allSettled(underWay);
      }
      if (turn !== this.turn) throw new Problem(409, "Another explanation was asked for meanwhile.");
      const place = times.indexOf(time);
      return rows.map((row) => found.get(String(row))[place]);
    }

    async explain(request) {
      const asked = this.asking.explain(request);
      const { horizon, rows: [given] } = asked;
      const patient = this.numbers(given);
      const turn = (this.turn += 1);
      const found = await dcsurvShapley.explain((rows) => this.survival(rows, horizon.time, turn), patient, this.compared);
      const contributions = this.card.features.map(({ name }, k) => ({
        feature: name,
        value: valueText(given[k]),
        effect: -found.values[k],
        error: found.errors ? found.errors[k] : null,
      }));
      return {
        model: this.identity,
        horizon,
        base: 1 - found.base,
        risk: 1 - found.whole,
        contributions: contributions.sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect)),
        background: this.compared.background,
        method: this.compared.method,
        usable: !asked.unusable.has(0),
        notes: [...asked.notes[0], ...this.followUpNotes([horizon], rounded(this.patients([patient]).followedTo()[0]))],
      };
    }
  }

  async function inflated(letters) {
    if (typeof DecompressionStream === "undefined") {
      throw new Problem(501, "This browser is too old to open the model in this page. Use one of 2023 or later.");
    }
    const deflated = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
    const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  }

  /** Return a promise of the answers of a packed model. */
  async function open(letters) {
    const whole = await inflated(letters);
    const length = Number(new DataView(whole).getBigUint64(0, true));
    const inside = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, LENGTH, length)));
    return new Answers(inside, whole.slice(LENGTH + length));
  }

  /** In a worker: return promises of functions that compute rows in further workers, as many as there are cores. */
  function helpersWith(whole) {
    const count = Math.min(MOST_HELPERS, (navigator.hardwareConcurrency || 1) - 1);
    return Array.from({ length: count }, async () => {
      const worker = new Worker(URL.createObjectURL(new Blob([whole.code], { type: "text/javascript" })));
      const ask = (what, request) => new Promise((resolve, reject) => {
        worker.onmessage = ({ data }) => (data.problem ? reject(new Error(data.problem.detail)) : resolve(data.answer));
        worker.onerror = reject;
        worker.postMessage({ number: 0, what, request });
      });
      await ask("open", whole);
      let before = Promise.resolve();
      return (request) => (before = before.catch(() => {}).then(() => ask("rowsAt", request))); // one after the other
    });
  }

  /** In a worker: answer the questions of the page. */
  function listen() {
    let answers = null;
    self.onmessage = async ({ data: { number, what, request } }) => {
      try {
        if (what === "open") {
          answers = await open(request.letters);
          let helpers = null;
          answers.helpers = () => (helpers ??= helpersWith(request));
        }
        self.postMessage({ number, answer: what === "open" ? answers.card : await answers[what](request) });
      } catch (error) {
        const { status = 500, message: detail, errors = [] } = error;
        self.postMessage({ number, problem: { status, detail, errors } });
      }
    };
  }

  return { listen, open };
})();
