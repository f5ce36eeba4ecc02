// A program of `seriatim serve`: calls on stdin, answers on stdout (docs/workers.md, "Processes").

import { Lane, NOBODY, outcomeOf } from "./lane.js";

export class ProcessWorker {
  #calls = new Map();
  /** By lane: what waits for the answer to a message about a step. */
  #asked = new Map();
  #write = process.stdout.write.bind(process.stdout);

  constructor(handle) {
    this.handle = handle;
  }

  async run() {
    process.stdout.on("error", () => {}); // The node is gone, which the end of stdin says too.
    // Whatever else is printed goes to stderr, which Seriatim logs.
    process.stdout.write = process.stderr.write.bind(process.stderr);
    for await (const line of lines(process.stdin)) {
      const message = JSON.parse(line);
      if (message.type === "perform") {
        this.#perform(message.batch, message.lanes);
      } else if (message.type === "step") {
        this.#asked.get(`${message.batch} ${message.lane}`)?.(message);
      } else if (message.type === "cancel") {
        const lane = this.#calls.get(message.batch)?.find((lane) => lane.lane === message.lane);
        if (lane) Lane.heard(lane, { cancelled: message.job_ids });
      } else if (message.type === "shutdown") {
        return;
      }
    }
    // The node is gone: nobody hears the answers.
    for (const lane of [...this.#calls.values()].flat()) Lane.heard(lane, { lost: true });
    for (const answer of this.#asked.values()) answer(NOBODY);
  }

  /** Tells of a step, and waits for the answer. */
  #ask(batch, lane, { name, done, ...ended }) {
    if (Lane.isLost(lane)) return NOBODY;
    return new Promise((resolve) => {
      this.#asked.set(`${batch} ${lane.lane}`, resolve);
      this.#send({ type: done ? "step_done" : "step", batch, lane: lane.lane, step: name, ...ended });
    });
  }

  async #perform(batch, documents) {
    const report = (lane) => (progress) => this.#send({ type: "progress", batch, lane, progress });
    const ask = (lane, step) => this.#ask(batch, lane, step);
    const lanes = documents.map((document) => new Lane(document, report(document.lane), ask));
    this.#calls.set(batch, lanes);
    const results = [];
    for (const lane of lanes) results.push({ lane: lane.lane, ...(await outcomeOf(this.handle, lane)) });
    this.#calls.delete(batch);
    for (const { lane } of lanes) this.#asked.delete(`${batch} ${lane}`);
    this.#send({ type: "result", batch, results });
  }

  #send(message) {
    this.#write(`${JSON.stringify(message)}\n`);
  }
}

/** Not `readline`, which also splits at U+2028, a character like any other in JSON. */
async function* lines(stream) {
  let rest = "";
  for await (const chunk of stream.setEncoding("utf8")) {
    const parts = (rest + chunk).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}
