"use strict";
// The engine of the calculator in one file: the model is in this page and computed here. Nothing is sent anywhere.
// Computing happens beside the page, in a worker, so that it never stands still; where a browser allows none, in it.
const inPage = (() => {
  // What a worker runs: the scripts of this page that define these names.
  const NEEDED = ["dcsurvArithmetic", "dcsurvReading", "dcsurvAsking", "dcsurvShapley", "dcsurvAnswering"];

  /** Computes in a worker; each question has a number, by which its answer is known. */
  class Aside {
    constructor(text) {
      const scripts = [...document.scripts].map((one) => one.textContent);
      const sources = NEEDED.map((name) => scripts.find((code) => code.includes(`\nconst ${name} = `)));
      const url = URL.createObjectURL(new Blob([...sources, "\ndcsurvAnswering.listen();"], { type: "text/javascript" }));
      this.worker = new Worker(url);
      this.asked = new Map();
      this.number = 0;
      this.worker.onmessage = ({ data }) => {
        const { resolve, reject } = this.asked.get(data.number);
        this.asked.delete(data.number);
        if (data.problem) reject(new dcsurvAsking.Problem(data.problem.status, data.problem.detail, data.problem.errors));
        else resolve(data.answer);
      };
      this.opened = new Promise((resolve, reject) => {
        this.worker.onerror = (event) => {
          event.preventDefault();
          reject(new Error(event.message || "no worker"));
        };
        this.ask("open", text).then(resolve, reject);
      });
    }

    ask(what, request) {
      const number = this.number++;
      return new Promise((resolve, reject) => {
        this.asked.set(number, { resolve, reject });
        this.worker.postMessage({ number, what, request });
      });
    }
  }

  /** Computes in the page itself. */
  class Here {
    constructor(text) {
      this.opened = dcsurvAnswering.open(text).then((answers) => {
        this.answers = answers;
        return answers.card;
      });
    }

    async ask(what, request) {
      await this.opened;
      await new Promise((resolve) => setTimeout(resolve)); // let the page draw what it says of waiting
      return this.answers[what](request);
    }
  }

  async function beside(text) {
    try {
      const found = new Aside(text);
      await found.opened;
      return found;
    } catch (error) {
      if (error instanceof dcsurvAsking.Problem) throw error;
      const found = new Here(text);
      await found.opened;
      return found;
    }
  }

  /** Return the engine of the model in `text`, the packed data of service/calculator.py. */
  return (text) => {
    const model = beside(text);
    model.catch(() => {}); // whoever asks hears of it
    const card = () => model.then((one) => one.opened);
    return {
      models: async () => {
        const { name, version, digest, title, kind } = await card();
        return { models: [{ name, version, digest, title, kind, default: true }] };
      },
      card,
      predict: async (request) => (await model).ask("predict", request),
      explain: async (request) => (await model).ask("explain", request),
    };
  };
})();

window.dcsurvEngine = inPage(JSON.parse(document.getElementById("packed").textContent));
