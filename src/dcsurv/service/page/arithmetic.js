// Computes what a model predicts, from a description and a block of bytes that `dcsurv.arithmetic.packed` made.
//
//     const model = dcsurvArithmetic.open(description, bytes);   // parsed JSON; an ArrayBuffer or a Uint8Array
//     model.features                                             // [{name, levels: [text, ...] or null}, ...]
//     const some = model.patients({age: [61, null], stage: ["II", "III"]});   // null, undefined, NaN: missing
//     some.count                            // 2
//     some.survival([365, 730])             // Float64Array, patient by patient: S at 365 and 730 of each
//     some.band([365, 730], 0.9)            // {survival, lower, upper}, if model.hasBand; times must ascend
//     some.median()                         // one time each; NaN where the curve stays above one half
//     some.mean(730)                        // mean time survived up to a time
//     some.timeLower(0.9)                   // outlived with this confidence, if model.hasInterval
//     some.followedTo()                     // until when such patients were followed; NaN where that is not known
//
// A column is an array of values as a form has them (numbers; texts of levels, of which unknown ones count as missing),
// or a Float64Array with NaN for missing: numbers, or the places of levels. What was computed for some patients is kept
// for the next question about them. Nothing here touches a page: it runs in workers, and outside of browsers, too.
"use strict";

const dcsurvArithmetic = (() => {
  // A tensor is {data, shape}; numbers lie row by row, and the patients, where there are any, are the first axis.
  const tensor = (data, shape) => ({ data, shape });
  const size = (shape) => shape.reduce((product, length) => product * length, 1);
  const like = (a) => tensor(new Float64Array(a.data.length), a.shape);
  const last = (a) => (a.shape.length ? a.shape[a.shape.length - 1] : 1);

  // --- operations on two tensors --------------------------------------------------------------------------------

  // One loop each, over `n` numbers from `i` and `j` on in steps of 0 or 1: a shared loop that calls a function for
  // every number would take several times as long.
  const pairs = {
    Add(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = a[i] + b[j]; },
    Sub(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = a[i] - b[j]; },
    Mul(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = a[i] * b[j]; },
    Div(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = a[i] / b[j]; },
    Min(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = Math.min(a[i], b[j]); },
    Max(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = Math.max(a[i], b[j]); },
    Less(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = a[i] < b[j] ? 1 : 0; },
    Equal(o, k, a, i, p, b, j, q, n) { for (let e = k + n; k < e; k++, i += p, j += q) o[k] = a[i] === b[j] ? 1 : 0; },
  };

  const sameShape = (a, b) => a.length === b.length && a.every((length, axis) => length === b[axis]);

  function broadcastShape(a, b) {
    const rank = Math.max(a.length, b.length);
    const out = new Array(rank);
    for (let axis = 0; axis < rank; axis++) {
      const p = a[axis - rank + a.length] ?? 1;
      const q = b[axis - rank + b.length] ?? 1;
      out[axis] = p === 1 ? q : p;
    }
    return out;
  }

  // How far one step along each axis of `shape` leads in a tensor of the shape `own`: 0 where it is repeated.
  function strides(own, shape) {
    const out = new Array(shape.length).fill(0);
    let step = 1;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      const length = own[axis - shape.length + own.length] ?? 1;
      out[axis] = length === 1 ? 0 : step;
      step *= length;
    }
    return out;
  }

  // Call `row(k, i, j)` for every run along the last axis of the common shape: where it begins in each of the three.
  function eachRun(shape, p, q, row) {
    const inner = shape[shape.length - 1];
    const outer = shape.length - 1;
    const at = new Array(outer).fill(0);
    let i = 0;
    let j = 0;
    for (let k = 0, total = size(shape); k < total; k += inner) {
      row(k, i, j);
      for (let axis = outer - 1; axis >= 0; axis--) {
        i += p[axis];
        j += q[axis];
        if (++at[axis] < shape[axis]) break;
        i -= p[axis] * shape[axis];
        j -= q[axis] * shape[axis];
        at[axis] = 0;
      }
    }
  }

  function pair(loop, a, b) {
    if (a.data.length === 1 && b.data.length > 1 && a.shape.length <= b.shape.length) {
      const out = like(b);
      loop(out.data, 0, a.data, 0, 0, b.data, 0, 1, b.data.length);
      return out;
    }
    if (sameShape(a.shape, b.shape) || (b.data.length === 1 && b.shape.length <= a.shape.length)) {
      const out = like(a);
      loop(out.data, 0, a.data, 0, 1, b.data, 0, b.data.length === 1 ? 0 : 1, a.data.length);
      return out;
    }
    const shape = broadcastShape(a.shape, b.shape);
    const out = tensor(new Float64Array(size(shape)), shape);
    const p = strides(a.shape, shape);
    const q = strides(b.shape, shape);
    const inner = shape.length - 1;
    eachRun(shape, p, q, (k, i, j) => loop(out.data, k, a.data, i, p[inner], b.data, j, q[inner], shape[inner]));
    return out;
  }

  function spread(a, shape) {
    return sameShape(a.shape, shape) ? a : pair(pairs.Add, a, tensor(new Float64Array(size(shape)), shape));
  }

  function where(condition, a, b) {
    const shape = broadcastShape(broadcastShape(condition.shape, a.shape), b.shape);
    const [asked, yes, no] = [condition, a, b].map((one) => spread(one, shape));
    const out = tensor(new Float64Array(asked.data.length), shape);
    for (let k = 0; k < out.data.length; k++) out.data[k] = asked.data[k] === 1 ? yes.data[k] : no.data[k];
    return out;
  }

  // --- operations on one tensor ---------------------------------------------------------------------------------

  const singles = {
    Neg(o, a) { for (let k = 0; k < o.length; k++) o[k] = -a[k]; },
    Exp(o, a) { for (let k = 0; k < o.length; k++) o[k] = Math.exp(a[k]); },
    Log(o, a) { for (let k = 0; k < o.length; k++) o[k] = Math.log(a[k]); },
    Sqrt(o, a) { for (let k = 0; k < o.length; k++) o[k] = Math.sqrt(a[k]); },
    Abs(o, a) { for (let k = 0; k < o.length; k++) o[k] = Math.abs(a[k]); },
    Relu(o, a) { for (let k = 0; k < o.length; k++) o[k] = a[k] > 0 ? a[k] : 0; },
    Sigmoid(o, a) { for (let k = 0; k < o.length; k++) o[k] = 1 / (1 + Math.exp(-a[k])); },
    Tanh(o, a) { for (let k = 0; k < o.length; k++) o[k] = Math.tanh(a[k]); },
    Single(o, a) { for (let k = 0; k < o.length; k++) o[k] = Math.fround(a[k]); },
    IsNaN(o, a) { for (let k = 0; k < o.length; k++) o[k] = a[k] === a[k] ? 0 : 1; },
  };

  function single(loop, a) {
    const out = like(a);
    loop(out.data, a.data);
    return out;
  }

  function cumSum(a) {
    const out = like(a);
    const width = last(a);
    for (let k = 0; k < out.data.length; k++) out.data[k] = (k % width ? out.data[k - 1] : 0) + a.data[k];
    return out;
  }

  function runningMin(a) {
    const out = like(a);
    const width = last(a);
    for (let k = 0; k < out.data.length; k++) {
      out.data[k] = k % width && out.data[k - 1] < a.data[k] ? out.data[k - 1] : a.data[k];
    }
    return out;
  }

  function lead(a, { value }) {
    const width = last(a);
    const rows = a.data.length / width;
    const out = new Float64Array(rows * (width + 1));
    for (let row = 0; row < rows; row++) {
      out[row * (width + 1)] = value;
      out.set(a.data.subarray(row * width, (row + 1) * width), row * (width + 1) + 1);
    }
    return tensor(out, [...a.shape.slice(0, -1), width + 1]);
  }

  const reshape = (a, { shape }) => tensor(a.data, [a.data.length / size(shape), ...shape]);

  // --- operations along the last axis ---------------------------------------------------------------------------

  function matMul(a, b) {
    const [depth, width] = b.shape;
    const rows = a.data.length / depth;
    const out = new Float64Array(rows * width);
    const x = a.data;
    const w = b.data;
    const used = new Int32Array(depth); // after Relu every other factor is 0, and need not be multiplied
    for (let row = 0; row < rows; row++) {
      const from = row * depth;
      const to = row * width;
      let count = 0;
      for (let k = 0; k < depth; k++) if (x[from + k] !== 0) used[count++] = k;
      let at = 0;
      for (; at + 3 < count; at += 4) {
        // Four at a time: a sum is fetched and put back once for all of them.
        const [k0, k1, k2, k3] = [used[at], used[at + 1], used[at + 2], used[at + 3]];
        const [f0, f1, f2, f3] = [x[from + k0], x[from + k1], x[from + k2], x[from + k3]];
        const [w0, w1, w2, w3] = [k0 * width, k1 * width, k2 * width, k3 * width];
        for (let j = 0; j < width; j++) {
          out[to + j] += f0 * w[w0 + j] + f1 * w[w1 + j] + f2 * w[w2 + j] + f3 * w[w3 + j];
        }
      }
      for (; at < count; at++) {
        const factor = x[from + used[at]];
        const begin = used[at] * width;
        for (let j = 0; j < width; j++) out[to + j] += factor * w[begin + j];
      }
    }
    return tensor(out, [...a.shape.slice(0, -1), width]);
  }

  function gather(a, places) {
    const width = last(a);
    const rows = a.data.length / width;
    const count = places.data.length;
    const out = new Float64Array(rows * count);
    for (let row = 0; row < rows; row++) {
      for (let k = 0; k < count; k++) out[row * count + k] = a.data[row * width + places.data[k]];
    }
    return tensor(out, [...a.shape.slice(0, -1), ...places.shape]);
  }

  function concat(...parts) {
    const rows = parts[0].data.length / last(parts[0]);
    const width = parts.reduce((sum, part) => sum + last(part), 0);
    const out = new Float64Array(rows * width);
    let begin = 0;
    for (const part of parts) {
      const own = last(part);
      for (let row = 0; row < rows; row++) {
        for (let k = 0; k < own; k++) out[row * width + begin + k] = part.data[row * own + k];
      }
      begin += own;
    }
    return tensor(out, [...parts[0].shape.slice(0, -1), width]);
  }

  function count(a, ascending, { below }) {
    const out = like(a);
    const points = ascending.data;
    for (let k = 0; k < out.data.length; k++) {
      const x = a.data[k];
      let low = 0;
      let high = points.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (below ? points[middle] < x : points[middle] <= x) low = middle + 1;
        else high = middle;
      }
      out.data[k] = low;
    }
    return out;
  }

  function chebyshev(a, coefficients) {
    const out = like(a);
    const c = coefficients.data;
    for (let k = 0; k < out.data.length; k++) {
      const x = a.data[k];
      let one = 0;
      let two = 0;
      for (let degree = c.length - 1; degree > 0; degree--) [one, two] = [2 * x * one - two + c[degree], one];
      out.data[k] = x * one - two + c[0];
    }
    return out;
  }

  // --- trees and recurrent layers -------------------------------------------------------------------------------

  // The left child of a node is the next one. Where a node asks for the block of time, the blocks before the cut go
  // left and the others wait, so that a way through a tree is gone once for all blocks that it does not part.
  function trees(a, start, feature, right, value, { blocks, columns }) {
    const rows = a.data.length / columns;
    const x = a.data;
    const [first, asked, skip] = [start, feature, right].map((one) => (one.whole ??= Int32Array.from(one.data)));
    const held = value.data;
    const out = new Float64Array(rows * blocks);
    const waiting = [];
    for (let tree = 0; tree + 1 < first.length; tree++) {
      for (let row = 0; row < rows; row++) {
        const from = row * columns;
        const to = row * blocks;
        let node = first[tree];
        let begin = 0;
        let end = blocks;
        for (;;) {
          const which = asked[node];
          if (which < 0) {
            for (let block = begin; block < end; block++) out[to + block] += held[node];
            if (waiting.length === 0) break;
            [node, begin, end] = waiting.pop();
          } else if (which < columns) {
            node += x[from + which] <= held[node] ? 1 : skip[node];
          } else {
            const cut = Math.floor(held[node]) + 1;
            if (cut >= end) {
              node += 1;
            } else if (cut <= begin) {
              node += skip[node];
            } else {
              waiting.push([node + skip[node], cut, end]);
              end = cut;
              node += 1;
            }
          }
        }
      }
    }
    return tensor(out, [rows, blocks]);
  }

  function lstm(a, kernel, { backwards }) {
    const [rows, steps, width] = a.shape;
    const units = width / 4;
    const w = kernel.data;
    const out = new Float64Array(rows * steps * units);
    const gates = new Float64Array(width);
    const cell = new Float64Array(units);
    const sigmoid = (x) => 1 / (1 + Math.exp(-x));
    for (let row = 0; row < rows; row++) {
      cell.fill(0);
      for (let step = 0; step < steps; step++) {
        const at = row * steps + (backwards ? steps - 1 - step : step);
        const before = (backwards ? at + 1 : at - 1) * units;
        gates.set(a.data.subarray(at * width, (at + 1) * width));
        for (let k = 0; step > 0 && k < units; k++) {
          const hidden = out[before + k];
          for (let j = 0; j < width; j++) gates[j] += hidden * w[k * width + j];
        }
        for (let k = 0; k < units; k++) {
          cell[k] = sigmoid(gates[units + k]) * cell[k] + sigmoid(gates[k]) * Math.tanh(gates[2 * units + k]);
          out[at * units + k] = sigmoid(gates[3 * units + k]) * Math.tanh(cell[k]);
        }
      }
    }
    return tensor(out, [rows, steps, units]);
  }

  const operations = {
    Where: where, CumSum: cumSum, RunningMin: runningMin, Lead: lead, Reshape: reshape, MatMul: matMul,
    Gather: gather, Concat: concat, Count: count, Chebyshev: chebyshev, Trees: trees, Lstm: lstm,
  };
  for (const [name, loop] of Object.entries(pairs)) operations[name] = (a, b) => pair(loop, a, b);
  for (const [name, loop] of Object.entries(singles)) operations[name] = (a) => single(loop, a);

  // --- the graph ------------------------------------------------------------------------------------------------

  const TYPES = {
    int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array,
    float32: Float32Array, float64: Float64Array,
  };
  // Of up to so many patients at once everything is kept; of more, what no later question needs is let go.
  const FEW = 16;

  function readArrays(description, bytes) {
    const block = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
    return description.arrays.map(([type, shape, offset]) => {
      const Type = TYPES[type];
      const copy = block.slice(offset, offset + size(shape) * Type.BYTES_PER_ELEMENT);
      return tensor(Float64Array.from(new Type(copy.buffer)), shape);
    });
  }

  class Graph {
    constructor(description, bytes) {
      this.arrays = readArrays(description, bytes);
      this.outputs = description.outputs;
      this.nodes = description.nodes.map(([operation, ...operands]) => {
        const name = description.operations[operation];
        const attributes = typeof operands[operands.length - 1] === "object" ? operands.pop() : null;
        if (name !== "Constant" && name !== "Input" && !(name in operations)) {
          throw new Error(`this model needs the operation ${name}, which is not known here.`);
        }
        return { name, operands, attributes, varies: false, kept: false };
      });
      // What changes with the times and the level of a question; what it is made of, and does not change, is kept.
      for (const node of this.nodes) {
        if (node.name === "Constant") continue;
        const asked = node.name === "Input" && ["times", "level"].includes(node.attributes.name);
        node.varies = asked || node.operands.some((one) => this.nodes[one].varies);
      }
      for (const node of this.nodes) {
        if (!node.varies || node.name === "Constant") continue;
        for (const one of node.operands) this.nodes[one].kept = true;
      }
      for (const one of Object.values(this.outputs)) this.nodes[one].kept = true;
    }

    // Compute outputs by name; `known` holds what was computed before, by node, and receives what is to be kept.
    run(names, inputs, known, rows) {
      const values = new Map();
      const find = (number) => {
        const node = this.nodes[number];
        return node.name === "Constant" ? this.arrays[node.operands[0]] : known.get(number) ?? values.get(number);
      };
      const missing = new Set();
      const asked = names.map((name) => this.outputs[name]);
      while (asked.length) {
        const number = asked.pop();
        if (missing.has(number) || find(number) !== undefined) continue;
        missing.add(number);
        if (this.nodes[number].name !== "Input") asked.push(...this.nodes[number].operands);
      }
      const order = [...missing].sort((a, b) => a - b);
      const uses = new Map();
      for (const number of order) {
        for (const one of this.nodes[number].operands) uses.set(one, (uses.get(one) ?? 0) + 1);
      }
      for (const number of order) {
        const node = this.nodes[number];
        const given = node.attributes === null ? [] : [node.attributes];
        const value =
          node.name === "Input"
            ? inputs(node.attributes.name)
            : operations[node.name](...node.operands.map(find), ...given);
        if (!node.varies && (node.kept || rows <= FEW)) known.set(number, value);
        else values.set(number, value);
        if (node.name === "Input") continue;
        for (const one of node.operands) {
          uses.set(one, uses.get(one) - 1);
          if (uses.get(one) === 0 && !names.some((name) => this.outputs[name] === one)) values.delete(one);
        }
      }
      return names.map((name) => find(this.outputs[name]).data);
    }
  }

  // --- patients -------------------------------------------------------------------------------------------------

  // A level as text, as Python writes it.
  const levelText = (value) => (value === true ? "True" : value === false ? "False" : String(value));

  function readColumn(feature, values) {
    if (values === undefined) throw new Error(`there is no column ${feature.name}.`);
    if (values instanceof Float64Array) return values;
    const places = feature.levels && new Map(feature.levels.map((level, place) => [level, place]));
    return Float64Array.from(values, (value) => {
      if (value === null || value === undefined || Number.isNaN(value)) return NaN;
      return places ? places.get(levelText(value)) ?? NaN : Number(value);
    });
  }

  function joined(parts) {
    const out = new Float64Array(parts.reduce((sum, part) => sum + part.length, 0));
    let begin = 0;
    for (const part of parts) {
      out.set(part, begin);
      begin += part.length;
    }
    return out;
  }

  class Patients {
    constructor(model, columns) {
      this.model = model;
      const read = model.features.map((feature) => readColumn(feature, columns[feature.name]));
      this.count = read.length ? read[0].length : 0;
      this.pieces = [];
      for (let begin = 0; begin < this.count; begin += model.rows) {
        const rows = Math.min(model.rows, this.count - begin);
        const inputs = new Map(
          model.features.map((feature, k) => [feature.value, tensor(read[k].subarray(begin, begin + rows), [rows])]),
        );
        this.pieces.push({ rows, inputs, known: new Map() });
      }
    }

    // Outputs of the graph for all patients, one array each.
    outputs(names, times = [], level = 0.9) {
      const asked = {
        times: tensor(Float64Array.from(times), [times.length]),
        level: tensor(Float64Array.of(level), []),
      };
      const found = this.pieces.map(({ rows, inputs, known }) =>
        this.model.graph.run(names, (name) => inputs.get(name) ?? asked[name], known, rows),
      );
      return names.map((_, k) => joined(found.map((piece) => piece[k])));
    }

    survival(times) {
      return this.outputs(["survival"], times)[0];
    }

    band(times, level) {
      if (!this.model.hasBand) throw new Error("this model has no band.");
      const [survival, lower, upper] = this.outputs(["survival", "lower", "upper"], times, level);
      return { survival, lower, upper };
    }

    followedTo() {
      return this.outputs(["followed_to"])[0];
    }

    median() {
      return this.firstAt(this.model.medianLevel);
    }

    timeLower(confidence) {
      const { bounds } = this.model;
      if (!bounds) throw new Error("this model has no bounds of times.");
      // Levels are kept for multiples of half a percent of the patients whose time may lie outside.
      const place = Math.floor((1 - confidence) / 0.005 + 1e-9) - 1;
      if (place < 0) return new Float64Array(this.count);
      const reached = this.firstAt(bounds.early[place]);
      const [groups] = this.outputs(["group"]);
      return reached.map((time, k) => {
        const end = bounds.until[groups[k]];
        return Number.isNaN(time) ? end : Math.min(time, end);
      });
    }

    // The first time at which each curve, before the maps after reading, is at or below a level.
    firstAt(level) {
      const { knots, interpolation } = this.model;
      const [curve] = this.outputs(["curve"]);
      const logarithmic = interpolation === "constant_hazard";
      const scaled = logarithmic ? (s) => Math.log(Math.max(s, 1e-12)) : (s) => s;
      const bound = logarithmic ? Math.log(Math.max(level, 1e-12)) : level;
      const out = new Float64Array(this.count).fill(NaN);
      for (let row = 0; row < this.count; row++) {
        for (let k = 0; k < knots.length; k++) {
          const below = scaled(curve[row * knots.length + k]);
          if (below > bound) continue;
          out[row] = knots[k];
          if (k > 0 && interpolation !== "step") {
            const above = scaled(curve[row * knots.length + k - 1]);
            const share = (above - bound) / (above - below);
            out[row] = Math.min(knots[k - 1] + (knots[k] - knots[k - 1]) * share, knots[k]);
          }
          break;
        }
      }
      return out;
    }

    // The area below each curve up to a time: exact, or by the trapezoid rule where maps bend it between knots.
    mean(end) {
      const { knots, interpolation, maps } = this.model;
      const times = maps
        ? Array.from({ length: INTERVALS + 1 }, (_, k) => (end / INTERVALS) * k)
        : [...knots.filter((time) => time < end), end];
      const survival = this.survival(times);
      const out = new Float64Array(this.count);
      for (let row = 0; row < this.count; row++) {
        for (let k = 0; k + 1 < times.length; k++) {
          const before = survival[row * times.length + k];
          const after = survival[row * times.length + k + 1];
          let height = (before + after) / 2;
          if (!maps && interpolation === "step") height = before;
          if (!maps && interpolation === "constant_hazard") {
            const drop = Math.log(Math.max(before, 1e-12) / Math.max(after, 1e-12));
            height = drop < 1e-9 ? before : (before - after) / drop;
          }
          out[row] += (times[k + 1] - times[k]) * height;
        }
      }
      return out;
    }
  }

  // Of the trapezoid rule; as many as `dcsurv predict` takes.
  const INTERVALS = 256;

  class Model {
    constructor(description, bytes) {
      if (description.format !== 1) throw new Error(`the format ${description.format} is not known here, only 1.`);
      this.kind = description.kind;
      this.about = description.about;
      this.features = description.features;
      this.graph = new Graph(description, bytes);
      this.rows = description.rows;
      this.knots = this.graph.arrays[description.knots].data;
      this.interpolation = description.interpolation;
      this.maps = description.maps;
      this.medianLevel = description.median_level;
      this.hasBand = "lower" in description.outputs;
      this.hasInterval = description.bounds !== null;
      this.bounds = this.hasInterval && {
        early: this.graph.arrays[description.bounds.early].data,
        until: this.graph.arrays[description.bounds.until].data,
      };
    }

    patients(columns) {
      return new Patients(this, columns);
    }
  }

  return { open: (description, bytes) => new Model(description, bytes) };
})();

globalThis.dcsurvArithmetic = dcsurvArithmetic;
