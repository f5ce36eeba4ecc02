// What the tests of the clients run: pushes, a remote worker or a process worker in JavaScript.

import { appendFileSync, existsSync } from "node:fs";
import { mock } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as seriatim from "../../../../clients/node/index.js";

const { Client, ProcessWorker, RemoteWorker, bury, cancel, done, release, snooze } = seriatim;

async function handle(lane) {
  for (const [number, job] of lane.jobs.entries()) {
    const told = job.payload;
    appendFileSync("seen", `${lane.key} ${told.name} ${lane.attempt}\n`);
    lane.progress({ percent: 40 });
    if (["steps", "crash"].includes(told.do)) {
      const one = await lane.step("one", () => note(lane, "one"));
      if (lane.attempt === 1) {
        if (told.do === "crash") process.exit(9);
        throw new Error("told to fail");
      }
      await lane.step("two", async () => note(lane, `two after ${one.noted}`));
    }
    for (let number = 0; told.do === "stepping" && number < 1000; number++) {
      await lane.step(`${number}`, () => number === 0 && note(lane, "step"));
      await sleep(50);
    }
    if (told.do === "fail" && lane.attempt === 1) throw new Error("told to fail");
    if (told.do === "snooze" && !existsSync("go")) return snooze(0.1);
    if (told.do === "bury") return bury("told to bury", number);
    if (told.do === "bytes") throw new Error("caf\ud83d");
    while (["wait", "release"].includes(told.do) && !existsSync("go")) {
      if (lane.cancelled(job)) return cancel("as asked");
      if (told.do === "release" && lane.stopping()) return release();
      await sleep(10);
    }
    if (told.do === "return") return done({ sum: 6 });
    if (told.do === "long") return done("x".repeat(70_000));
    if (told.do === "plain") return 42;
    if (told.do === "odd") return { outcome: "explode" };
  }
  console.log("done:", lane.key);
}

function note(lane, what) {
  appendFileSync("seen", `${lane.key} ${what} ${lane.attempt}\n`);
  return { noted: what };
}

const tell = (what) => console.log(JSON.stringify(what));

async function push(url) {
  const client = new Client(url, { retryFor: 60 });
  const once = { key: "k", idempotency_key: "once" };
  tell((await client.push("orders", { name: 1 }, once)).status);
  tell((await client.push("orders", { name: 1 }, once)).status);
  const late = (name) => ({ key: "k", payload: { name }, delay: "1h", priority: 3 });
  const jobs = await client.pushAll("orders", [2, 3].map(late));
  tell(await Promise.all(jobs.map(async ({ job_id }) => (await client.job(job_id)).priority)));
  tell((await client.cancel(jobs[1].job_id)).status);
  tell((await client.pushAndWait("orders", { name: 4 }, { wait: 0.05, key: "k", delay: "1h" })).status);
  tell((await client.job(jobs[1].job_id, { wait: 60 })).status);
  const nobody = new Client("http://127.0.0.1:2", { retryFor: 0.2 });
  for (const wrong of [() => client.push("orders", {}, { kee: "k" }), () => nobody.job("1")]) {
    await wrong().catch((error) => {
      if (error instanceof seriatim.Problem) tell([error.status, error.field]);
      else if (error instanceof seriatim.Unreachable) tell([error.sent]);
      else throw error;
    });
  }
}

function options() {
  for (const wrong of [0, -1, "4", 1001]) {
    try {
      new RemoteWorker(new Client(), "orders", handle, { concurrency: wrong });
    } catch (error) {
      if (error instanceof RangeError) tell(error.message);
      else throw error;
    }
  }
}

/**
 * A server that hands over these lanes one by one, and hears nothing of them until they end. Its first so many answers to an
 * end are that the lane is busy.
 */
async function outage(names, lease, busy = 0) {
  let soon;
  const next = ({ wait_ms }) => {
    soon = Number.isInteger(wait_ms) && wait_ms <= (lease * 1000) / 3;
    if (names.length === 0) worker.stop();
    const fields = { lane: "1-0-1", token: 1, secret: "s", crashes: 0, jobs: [{ job_id: "a" }, { job_id: "b" }] };
    return names.splice(0, 1).map((key) => ({ ...fields, key }));
  };
  const call = async (_method, path, body) => {
    if (path === "/work/claim") return { lanes: next(body) };
    if (path === "/work/heartbeat" && lease < 1) throw new seriatim.Unreachable(path, new Error("away"));
    if (path === "/work/heartbeat") return { cancel: [{ lane: "1-0-1", job_ids: ["a", "b"] }], lost: [], steps: [] };
    tell([soon, body.results[0].outcome, body.results[0].done]);
    return { results: [{ status: busy-- > 0 ? "busy" : "ok" }] };
  };
  const worker = new RemoteWorker({ call }, "orders", doubt, { lease });
  await worker.run();
}

/** A server that is away when its lanes end, and is back for the last words of the worker: it takes one at a time. */
async function away(count) {
  const fields = { token: 1, secret: "s", key: "k", crashes: 0, jobs: [{ job_id: "a" }] };
  const lanes = Array.from({ length: count }, (_, number) => ({ lane: `1-0-${number}`, ...fields }));
  let [isBack, waiting, left] = [undefined, 0, count];
  const back = new Promise((resolve) => (isBack = resolve));
  const call = async (_method, path, body, { retryFor }) => {
    if (path === "/work/claim") return { lanes: lanes.splice(0) };
    if (retryFor === Infinity) {
      if (++waiting === count) worker.stop();
      await back;
      return { results: [{ status: "stale" }] };
    }
    if (body.results.length > 1) throw new seriatim.Problem(path, 413, {});
    tell(body.results[0].outcome);
    if (--left === 0) isBack();
    return { results: [{ status: "ok" }] };
  };
  const worker = new RemoteWorker({ call }, "orders", () => {}, { concurrency: count, stopTimeout: 0 });
  await worker.run();
}

/** A server that refuses the end of its lane with these statuses, one after the other. */
async function refusing(statuses) {
  const lanes = [{ lane: "1-0-1", token: 1, secret: "s", key: "k", crashes: 0, jobs: [{ job_id: "a" }] }];
  const call = async (_method, path, body) => {
    if (path === "/work/claim" && lanes.length === 0) worker.stop();
    if (path === "/work/claim") return { lanes: lanes.splice(0, 1) };
    if (path === "/work/heartbeat") return { cancel: [], lost: [] };
    tell([body.results[0].outcome, body.results[0].error ?? null]);
    if (statuses.length > 0) throw new seriatim.Problem(path, statuses.shift(), { title: "refused" }, 0);
    return { results: [{ status: "ok" }] };
  };
  const worker = new RemoteWorker({ call }, "orders", () => {});
  await worker.run();
}

/** A server that refuses progress with this status. Of two lanes, one reports too much, and then less. */
async function strict(status) {
  const fields = { token: 1, secret: "s", key: "k", crashes: 0, jobs: [{ job_id: "a" }] };
  const lanes = [0, 1].map((number) => ({ lane: `1-0-${number}`, ...fields }));
  const call = async (_method, path, body) => {
    if (path === "/work/claim") return { lanes: lanes.splice(0) };
    if (path === "/work/settle") return { results: [{ status: "ok" }] };
    const reported = body.claims.map((claim) => "progress" in claim);
    tell(reported);
    if (reported.includes(true)) throw new seriatim.Problem(path, status, { field: "claims[0].progress" });
    return { cancel: [], lost: [], steps: [] };
  };
  let isHeard;
  const heard = new Promise((resolve) => (isHeard = resolve));
  const handle = async (lane) => {
    if (lane.lane === "1-0-0") return report(lane, heard);
    mock.timers.tick(5_000);
    // By then all that the heartbeat sends is sent.
    await new Promise(setImmediate);
    isHeard();
    worker.stop();
  };
  const worker = new RemoteWorker({ call }, "orders", handle, { concurrency: 2 });
  await worker.run();
}

async function report(lane, heard) {
  try {
    lane.progress("x".repeat(65_535));
  } catch (error) {
    if (error instanceof RangeError) tell(error.message);
    else throw error;
  }
  lane.progress("x".repeat(65_534));
  await heard;
}

/** A server that answers the first heartbeat of a lane when ten are due. */
async function slow() {
  mock.timers.enable({ apis: ["setInterval"] });
  const lanes = [{ lane: "1-0-1", token: 1, secret: "s", key: "k", crashes: 0, jobs: [{ job_id: "a" }] }];
  let [beats, answer] = [0];
  const answered = new Promise((resolve) => (answer = resolve));
  const call = async (_method, path) => {
    if (path === "/work/claim") return { lanes: lanes.splice(0, 1) };
    if (path === "/work/settle") return { results: [{ status: "ok" }] };
    beats++;
    await answered;
    return { cancel: [], lost: [], steps: [] };
  };
  const handle = async () => {
    mock.timers.tick(50_000);
    answer();
    // By then all that waited for it are sent.
    await new Promise(setImmediate);
    worker.stop();
  };
  const worker = new RemoteWorker({ call }, "orders", handle);
  await worker.run();
  tell(beats);
}

async function doubt(lane) {
  while (lane.key !== "named" && !lane.cancelled()) await sleep(1);
  if (lane.key !== "asks") await lane.step("one", () => {});
  if (lane.cancelled(lane.jobs[1])) return cancel("as asked", 1);
}

const [what, url, lease] = process.argv.slice(2);
if (what === "push") await push(url);
else if (what === "redirected") {
  const client = new Client(url, { token: "secret", retryFor: 0 });
  await client.push("orders", {}).catch((problem) => tell(problem.status));
} else if (what === "options") options();
else if (what === "doubt") {
  await outage(["asks", "steps"], 0.03);
  await outage(["named"], 600);
} else if (what === "busy") await outage(["named"], 600, 1200);
else if (what === "away") await away(1);
else if (what === "apart") await away(2);
else if (what === "strict") {
  mock.timers.enable({ apis: ["setInterval"] });
  for (const status of [400, 413, 503]) await strict(status);
} else if (what === "refused") await refusing([401, 403, 413]);
else if (what === "slow") await slow();
else if (what === "process") await new ProcessWorker(handle).run();
else await new RemoteWorker(new Client(url), "orders", handle, { concurrency: 2, lease: +lease, wait: 1 }).run();
