"use strict";
// The engine of the served page: asks the service that the page came from.
const overHttp = (base = "") => {
  let token = ""; // in memory only

  async function ask(path, model, body) {
    const query = model ? `?${new URLSearchParams({ model: model.name, version: model.version })}` : "";
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    // What a proxy in front asked the reader for, such as a password, goes along; the service itself sets no cookies.
    const options = { headers, cache: "no-store", credentials: "same-origin", referrerPolicy: "no-referrer" };
    if (body) {
      headers["Content-Type"] = "application/json";
      Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    }
    let answer;
    try {
      answer = await fetch(`${base}v1/${path}${query}`, options);
    } catch {
      throw { status: 0, detail: "", errors: [] };
    }
    const document = await answer.json().catch(() => ({}));
    if (answer.ok) return document;
    throw { status: answer.status, detail: document.detail || answer.statusText, errors: document.errors || [] };
  }

  return {
    models: () => ask("models"),
    card: (model) => ask("model", model),
    predict: (request, model) => ask("predict", model, request),
    explain: (request, model) => ask("explain", model, request),
    unlock: (given) => { token = given; },
  };
};
window.dcsurvEngine = overHttp();
