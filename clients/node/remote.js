// A worker that claims lanes over HTTP (docs/http.md, "Remote workers").

import { hostname } from "node:os";
import { setTimeout as rest } from "node:timers/promises";
import { inspect } from "node:util";
import { mayRepeat, pauseAfter, Problem, withDefaults } from "./client.js";
import { Lane, NOBODY, outcomeOf, release, retry } from "./lane.js";

const HEARTBEAT_MAX_S = 5;
/** Of one claim, for the server. */
const LANES_MAX = 1000;
const RELEASE_S = 2;
const SIGNALS = ["SIGTERM", "SIGINT"];

export class RemoteWorker {
  /** Lanes in work, with their claims. */
  #running = new Map();
  /** Of those whose handler has ended. */
  #outcomes = new Map();
  #stopping = false;
  #stoppedAt = 0;
  #failures = 0;
  #unknown = "";
  #wake = () => {};
  /** The end of the last heartbeat. */
  #said = Promise.resolve();
  #isBeating = false;

  constructor(client, queues, handle, options = {}) {
    const name = `${hostname()}-${process.pid}`;
    const defaults = { concurrency: 1, lease: 60, wait: 5, stopTimeout: 25, name, consumerGroups: undefined, build: undefined };
    Object.assign(this, withDefaults(options, defaults), { client, handle });
    if (!Number.isInteger(this.concurrency) || this.concurrency < 1 || this.concurrency > LANES_MAX) {
      throw new RangeError(`concurrency must be a whole number from 1 to ${LANES_MAX}, not ${inspect(this.concurrency)}`);
    }
    this.queues = [queues].flat();
  }

  stop() {
    this.#stopping = true;
    this.#stoppedAt = performance.now();
    this.#wake();
  }

  async run() {
    const stop = () => {
      // A second signal ends the process.
      SIGNALS.forEach((name) => process.off(name, stop));
      this.stop();
    };
    SIGNALS.forEach((name) => process.on(name, stop));
    const pulse = setInterval(() => this.#beat(), Math.min(this.lease / 3, HEARTBEAT_MAX_S) * 1000);
    try {
      while (!this.#stopping) await this.#take();
    } finally {
      await this.#end();
      clearInterval(pulse);
      SIGNALS.forEach((name) => process.off(name, stop));
    }
  }

  /** Waits until a lane has ended, the worker stops, or the time is up. */
  async #sleep(ms) {
    let timer;
    await new Promise((resolve) => {
      this.#wake = resolve;
      if (ms !== undefined) timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
  }

  async #take() {
    const running = [...this.#running.keys()];
    // A lane that crashed before runs as the last one claimed: it would take others with it.
    if (running.length >= this.concurrency || running.some((lane) => lane.crashes > 0)) return this.#sleep();
    const sentAt = performance.now();
    const limit = this.concurrency - running.length;
    // The time of the claim counts from `sentAt`.
    const wait_ms = Math.floor(Math.min(this.wait, this.lease / 3) * 1000);
    const bound = { consumer_groups: this.consumerGroups, build: this.build };
    const body = { queues: this.queues, ...bound, limit, lease_ttl_sec: this.lease, wait_ms };
    let answer;
    try {
      answer = await this.#call("/work/claim", body, { timeout: this.wait + 10, retryFor: 0 });
    } catch (error) {
      if (!mayRepeat(error, true)) throw error;
      if (this.#failures === 0) console.error("cannot claim, trying again:", error.message);
      if (!this.#stopping) await this.#sleep(pauseAfter(error, this.#failures++));
      return;
    }
    this.#failures = 0;
    const unknown = (answer.unknown_queues ?? []).join(", ");
    if (unknown && unknown !== this.#unknown) console.error("queues that do not exist (the first push creates them):", unknown);
    this.#unknown = unknown;
    for (const document of answer.lanes) this.#perform(document, sentAt);
    this.#heed(answer);
  }

  /** Ends if an operator asks for it. A worker that is to be quiet just gets no lanes. */
  #heed({ command }) {
    if (command !== "stop" || this.#stopping) return;
    console.error("stopping: an operator asked for it");
    this.stop();
  }

  async #perform({ secret, ...document }, sentAt) {
    const claim = { lane: document.lane, token: document.token, secret };
    const ask = (lane, step) => this.#ask(lane, step);
    const lane = new Lane(document, (progress) => (claim.progress = progress), ask, () => this.#stopping);
    Lane.heard(lane, { until: sentAt + this.lease * 1000 });
    for (const older of this.#running.keys()) {
      // Its lease ended, and this worker has it again.
      if (older.lane === lane.lane) Lane.heard(older, { lost: true });
    }
    this.#running.set(lane, claim);
    // What came with the last claim, during a stop, goes back.
    const outcome = this.#stopping ? release() : Lane.ended(lane, await outcomeOf(this.handle, lane));
    this.#outcomes.set(lane, outcome);
    try {
      await this.#settleOne(lane, outcome);
    } catch (error) {
      console.error(`the result of ${about(lane)} is lost, it runs again:`, error.message);
    }
    this.#running.delete(lane);
    this.#outcomes.delete(lane);
    this.#wake();
  }

  /** A refused token may be known in a moment: tried again until this lease would end. */
  async #settleOne(lane, outcome) {
    let until;
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#settle([[lane, outcome]], Infinity);
      } catch (error) {
        const wait = pauseAfter(error, attempt);
        until ??= Lane.until(lane);
        const isRefused = error instanceof Problem && [401, 403].includes(error.status);
        if (!isRefused || Lane.isLost(lane) || performance.now() + wait > until) throw error;
        if (attempt === 0) console.error(`cannot settle ${about(lane)}, trying again:`, error.message);
        await rest(wait);
      }
    }
  }

  /** After a refusal: half of them at a time; what is refused alone is a failure. */
  async #settleApart(outcomes, refusal, retryFor) {
    if (outcomes.length > 1) {
      const middle = Math.floor(outcomes.length / 2);
      await this.#settle(outcomes.slice(0, middle), retryFor);
      return this.#settle(outcomes.slice(middle), retryFor);
    }
    for (const [lane, { outcome }] of outcomes) {
      // Without what it refused, which may be long.
      const place = refusal.field ? `${refusal.field}: ` : "";
      const why = `${place}${refusal.detail || refusal.document.title}`;
      const refused = `the server refused the outcome \`${outcome}\`: ${why}`;
      await this.#settle([[lane, retry(refused)]], retryFor, true);
    }
  }

  async #settle(outcomes, retryFor, isRefusal = false) {
    outcomes = outcomes.filter(([lane]) => this.#running.has(lane));
    const results = outcomes.map(([lane, outcome]) => ({ ...proof(this.#running.get(lane)), ...outcome }));
    // A second settle of a claim changes nothing: it is stale.
    let answer;
    try {
      answer = await this.#call("/work/settle", { results }, { safe: true, retryFor });
    } catch (error) {
      if (!(error instanceof Problem && [400, 413].includes(error.status)) || isRefusal) throw error;
      return this.#settleApart(outcomes, error, retryFor);
    }
    answer.results.forEach(({ status }, i) => {
      if (status === "stale") console.error(`the claim of ${about(outcomes[i][0])} was lost, or settled before`);
    });
    // The server waits with the answer while there are no others.
    const busy = outcomes.filter((_, i) => answer.results[i].status === "busy");
    if (busy.length > 0) await this.#settle(busy, retryFor, isRefusal);
  }

  async #beat() {
    const lanes = [...this.#running].filter(([lane]) => !Lane.isLost(lane));
    // Those that wait behind a slow one would be ever more, and those of new lanes ever later.
    if (lanes.length === 0 || this.#isBeating) return;
    this.#isBeating = true;
    await this.#keep(lanes);
    this.#isBeating = false;
  }

  /** Sends a heartbeat. If progress may be why it failed, it is sent again without: no lease must end for that. */
  async #keep(lanes) {
    try {
      await this.#say(lanes, { timeout: this.lease / 3, retryFor: 0 });
    } catch (error) {
      console.error("a heartbeat failed:", error.message);
      const hasProgress = lanes.some(([, claim]) => "progress" in claim);
      for (const [lane, claim] of lanes) {
        delete claim.progress;
        Lane.heard(lane, {});
      }
      // A connection may break while a body is sent that is too large.
      if (hasProgress && (!(error instanceof Problem) || [400, 413].includes(error.status))) {
        await this.#keep(lanes.map(([lane, claim]) => [lane, proof(claim)]));
      }
    }
  }

  /** Sends a heartbeat for these lanes after those before it: steps and progress of a lane must not overtake each other. */
  async #say(lanes, options) {
    const before = this.#said;
    let ends;
    this.#said = new Promise((resolve) => (ends = resolve));
    await before;
    try {
      const sentAt = performance.now();
      const claims = lanes.map(([, claim]) => ({ ...claim }));
      const answer = await this.#call("/work/heartbeat", { claims, lease_ttl_sec: this.lease }, { safe: true, ...options });
      const cancelled = new Map(answer.cancel.map((notice) => [notice.lane, notice.job_ids]));
      lanes.forEach(([lane, claim], i) => {
        if (claim.progress === claims[i].progress) delete claim.progress;
        const lost = answer.lost.includes(lane.lane);
        Lane.heard(lane, { cancelled: cancelled.get(lane.lane), lost, until: sentAt + this.lease * 1000 });
      });
      this.#heed(answer);
      return answer;
    } finally {
      ends();
    }
  }

  /** Tells of a step with a heartbeat, whose answer says what to do. */
  async #ask(lane, step) {
    const claim = this.#running.get(lane);
    if (!claim) return NOBODY;
    const options = { timeout: this.lease / 3, retryFor: this.lease };
    const [told] = (await this.#say([[lane, { ...claim, step }]], options)).steps ?? [];
    if (!told || (!step.done && lane.cancelled())) return NOBODY;
    return told.state === "run" && this.#stopping ? { state: "stop", why: "stopping" } : told;
  }

  async #end() {
    if (!this.#stopping) this.stop();
    const deadline = this.#stoppedAt + this.stopTimeout * 1000;
    while (this.#running.size > 0 && performance.now() < deadline) await this.#sleep(deadline - performance.now());
    const left = [...this.#running.keys()];
    if (left.length === 0) return;
    // Those that have ended: the server was away since then.
    const ended = [...this.#outcomes];
    const running = left.filter((lane) => !this.#outcomes.has(lane)).map((lane) => [lane, release()]);
    if (running.length > 0) console.error(`released lanes that did not end in time: ${running.length}`);
    for (const some of [running, ended].filter((some) => some.length > 0)) {
      try {
        await this.#settle(some, RELEASE_S);
      } catch (error) {
        console.error("cannot release lanes: they run again when their leases end:", error.message);
      }
    }
    for (const lane of left) Lane.heard(lane, { lost: true });
  }

  #call(path, body, options) {
    return this.client.call("POST", path, { worker: this.name, ...body }, options);
  }
}

/** Names a claim. Its secret proves that it is ours: do not log it. */
const proof = ({ lane, token, secret }) => ({ lane, token, secret });

const about = (lane) => `lane ${lane.lane} (key ${JSON.stringify(lane.key)})`;
