"use strict";
// The survival curve as SVG: axes, bands, lines that are dashed beyond the follow-up, and a mark to read it by.
const Curve = (() => {
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const HEIGHT = 300, LEFT = 40, RIGHT = 14, TOP = 28, BOTTOM = 44;

  function add(parent, name, attributes, text) {
    const element = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  // Unit of the axis, and its ticks as [time in the model's unit, label].
  function ticks(last, unit, room) {
    const days = unit ? last * Words.DAYS[unit] : 0;
    const shown = !unit ? "plain" : days > 2 * 365.25 ? "years" : days > 100 ? "months" : unit === "weeks" ? "weeks" : "days";
    const scale = unit ? Words.DAYS[shown] / Words.DAYS[unit] : 1;
    const most = Math.max(3, Math.floor(room / 60));
    const power = 10 ** Math.floor(Math.log10(last / scale / most));
    const steps = shown === "months" ? [1, 2, 3, 6, 12, 24] : [1, 2, 5, 10, 20, 50].map((one) => one * power);
    const whole = shown === "plain" ? steps : steps.filter((one) => one >= 1);
    const step = whole.find((one) => last / scale / one <= most) || whole[whole.length - 1];
    const count = Math.floor(last / scale / step + 1e-9);
    return { shown, marks: Array.from({ length: count + 1 }, (_, k) => [k * step * scale, Words.number(k * step, 6)]) };
  }

  // `lines`: [{ times, curve, followed, kind: "now" | "then", name }], the last on top.
  function draw(place, lines, unit, title, given) {
    const width = given || Math.max(280, Math.round(place.clientWidth) || 600);
    const last = Math.max(...lines.map((one) => one.times[one.times.length - 1]));
    const x = (time) => LEFT + (time / last) * (width - LEFT - RIGHT);
    const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
    const svg = document.createElementNS(NAMESPACE, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", Words.say("curve_name"));
    add(svg, "text", { x: 0, y: 14, class: "axis-title" }, title);
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      add(svg, "line", { x1: LEFT, x2: width - RIGHT, y1: y(share), y2: y(share), class: share ? "grid" : "axis" });
      add(svg, "text", { x: LEFT - 8, y: y(share) + 4, class: "end" }, Words.number(100 * share));
    }
    const axis = ticks(last, unit, width - LEFT - RIGHT);
    for (const [time, label] of axis.marks) {
      add(svg, "line", { x1: x(time), x2: x(time), y1: y(0), y2: y(0) + 5, class: "axis" });
      add(svg, "text", { x: x(time), y: y(0) + 20, class: "middle" }, label);
    }
    add(svg, "text", { x: width - RIGHT, y: HEIGHT - 6, class: "end axis-title" }, Words.axisUnit(axis.shown));
    const cursor = add(svg, "line", { x1: 0, x2: 0, y1: y(1), y2: y(0), class: "cursor" });
    for (const one of lines) {
      const points = one.times.map((time, k) => [x(time), k]);
      if (one.curve.lower) {
        const above = points.map(([at, k]) => `${at},${y(one.curve.upper[k])}`);
        const below = points.map(([at, k]) => `${at},${y(one.curve.lower[k])}`).reverse();
        add(svg, "polygon", { points: [...above, ...below].join(" "), class: `band ${one.kind}` });
      }
    }
    for (const one of lines) {
      const path = (from, to) => one.times.slice(from, to).map((time, k) => `${x(time)},${y(one.curve.survival[from + k])}`).join(" ");
      const beyond = one.followed === null ? one.times.length : one.times.findIndex((time) => time > one.followed);
      const seen = beyond < 0 ? one.times.length : beyond;
      add(svg, "polyline", { points: path(0, seen), class: `line ${one.kind}` });
      if (seen < one.times.length) add(svg, "polyline", { points: path(Math.max(0, seen - 1)), class: `line dashed ${one.kind}` });
      const end = one.curve.survival.length - 1;
      if (lines.length > 1) {
        const other = lines.find((two) => two !== one).curve.survival[end];
        const up = one.curve.survival[end] > other || (one.curve.survival[end] === other && one.kind === "now");
        add(svg, "text", { x: width - RIGHT, y: y(one.curve.survival[end]) + (up ? -9 : 19), class: `end name ${one.kind}` }, one.name);
      }
    }
    place.replaceChildren(svg);
    const span = width - LEFT - RIGHT;
    return {
      last,
      mark(time) { cursor.setAttribute("x1", x(time)); cursor.setAttribute("x2", x(time)); },
      timeAt(event) {
        const box = svg.getBoundingClientRect();
        return Math.min(1, Math.max(0, ((event.clientX - box.left) * (width / box.width) - LEFT) / span)) * last;
      },
      ticks: axis.marks.map(([time]) => time),
    };
  }

  // A curve at any of its times, straight between those that were asked for.
  function at(times, values, time) {
    const k = times.findIndex((one) => one >= time);
    if (k <= 0) return values[k < 0 ? values.length - 1 : 0];
    const share = (time - times[k - 1]) / (times[k] - times[k - 1]);
    return values[k - 1] + share * (values[k] - values[k - 1]);
  }

  return { draw, at };
})();
