/** A JSON value. */
export type Json = unknown;
/** `"250ms"`, `"10s"`, `"5m"`, `"1h"`, `"3d"`, or seconds. */
export type Duration = string | number;

/** Fields of a pushed job, as on the wire. docs/http.md ("Pushing") describes them; the server refuses others. */
export interface Fields {
  key?: string | number;
  score?: number;
  task?: string;
  delay?: Duration;
  /** RFC 3339, or Unix seconds. */
  run_at?: string | number;
  priority?: number;
  /** The group of the key, such as a tenant, in a queue with `groups`. */
  group?: string;
  max_retries?: number;
  timeout?: Duration;
  expires_at?: string | number;
  idempotency_key?: string;
  /** Where it is unique: for its queue and key (default), or in the whole store. */
  idempotency_scope?: "key" | "store";
  [field: string]: Json;
}

export interface Pushed {
  job_id: string;
  /** `throttled`: refused, as its key is throttled; `job_id` is the job that came before. */
  status: "queued" | "merged" | "duplicate" | "throttled";
  /** If the key is throttled: when it may be pushed again, in RFC 3339. */
  again_at?: string;
}

export interface CallOptions {
  /** The request may be repeated although it may have been carried out. */
  safe?: boolean;
  timeout?: number;
  retryFor?: number;
}

export class Client {
  /**
   * `token` defaults to the variable SERIATIM_TOKEN. `timeout` limits one attempt of a request, and `retryFor` is how
   * long a request that is safe to repeat is repeated, both in seconds (10).
   */
  constructor(url?: string, options?: { token?: string; timeout?: number; retryFor?: number });
  push(queue: string, payload?: Json, fields?: Fields): Promise<Pushed>;
  /** Pushes all jobs or none. */
  pushAll(queue: string, jobs: (Fields & { payload?: Json })[]): Promise<Pushed[]>;
  /**
   * Pushes one job, waits until it has ended, but no longer than `wait` seconds (20, at most 60), and resolves to it as `job`
   * does, with its `status` and `error`, and its `result` if there is one. The queue must keep finished jobs (`retain_completed`).
   */
  pushAndWait(queue: string, payload?: Json, fields?: Fields & { wait?: number }): Promise<Record<string, any>>;
  /** All that is known of a job: now, or when it has ended, but no later than after `wait` seconds (at most 60). */
  job(jobId: string, options?: { wait?: number }): Promise<Record<string, any>>;
  /** Cancels a waiting job; the handler of a running one is told. */
  cancel(jobId: string): Promise<Record<string, any>>;
  /** Any request of the API, as `call("GET", "/queues")`. */
  call(method: string, path: string, body?: Json, options?: CallOptions): Promise<any>;
}

/** A request was not carried out, or nobody knows whether it was. */
export class SeriatimError extends Error {}
/** The server refused the request. */
export class Problem extends SeriatimError {
  status: number;
  detail: string;
  /** The name of what is wrong, if there is one. */
  field?: string;
  document: Record<string, any>;
  retryAfter?: number;
}
/** No answer. `sent` is false if the request did not reach the server; otherwise it may have been carried out. */
export class Unreachable extends SeriatimError {
  sent: boolean;
}

export interface LaneJob {
  job_id: string;
  score: number;
  payload: any;
  consumer_group?: string;
  build?: string;
  group?: string;
  partition_key?: string;
  producer?: string;
  consumer?: string;
  traceparent?: string;
  batch?: string;
  /** The batch whose callback it is, and how its jobs ended. */
  ended_batch?: { id: string; done: number; dead: number; cancelled: number };
}

/** The jobs of one key, with the fields of docs/workers.md ("The call"), among them these. */
export class Lane {
  lane: string;
  queue: string;
  key: string | null;
  /** Only grows for a key: send it with your writes, so that the receiver can refuse stale ones. */
  token: number;
  task: string | null;
  attempt: number;
  retry_count: number;
  crashes: number;
  max_retries: number;
  first_attempt_at: string | null;
  /** In order. */
  jobs: LaneJob[];
  /** Aborted when all jobs are cancelled, the time is up, or the claim is lost. */
  readonly signal: AbortSignal;
  payloads(): any[];
  /**
   * Whether `job` is cancelled; without `job`: whether all are. All are when the time is up or the claim is lost. From a
   * remote worker, `cancel` then only releases the lane.
   */
  cancelled(job?: LaneJob): boolean;
  /** Whether the remote worker stops. Finish within its `stopTimeout`, or return `release(done)`. */
  stopping(): boolean;
  /** Reports progress: any JSON value of at most 64 KiB, which replaces the one before. */
  progress(progress: Json): void;
  /** Runs a step and resolves to its result as JSON; if it ended in an earlier run, only resolves to the result. Ends the
   * handler if the lane is cancelled or the worker stops. */
  step(name: string, run: () => unknown): Promise<any>;
}

/** The first `done` jobs are done; the outcome is the next one's. */
export interface Outcome {
  outcome: "done" | "retry" | "snooze" | "bury" | "cancel" | "release";
  error?: string;
  retry_in?: number | null;
  done?: number;
  result?: unknown;
}

/** The lane is done; so is a handler that returns nothing. `result`, any JSON value of at most 64 KiB, is for those who wait for its jobs. */
export function done(result?: unknown): Outcome;
/** A failure: again after `after` seconds, or after the queue's backoff. An exception does the same. */
export function retry(error: unknown, after?: number | null, done?: number): Outcome;
/** Again after `after` seconds; not a failure. */
export function snooze(after: number, done?: number): Outcome;
/** To the morgue, the dead-letter queue. */
export function bury(error: unknown, done?: number): Outcome;
/** Cancelled. */
export function cancel(reason?: unknown, done?: number): Outcome;
/** Back to the queue, uncounted. Remote workers only: use it when `lane.stopping()`. */
export function release(done?: number): Outcome;

/** What is not an outcome is done, and dropped. */
export type Handler = (lane: Lane) => unknown;

export interface RemoteOptions {
  /** Lanes at a time, a whole number from 1 on (1). */
  concurrency?: number;
  /** Seconds that a claim lasts from its last heartbeat (60). */
  lease?: number;
  /** Seconds that a claim request waits for work, at most a third of `lease`; so does a stop (5). */
  wait?: number;
  /** Seconds that handlers may run on after SIGTERM; then their lanes are released (25). */
  stopTimeout?: number;
  /** Its name among the nodes (host and process id). */
  name?: string;
  /** Consumer groups whose jobs it also takes; it always takes jobs without one. */
  consumerGroups?: string[];
  /** The build that this worker runs: it gets jobs that ask for it too. */
  build?: string;
}

/** Claims lanes over HTTP. Handlers share one thread: one that blocks it for `lease` loses its claims. */
export class RemoteWorker {
  constructor(client: Client, queues: string | string[], handle: Handler, options?: RemoteOptions);
  /** Works until `stop`, SIGTERM or SIGINT (a second one ends the process). Throws if the server refuses the claims. */
  run(): Promise<void>;
  /** Claims no more; `run` returns when the handlers have ended, or after `stopTimeout`. */
  stop(): void;
}

/** A program of `seriatim serve`. Calls run in parallel, as many as its `concurrency` allows. */
export class ProcessWorker {
  constructor(handle: Handler);
  /** Returns after `shutdown`, or when stdin has ended. */
  run(): Promise<void>;
}
