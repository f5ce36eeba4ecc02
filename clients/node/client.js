// Requests to the HTTP API: pushes, and what workers send.

import { setTimeout as pause } from "node:timers/promises";

const PAUSE_MIN_S = 0.1;
const PAUSE_MAX_S = 5;
/** Failures of `fetch` before the request is sent. */
const NOT_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

/** A request was not carried out, or nobody knows whether it was. */
export class SeriatimError extends Error {
  name = this.constructor.name;
}

/** The server refused the request: `status`, `detail`, and `field`, the name of what is wrong, if there is one. */
export class Problem extends SeriatimError {
  constructor(request, status, document, retryAfter) {
    const place = document.field ? `\`${document.field}\`: ` : "";
    super(`${request}: ${status} ${document.title ?? ""}: ${place}${document.detail ?? ""}`);
    Object.assign(this, { status, document, retryAfter, detail: document.detail, field: document.field });
  }
}

/** No answer. `sent` is false if the request did not reach the server; otherwise it may have been carried out. */
export class Unreachable extends SeriatimError {
  constructor(request, cause) {
    super(`${request}: no answer: ${cause.cause?.message || cause.cause?.code || cause.message}`, { cause });
    this.sent = !NOT_SENT.includes(cause.cause?.code);
  }
}

export class Client {
  constructor(url = "http://127.0.0.1:7117", options = {}) {
    if (!/^https?:\/\//.test(url)) throw new TypeError(`url is "${url}": it must start with http:// or https://`);
    this.url = `${url.replace(/\/$/, "")}/api/v1`;
    Object.assign(this, withDefaults(options, { token: process.env.SERIATIM_TOKEN, timeout: 10, retryFor: 10 }));
  }

  async push(queue, payload, fields = {}) {
    return (await this.pushAll(queue, [{ payload, ...fields }]))[0];
  }

  async pushAll(queue, jobs) {
    // Repeated after an answer that was lost, jobs without these keys would be pushed twice.
    const safe = jobs.every((job) => job.idempotency_key);
    const answer = await this.call("POST", `/queues/${encodeURIComponent(queue)}/jobs`, jobs, { safe });
    if (answer.created) console.error(`queue "${queue}" did not exist and was created`);
    return answer.jobs;
  }

  async pushAndWait(queue, payload, { wait = 20, ...fields } = {}) {
    const path = `/queues/${encodeURIComponent(queue)}/jobs?wait=${Math.round(wait * 1000)}ms`;
    const options = { safe: Boolean(fields.idempotency_key), timeout: this.timeout + wait };
    return (await this.call("POST", path, { payload, ...fields }, options)).job;
  }

  job(jobId, { wait = 0 } = {}) {
    const query = wait ? `?wait=${Math.round(wait * 1000)}ms` : "";
    const options = { safe: true, timeout: this.timeout + wait };
    return this.call("GET", `/jobs/${encodeURIComponent(jobId)}${query}`, undefined, options);
  }

  cancel(jobId) {
    return this.call("POST", `/jobs/${encodeURIComponent(jobId)}/cancel`, undefined, { safe: true });
  }

  async call(method, path, body, { safe = false, timeout = this.timeout, retryFor = this.retryFor } = {}) {
    const deadline = performance.now() + retryFor * 1000;
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#once(method, path, body, timeout);
      } catch (error) {
        const wait = pauseAfter(error, attempt);
        if (!mayRepeat(error, safe) || performance.now() + wait > deadline) throw error;
        await pause(wait);
      }
    }
  }

  async #once(method, path, body, timeout) {
    const request = `${method} ${this.url}${path}`;
    const headers = { "Content-Type": "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    // It takes whole numbers only.
    const signal = AbortSignal.timeout(Math.ceil(timeout * 1000));
    // The API never redirects: an answer that does is a proxy's, and a problem.
    const redirect = "manual";
    const options = { method, headers, signal, redirect, body: body && JSON.stringify(body) };
    let answer, document;
    try {
      answer = await fetch(this.url + path, options);
      const text = await answer.text();
      // A proxy answers errors with a page of its own.
      document = answer.ok ? JSON.parse(text) : problemOf(text);
    } catch (error) {
      throw new Unreachable(request, error);
    }
    if (answer.ok) return document;
    const asked = answer.headers.get("retry-after");
    const retryAfter = /^\d+$/.test(asked) ? Number(asked) : undefined;
    throw new Problem(request, answer.status, { title: answer.statusText, ...document }, retryAfter);
  }
}

/** Refuses options that there are not. */
export function withDefaults(options, defaults) {
  const unknown = Object.keys(options).find((name) => !(name in defaults));
  if (unknown) throw new TypeError(`option "${unknown}" is unknown: there are ${Object.keys(defaults).join(", ")}`);
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...defaults, ...Object.fromEntries(given) };
}

/** Whether to send a request again: if it was certainly not carried out, or if a second time does no harm. */
export function mayRepeat(error, safe) {
  if (error instanceof Problem) return error.status === 429 || (safe && error.status >= 500);
  return error instanceof Unreachable && (safe || !error.sent);
}

/** Milliseconds: what the server asked for, otherwise longer each time. A random part keeps clients apart. */
export function pauseAfter(error, attempt) {
  const wait = error.retryAfter ?? Math.min(PAUSE_MIN_S * 2 ** attempt, PAUSE_MAX_S);
  return wait * 1000 * (1 + Math.random() / 2);
}

function problemOf(text) {
  try {
    const document = JSON.parse(text);
    if (document && typeof document === "object") return document;
  } catch {}
  return { detail: text.slice(0, 200) };
}
