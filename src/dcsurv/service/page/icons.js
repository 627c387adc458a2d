"use strict";
// One hundred people in ten rows; those with the event are filled, from the first row on.
const Icons = (() => {
  const PERSON = "M8 1.5a3 3 0 1 1 0 6a3 3 0 1 1 0-6zM3.2 16.5v-4a4 4 0 0 1 4-4h1.6a4 4 0 0 1 4 4v4z";

  function draw(share, kind) {
    const count = Math.round(100 * share);
    const namespace = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(namespace, "svg");
    svg.setAttribute("viewBox", "0 0 160 180");
    svg.setAttribute("class", `icons ${kind}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", Words.say("icons", { n: Words.number(count) }));
    for (let k = 0; k < 100; k += 1) {
      const path = document.createElementNS(namespace, "path");
      path.setAttribute("d", PERSON);
      path.setAttribute("transform", `translate(${16 * (k % 10)} ${18 * Math.floor(k / 10)})`);
      if (k < count) path.setAttribute("class", "filled");
      svg.append(path);
    }
    return svg;
  }

  return { draw };
})();
