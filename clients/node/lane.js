// The jobs of one key, and what a handler makes of them.

export const done = () => ({ outcome: "done" });
export const retry = (error, after = null, done = 0) => ({ outcome: "retry", error: text(error), retry_in: after, done });
export const snooze = (after, done = 0) => ({ outcome: "snooze", retry_in: after, done });
export const bury = (error, done = 0) => ({ outcome: "bury", error: text(error), done });
export const cancel = (reason = "", done = 0) => ({ outcome: "cancel", error: text(reason), done });
export const release = (done = 0) => ({ outcome: "release", done });

const text = (error) => String(error?.message ?? error);

export class Lane {
  #report;
  #abort = new AbortController();
  #cancelled = new Set();
  #lost = false;
  #stopping;
  /** When the claim ends unless it is extended: then another worker may have the lane. */
  #until = Infinity;

  constructor(document, report, stopping = () => false) {
    Object.assign(this, document);
    this.#report = report;
    this.#stopping = stopping;
  }

  get signal() {
    return this.#abort.signal;
  }

  payloads() {
    return this.jobs.map((job) => job.payload);
  }

  cancelled(job) {
    if (this.#lost || performance.now() > this.#until) return true;
    return (job ? [job] : this.jobs).every(({ job_id }) => this.#cancelled.has(job_id));
  }

  stopping() {
    return this.#stopping();
  }

  progress(progress) {
    this.#report(JSON.parse(JSON.stringify(progress)));
  }

  /** For workers: what they have heard of the lane. */
  static heard(lane, { cancelled = [], lost = false, until }) {
    cancelled.forEach((id) => lane.#cancelled.add(id));
    lane.#lost ||= lost;
    lane.#until = until ?? lane.#until;
    if (lane.cancelled()) lane.#abort.abort();
  }

  static isLost = (lane) => lane.#lost;
}

/** Runs the handler. What is not an outcome is done, and an exception a retry with its text. */
export async function outcomeOf(handle, lane) {
  try {
    const answer = await handle(lane);
    return typeof answer?.outcome === "string" ? JSON.parse(JSON.stringify(answer)) : done();
  } catch (error) {
    console.error(`the handler of lane ${lane.lane} (key ${JSON.stringify(lane.key)}) failed:`, error);
    return retry(String(error));
  }
}
