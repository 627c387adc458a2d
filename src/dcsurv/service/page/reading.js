"use strict";
// The values of features as a request has them: what the model takes, and what is to be said of it. The rules, the codes
// and the sentences are those of service/reading.py.
const dcsurvReading = (() => {
  const LONGEST_TEXT = 200, LARGEST_NUMBER = 1e300, LARGEST_WITHOUT_RANGE = 1e15;

  const fieldError = (pointer, code, detail, feature = null) => ({ pointer, feature, code, detail });
  const escaped = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");
  const quoted = (text) => (text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll("'", "\\'")}'`);
  // Blanks as Python has them: with some separators that are none here, and without the mark at the start of a file.
  const BLANKS = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;
  const words = (text) => text.split(BLANKS).filter(Boolean).join(" ");

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

  /** Write the number of a label: up to six digits, and large and tiny ones in full, so that a label can be read. */
  function labelNumber(value) {
    if (!shortNumber(value).includes("e")) return shortNumber(value);
    const [mantissa, exponent] = String(value).split("e-");
    return exponent ? `0.${"0".repeat(exponent - 1)}${mantissa.replace(".", "")}` : mantissa;
  }

  // Letters that Python's casefold takes otherwise than the way through capitals does.
  const UNCASED = new Map([["ı", "ı"], ["ẞ", "ss"]]);

  /** What spellings of one level have in common: no case, no needless blanks, composed accents. */
  function fold(text) {
    const letters = [...text.normalize("NFC")].map((one) => UNCASED.get(one) ?? one.toUpperCase().toLowerCase());
    return words(letters.join("")).replaceAll("ς", "σ");
  }

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
      // Folded here, too, so that texts meet them by one rule.
      this.known = new Map(Object.entries(reading.words).map(([word, level]) => [fold(word), level]));
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
      if (typeof value !== "number" || !Number.isFinite(value)) {
        said.fault(row, "type", `${this.name} has to be a finite number, or null if it is not known.`, this.name);
        return null;
      }
      if (this.reading.missing_values.includes(String(value))) return this.missing(row, said);
      const largest = this.feature.low === null ? LARGEST_WITHOUT_RANGE : LARGEST_NUMBER;
      if (Math.abs(value) > largest) {
        const limits = `from -${shortNumber(largest)} to ${shortNumber(largest)}`;
        said.fault(row, "type", `${this.name} has to be a number ${limits}, or null if it is not known.`, this.name);
        return null;
      }
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
      if (typeof value !== "string" || [...value].length > LONGEST_TEXT) {
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
      const { kind, levels, missing_values: missing } = this.reading;
      const plain = /^[+-]?\d+\.0+$/.test(text) ? text.split(".")[0] : text; // "1.0" and "1" are the same
      if (missing.includes(plain)) return null;
      if (levels.includes(plain)) return plain;
      const folded = fold(plain);
      // Of two equal letters, such as the genotypes AA and aa, case matters.
      if (kind === "category" && folded.length === 2 && folded[0] === folded[1]) {
        return levels.find((level) => words(level) === words(plain));
      }
      return this.known.get(folded);
    }
  }

  return { FeatureReader, LONGEST_TEXT, Said, escaped, fieldError, fold, labelNumber, listed, note, quoted, shortNumber };
})();
