#!/usr/bin/env node
// A remote worker for Seriatim in one file, without dependencies (Node 18 or newer).
//
//     node worker.mjs http://127.0.0.1:7117 orders [--until-empty]
//
// It claims lanes (a lane is a key with its jobs), extends its claims by heartbeats, and settles each lane with
// an outcome. Put your own work into `perform`. Set SERIATIM_TOKEN if the API requires a token.

import { hostname } from "node:os";

const LEASE_S = 60;
const LIMIT = 10;
const WAIT_MS = 20_000;

const [url, queues, ...flags] = process.argv.slice(2);
const untilEmpty = flags.includes("--until-empty");
const worker = `${hostname()}-${process.pid}`;

// Does the work of one lane: jobs of one key, in order. `cancelled` has the ids of jobs to cancel.
// `lane.token` is a fencing token: it only grows for a key, so that your other systems can refuse writes with
// an older one.
async function perform(lane, cancelled) {
  for (const job of lane.jobs) {
    if (cancelled.has(job.job_id)) continue;
    if (job.payload?.fail) throw new Error("told to fail");
    console.log(lane.queue, lane.key, JSON.stringify(job.payload));
  }
}

async function call(what, body) {
  const headers = { "Content-Type": "application/json" };
  if (process.env.SERIATIM_TOKEN) headers.Authorization = `Bearer ${process.env.SERIATIM_TOKEN}`;
  const answer = await fetch(`${url.replace(/\/$/, "")}/api/v1/work/${what}`, {
    method: "POST",
    headers,
    body: JSON.stringify({ worker, ...body }),
    signal: AbortSignal.timeout(WAIT_MS + 30_000),
  });
  if (answer.ok) return answer.json();
  const error = new Error(`${answer.status}: ${await answer.text()}`);
  error.status = answer.status;
  throw error;
}

// Identifies a claim in requests. The secret proves that it is ours: do not log it.
const named = ({ lane, token, secret }) => ({ lane, token, secret });

async function work(lanes) {
  const held = new Map(lanes.map((lane) => [lane.lane, named(lane)]));
  const [cancelled, lost] = [new Set(), new Set()];
  const pulse = setInterval(async () => {
    try {
      const answer = await call("heartbeat", { claims: [...held.values()] });
      answer.lost.forEach((lane) => lost.add(lane));
      answer.cancel.forEach((notice) => notice.job_ids.forEach((id) => cancelled.add(id)));
    } catch (error) {
      console.error("heartbeat:", error.message);
    }
  }, (LEASE_S * 1000) / 3);
  try {
    for (const lane of lanes) {
      if (lost.has(lane.lane)) continue; // Another worker has it now and our result would be refused.
      const result = { ...named(lane), outcome: "done" };
      try {
        await perform(lane, cancelled);
      } catch (error) {
        Object.assign(result, { outcome: "retry", error: String(error) });
      }
      const answer = await call("settle", { results: [result] });
      held.delete(lane.lane);
      if (answer.results[0].status === "stale") console.error("lost", lane.key, "to another worker");
    }
  } finally {
    clearInterval(pulse);
  }
}

for (;;) {
  try {
    const claim = { queues: queues.split(","), limit: LIMIT, lease_ttl_sec: LEASE_S };
    const { lanes } = await call("claim", { ...claim, wait_ms: untilEmpty ? 0 : WAIT_MS });
    if (lanes.length > 0) await work(lanes);
    else if (untilEmpty) break;
  } catch (error) {
    if (![429, 503].includes(error.status)) throw error;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}
