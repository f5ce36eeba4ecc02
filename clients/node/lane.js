// The jobs of one key, and what a handler makes of them.

import { inspect } from "node:util";

export const done = (result) => (result === undefined ? { outcome: "done" } : { outcome: "done", result });
export const retry = (error, after = null, done = 0) => ({ outcome: "retry", error: text(error), retry_in: after, done });
export const snooze = (after, done = 0) => ({ outcome: "snooze", retry_in: after, done });
export const bury = (error, done = 0) => ({ outcome: "bury", error: text(error), done });
export const cancel = (reason = "", done = 0) => ({ outcome: "cancel", error: text(reason), done });
export const release = (done = 0) => ({ outcome: "release", done });

/** For the server and the engine. */
const PROGRESS_BYTES_MAX = 65_536;

/** A cut text may end with half a character, and the server refuses it. */
const text = (error) => String(error?.message ?? error).replace(/\p{Surrogate}/gu, "\ufffd");

export class Lane {
  #report;
  #abort = new AbortController();
  #cancelled = new Set();
  #lost = false;
  /** Whether `cancelled` has said so although perhaps nobody cancelled anything. */
  #doubted = false;
  #stopping;
  #ask;
  /** When the claim ends unless it is extended: then another worker may have the lane. */
  #until = Infinity;

  constructor(document, report, ask, stopping = () => false) {
    Object.assign(this, document);
    this.#report = report;
    this.#ask = ask;
    this.#stopping = stopping;
  }

  get signal() {
    return this.#abort.signal;
  }

  payloads() {
    return this.jobs.map((job) => job.payload);
  }

  cancelled(job) {
    if (this.#lost || performance.now() > this.#until) return (this.#doubted = true);
    return (job ? [job] : this.jobs).every(({ job_id }) => this.#cancelled.has(job_id));
  }

  stopping() {
    return this.#stopping();
  }

  progress(progress) {
    const text = JSON.stringify(progress);
    const bytes = Buffer.byteLength(text);
    if (bytes > PROGRESS_BYTES_MAX) {
      throw new RangeError(`progress has ${bytes} bytes as JSON; at most ${PROGRESS_BYTES_MAX} are kept`);
    }
    this.#report(JSON.parse(text));
  }

  async step(name, run) {
    if (this.cancelled()) throw new Stopped("cancelled", name);
    const told = await this.#ask(this, { name });
    if (told.state === "stop") throw new Stopped(told.why, name);
    if (told.state === "done") return told.result;
    // As JSON gives it back: later runs see the same.
    const result = JSON.parse(JSON.stringify((await run()) ?? null));
    await this.#ask(this, { name, done: true, result });
    return result;
  }

  /** For workers: what they have heard of the lane. */
  static heard(lane, { cancelled = [], lost = false, until }) {
    cancelled.forEach((id) => lane.#cancelled.add(id));
    lane.#lost ||= lost;
    lane.#until = until ?? lane.#until;
    if (lane.cancelled()) lane.#abort.abort();
  }

  static isLost = (lane) => lane.#lost;

  static until = (lane) => lane.#until;

  /** A claim that only may be lost goes back: if nobody cancelled the jobs, they run again. */
  static ended = (lane, outcome) =>
    lane.#doubted && outcome.outcome === "cancel" ? release(outcome.done ?? 0) : outcome;
}

/** The lane is cancelled, or its worker stops: ends the handler between two steps. */
class Stopped extends Error {
  constructor(why, name) {
    super(`${why} before step ${JSON.stringify(name)}`);
    this.outcome = why === "stopping" ? release() : cancel(this.message);
  }
}

/** The answer to a step of a lane that is cancelled or lost. */
export const NOBODY = { state: "stop", why: "cancelled" };

let warned = false;

/** Once: many handlers return what nobody needs. */
function warnOf(answer) {
  if (warned || answer === undefined || answer === null) return;
  warned = true;
  const shown = inspect(answer, { depth: 0, maxStringLength: 30, breakLength: Infinity }).slice(0, 60);
  console.error(`the handler returned ${shown}, which is not an outcome: use done(${shown}) to keep it as the result`);
}

/** Runs the handler. What is not an outcome is done, and dropped; an exception is a retry with its text. */
export async function outcomeOf(handle, lane) {
  try {
    const answer = await handle(lane);
    if (typeof answer?.outcome === "string") return JSON.parse(JSON.stringify(answer));
    warnOf(answer);
    return done();
  } catch (error) {
    if (error instanceof Stopped) return error.outcome;
    console.error(`the handler of lane ${lane.lane} (key ${JSON.stringify(lane.key)}) failed:`, error);
    return retry(String(error));
  }
}
