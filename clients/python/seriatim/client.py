"""Requests to the HTTP API: pushes, and what workers send."""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Optional, TypedDict

log = logging.getLogger("seriatim")

PAUSE_MIN_S = 0.1
PAUSE_MAX_S = 5.0


class SeriatimError(Exception):
    """A request was not carried out, or nobody knows whether it was."""


class Problem(SeriatimError):
    """The server refused the request: `status`, `detail`, and `field`, the name of what is wrong, if there is one."""

    def __init__(self, request: str, status: int, document: dict[str, Any], retry_after: Optional[float] = None):
        self.status, self.document, self.retry_after = status, document, retry_after
        self.detail, self.field = document.get("detail", ""), document.get("field")
        place = f"`{self.field}`: " if self.field else ""
        super().__init__(f"{request}: {status} {document.get('title', '')}: {place}{self.detail}")


class Unreachable(SeriatimError):
    """No answer. `sent` is false if the request did not reach the server; otherwise it may have been carried out."""

    def __init__(self, request: str, cause: BaseException, sent: bool):
        self.sent = sent
        super().__init__(f"{request}: no answer: {cause or type(cause).__name__}")


class _Answer(TypedDict):
    job_id: str
    status: str
    """`queued`, `merged`, `duplicate`, or `throttled`: refused; `job_id` is then the job that came before"""


class Pushed(_Answer, total=False):
    again_at: str
    """If the key is throttled: when it may be pushed again, in RFC 3339"""


class Job(TypedDict, total=False):
    """A job of `push_all`, with the fields of docs/http.md ("Pushing"); the server refuses others."""

    payload: Any
    key: Any
    score: float
    task: str
    delay: Any
    run_at: Any
    priority: int
    node: str
    consumer_group: str
    group: str
    build: str
    batch: str
    max_retries: int
    max_attempts: int
    backoff: dict[str, Any]
    timeout: Any
    lease_ttl: Any
    expires_at: Any
    idempotency_key: str
    idempotency_scope: str
    partition_key: str
    producer: str
    traceparent: str


class Client:
    """`token` defaults to the variable SERIATIM_TOKEN. `timeout` limits one attempt of a request, and `retry_for` is
    how long a request that is safe to repeat is repeated, both in seconds."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:7117",
        token: Optional[str] = None,
        *,
        timeout: float = 10.0,
        retry_for: float = 10.0,
    ):
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url is {url!r}: it must start with http:// or https://")
        self.url = url.rstrip("/") + "/api/v1"
        self.token = token or os.environ.get("SERIATIM_TOKEN")
        self.timeout, self.retry_for = timeout, retry_for

    def push(self, queue: str, payload: Any = None, **fields: Any) -> Pushed:
        """Pushes one job. Fields: `key`, `score`, `delay`, `run_at`, `priority`, `idempotency_key` and the others of
        `Job`; None is as if absent."""
        return self.push_all(queue, [{"payload": payload, **fields}])[0]  # type: ignore[typeddict-item]

    def push_all(self, queue: str, jobs: list[Job]) -> list[Pushed]:
        """Pushes all jobs or none."""
        # Repeated after an answer that was lost, jobs without these keys would be pushed twice.
        safe = all(job.get("idempotency_key") for job in jobs)
        answer = self.call("POST", f"/queues/{quote(queue)}/jobs", list(jobs), safe=safe)
        if answer.get("created"):
            log.warning("queue %r did not exist and was created", queue)
        return answer["jobs"]

    def push_and_wait(self, queue: str, payload: Any = None, *, wait: float = 20.0, **fields: Any) -> dict[str, Any]:
        """Pushes one job, waits until it has ended, but no longer than `wait` seconds (at most 60), and returns it as `job`
        does, with its `status` and `error`, and its `result` if there is one. The queue must keep finished jobs
        (`retain_completed`)."""
        path = f"/queues/{quote(queue)}/jobs?wait={round(wait * 1000)}ms"
        safe = bool(fields.get("idempotency_key"))
        return self.call("POST", path, {"payload": payload, **fields}, safe=safe, timeout=self.timeout + wait)["job"]

    def job(self, job_id: str, *, wait: float = 0.0) -> dict[str, Any]:
        """All that is known of a job: now, or when it has ended, but no later than after `wait` seconds (at most 60)."""
        query = f"?wait={round(wait * 1000)}ms" if wait else ""
        return self.call("GET", f"/jobs/{quote(job_id)}{query}", safe=True, timeout=self.timeout + wait)

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancels a waiting job; the handler of a running one is told."""
        return self.call("POST", f"/jobs/{quote(job_id)}/cancel", safe=True)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        safe: bool = False,
        timeout: Optional[float] = None,
        retry_for: Optional[float] = None,
    ) -> Any:
        """Any request of the API, as `call("GET", "/queues")`. `safe`: it may be repeated although it may have been
        carried out."""
        deadline = time.monotonic() + (self.retry_for if retry_for is None else retry_for)
        attempt = 0
        while True:
            try:
                return self._once(method, path, body, self.timeout if timeout is None else timeout)
            except SeriatimError as error:
                pause = pause_after(error, attempt)
                if not may_repeat(error, safe) or time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
            attempt += 1

    def _once(self, method: str, path: str, body: Any, timeout: float) -> Any:
        what = f"{method} {self.url}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        try:
            with OPENER.open(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Problem(what, error.code, document_of(error), retry_after_of(error)) from None
        except urllib.error.URLError as error:
            # What fails later than the connection and the sending is not wrapped.
            raise Unreachable(what, error.reason if isinstance(error.reason, Exception) else error, False) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unreachable(what, error, True) from None


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """The API never redirects. What does must not get the token."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(NoRedirect)


def may_repeat(error: SeriatimError, safe: bool) -> bool:
    """Whether to send a request again: if it was certainly not carried out, or if a second time does no harm."""
    if isinstance(error, Problem):
        return error.status == 429 or (safe and error.status >= 500)
    return isinstance(error, Unreachable) and (safe or not error.sent)


def pause_after(error: SeriatimError, attempt: int) -> float:
    """What the server asked for, otherwise longer each time; a random part keeps clients apart."""
    asked = getattr(error, "retry_after", None)
    pause = min(PAUSE_MIN_S * 2 ** min(attempt, 16), PAUSE_MAX_S) if asked is None else asked
    return pause * random.uniform(1.0, 1.5)


def document_of(error: urllib.error.HTTPError) -> dict[str, Any]:
    try:
        text = error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        text = ""  # The connection broke behind the status, which says enough.
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    # A proxy answers with a page of its own.
    return document if isinstance(document, dict) else {"title": error.reason, "detail": text[:200]}


def retry_after_of(error: urllib.error.HTTPError) -> Optional[float]:
    text = error.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None


def quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")
