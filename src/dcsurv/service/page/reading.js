"use strict";
// The values of features as a request has them: what the model takes, and what is to be said of it. The rules, the codes
// and the sentences are those of service/reading.py.
const dcsurvReading = (() => {
  const LONGEST_TEXT = 200, LARGEST_NUMBER = 1e300;

  const fieldError = (pointer, code, detail, feature = null) => ({ pointer, feature, code, detail });
  const escaped = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");
  const quoted = (text) => (text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll("'", "\\'")}'`);
  const words = (text) => text.split(/\s+/).filter(Boolean).join(" ");

  function listed(items, limit = 12) {
    const shown = items.slice(0, limit).map(quoted).join(", ");
    return items.length <= limit ? shown : `${shown} and ${items.length - limit} more`;
  }

  /** Return something that is to be said of a patient, as data. */
  function note(code, text, { feature = null, value = null, low = null, high = null, horizons = null }) {
    return { code, feature, value, low, high, horizons, text };
  }

  /** Write a number with up to six digits: 560, 0.25, 1e+07. */
  function shortNumber(value) {
    if (value === 0) return "0";
    const [mantissa, exponent] = value.toExponential(5).split("e");
    if (exponent >= -4 && exponent < 6) return String(Number(value.toPrecision(6)));
    return `${Number(mantissa)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }

  /** What spellings of one level have in common: no case, no needless blanks, composed accents. */
  const fold = (text) => words(text.normalize("NFC").toUpperCase().toLowerCase());

  /** What is said of the patients of a request while their values are read. */
  class Said {
    constructor(pointers, errors) {
      this.pointers = pointers;
      this.errors = errors;
      this.notes = pointers.map(() => []);
      this.unusable = new Set();
      this.unknown = pointers.map(() => 0);
    }

    fault(row, code, detail, feature) {
      this.errors.push(fieldError(`${this.pointers[row]}/${escaped(feature)}`, code, detail, feature));
    }

    /** Count a value that is not known; of a patient with none at all nothing can be predicted in earnest. */
    nothing(row, features) {
      this.unknown[row] += 1;
      if (this.unknown[row] === features) this.unusable.add(row);
    }
  }

  /** Reads the values of one feature: `feature` of the card, and `reading` from service/inside.py. */
  class FeatureReader {
    constructor(feature, reading, policy, features) {
      Object.assign(this, { name: feature.name, feature, reading, policy, features });
    }

    /** Return the value of a patient as the model takes it, null if it is missing. */
    read(row, value, said) {
      if (value === null) return this.missing(row, said);
      return this.feature.kind === "number" ? this.number(row, value, said) : this.word(row, value, said);
    }

    missing(row, said) {
      if (this.policy.missing === "refuse") {
        said.fault(row, "missing", `${this.name} is needed for a prediction.`, this.name);
        return null;
      }
      const text = `${this.name} is not known; the model goes by patients of whom nothing is said about it`;
      said.notes[row].push(note("missing", text, { feature: this.name }));
      said.nothing(row, this.features);
      return null;
    }

    number(row, value, said) {
      if (typeof value !== "number" || !(Math.abs(value) <= LARGEST_NUMBER)) {
        said.fault(row, "type", `${this.name} has to be a finite number, or null if it is not known.`, this.name);
        return null;
      }
      if (this.reading.missing_values.includes(String(value))) return this.missing(row, said);
      const { low, high, far_low: farLow, far_high: farHigh } = this.feature;
      if (low === null || (value >= low && value <= high)) return value;
      const far = farLow !== null && (value < farLow || value > farHigh);
      const code = far ? "far_outside" : "outside";
      let text = `outside training range: ${this.name} ${shortNumber(value)} (${shortNumber(low)} to ${shortNumber(high)})`;
      if (this.policy.out_of_range === "refuse") {
        said.fault(row, code, `${text}.`, this.name);
        return value;
      }
      if (far) {
        text += `; not to be used, predicted as ${this.name} ${shortNumber(Math.min(Math.max(value, low), high))}`;
        said.unusable.add(row);
      }
      said.notes[row].push(note(code, text, { feature: this.name, value, low, high }));
      return value;
    }

    word(row, given, said) {
      const { kind, levels } = this.reading;
      const value = kind === "yes/no" && typeof given === "boolean" ? (given ? "yes" : "no") : given;
      if (typeof value !== "string" || value.length > LONGEST_TEXT) {
        const wanted = kind === "yes/no" ? "true, false or one of" : "one of";
        const text = `${this.name} has to be ${wanted} ${listed(levels)}, or null if it is not known.`;
        said.fault(row, "type", text, this.name);
        return null;
      }
      const level = this.meaning(value);
      if (level === null) return this.missing(row, said);
      if (level !== undefined) return level;
      const text = `${this.name} ${quoted(value)} is unknown to the model`;
      if (this.policy.unknown_level === "refuse") {
        said.fault(row, "unknown_level", `${text}. Known are ${listed(levels)}.`, this.name);
      } else {
        said.notes[row].push(note("unknown_level", `${text}, taken as missing`, { feature: this.name, value }));
        said.nothing(row, this.features);
      }
      return null;
    }

    /** Return the level that a text means, null if it means that nothing is known, undefined if it is unknown. */
    meaning(text) {
      const { kind, levels, missing_values: missing, words: known } = this.reading;
      const plain = /^[+-]?\d+\.0+$/.test(text) ? text.split(".")[0] : text; // "1.0" and "1" are the same
      if (missing.includes(plain)) return null;
      if (levels.includes(plain)) return plain;
      const folded = fold(plain);
      // Of two equal letters, such as the genotypes AA and aa, case matters.
      if (kind === "category" && folded.length === 2 && folded[0] === folded[1]) {
        return levels.find((level) => words(level) === words(plain));
      }
      return Object.hasOwn(known, folded) ? known[folded] : undefined;
    }
  }

  return { FeatureReader, LONGEST_TEXT, Said, escaped, fieldError, listed, note, quoted, shortNumber };
})();
