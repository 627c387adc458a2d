"use strict";
// Shapley values of one patient's survival at one time: what dcsurv.explain computes, with the same made-up patients
// to compare with and, where values are sampled, the same orders of the features. Both travel in the page.
const dcsurvShapley = (() => {
  /** Mixtures of the patient (row -1) and those of the background, of which equal ones are predicted only once. */
  class Mixtures {
    constructor(patient, background) {
      this.patient = patient;
      this.background = background;
      this.codes = patient.map((value, k) => {
        const seen = new Map();
        const code = (one) => {
          if (!seen.has(one)) seen.set(one, seen.size);
          return seen.get(one);
        };
        return { own: code(value), others: background.map((row) => code(row[k])) };
      });
      this.place = new Map();
      this.rows = [];
    }

    /** Ask for the patient with some features of another one: joined[k] says whether feature k is the patient's own. */
    add(joined, other) {
      const key = this.codes.map((code, k) => (joined[k] ? code.own : code.others[other])).join();
      let place = this.place.get(key);
      if (place === undefined) {
        place = this.rows.length;
        this.place.set(key, place);
        this.rows.push(this.patient.map((value, k) => (joined[k] ? value : this.background[other][k])));
      }
      return place;
    }
  }

  const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;

  function choose(n, k) {
    let out = 1;
    for (let i = 1; i <= k; i++) out = (out * (n - k + i)) / i;
    return out;
  }

  /** All coalitions of features: each worth the mean prediction over the background. */
  async function exact(predict, patient, background, whole, alone) {
    const players = patient.length, coalitions = 2 ** players;
    const members = (c) => patient.map((_, k) => ((c >> k) & 1) === 1);
    const mixtures = new Mixtures(patient, background);
    const asked = [];
    for (let c = 1; c < coalitions - 1; c++) {
      const joined = members(c);
      asked.push(background.map((_, b) => mixtures.add(joined, b)));
    }
    const found = await predict(mixtures.rows);
    const worth = [mean(alone), ...asked.map((places) => mean(places.map((place) => found[place])))];
    worth[coalitions - 1] = whole;
    const joins = patient.map((_, k) => 1 / (players * choose(players - 1, k)));
    const values = patient.map(() => 0);
    for (let c = 0; c < coalitions; c++) {
      const joined = members(c), size = joined.filter(Boolean).length;
      joined.forEach((inside, k) => {
        values[k] += inside ? joins[size - 1] * worth[c] : -joins[size] * worth[c];
      });
    }
    return { values, errors: null };
  }

  /** Orders in which features join, each also backwards, every patient of the background equally often. */
  async function sampled(predict, patient, background, whole, alone, partners, orders) {
    const mixtures = new Mixtures(patient, background);
    const asked = orders.map((order, pair) =>
      [order, [...order].reverse()].map((one) => {
        const joined = patient.map(() => false);
        return one.slice(0, -1).map((player) => {
          joined[player] = true;
          return mixtures.add(joined, partners[pair]);
        });
      }),
    );
    const found = await predict(mixtures.rows);
    const changes = orders.map((order, pair) => {
      const out = patient.map(() => 0);
      [order, [...order].reverse()].forEach((one, way) => {
        const steps = [alone[partners[pair]], ...asked[pair][way].map((place) => found[place]), whole];
        one.forEach((player, step) => {
          out[player] += (steps[step + 1] - steps[step]) / 2;
        });
      });
      return out;
    });
    const rounds = changes.length / background.length;
    const values = patient.map((_, k) => mean(changes.map((one) => one[k])));
    // Everybody of the background was met equally often: only the orders are luck, and repeats show how much.
    const errors = patient.map((_, k) => {
      const met = background.map(() => []);
      changes.forEach((one, pair) => met[partners[pair]].push(one[k]));
      const spread = met.map((some) => {
        const middle = mean(some);
        return some.reduce((sum, one) => sum + (one - middle) ** 2, 0) / (rounds - 1);
      });
      return Math.sqrt(mean(spread) / changes.length);
    });
    return { values, errors };
  }

  /**
   * Explain one patient: `predict` promises the survival of rows, `plan` says whom to compare with, and in which orders
   * features join if not in all.
   */
  async function explain(predict, patient, plan) {
    const [whole] = await predict([patient]);
    const alone = new Mixtures(patient, plan.rows);
    const nobody = patient.map(() => false);
    const places = plan.rows.map((_, b) => alone.add(nobody, b));
    const found = await predict(alone.rows);
    const others = places.map((place) => found[place]);
    const made = plan.orders
      ? await sampled(predict, patient, plan.rows, whole, others, plan.partners, plan.orders)
      : await exact(predict, patient, plan.rows, whole, others);
    return { ...made, whole, base: mean(others) };
  }

  return { explain };
})();
