"""A worker that claims lanes over HTTP (docs/http.md, "Remote workers")."""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import socket
import threading
import time
from typing import Any, Callable, Optional, Union

from .client import Client, Problem, SeriatimError, log, may_repeat, pause_after
from .handle import outcome_of
from .lane import Lane
from .outcome import Outcome, release, retry
from .steps import NOBODY

HEARTBEAT_MAX_S = 5.0
# Of one claim, for the server.
LANES_MAX = 1000
PULSE_MIN_S = 1.0
RELEASE_S = 2.0
# A signal that comes just before a wait, or to another thread, does not end it: Python runs its handler after the wait.
WAIT_MAX_S = 1.0


class RemoteWorker:
    """Runs `handle` for each lane of `queues`, `concurrency` at a time, each in a thread.

    A claim lasts `lease` seconds from its last heartbeat. A claim request waits `wait` seconds for work (at most a third
    of `lease`), and so does a stop. `stop_timeout` is how long handlers may run on after SIGTERM; then their lanes are
    released. With `build`, it gets jobs that ask for this build too.
    """

    def __init__(
        self,
        client: Client,
        queues: Union[str, list[str]],
        handle: Callable[[Lane], Any],
        *,
        concurrency: int = 1,
        lease: float = 60.0,
        wait: float = 5.0,
        stop_timeout: float = 25.0,
        name: Optional[str] = None,
        consumer_groups: Optional[list[str]] = None,
        build: Optional[str] = None,
    ):
        if not isinstance(concurrency, int) or not 1 <= concurrency <= LANES_MAX:
            raise ValueError(f"concurrency must be a whole number from 1 to {LANES_MAX}, not {concurrency!r}")
        self.client, self.handle, self.concurrency = client, handle, concurrency
        self.queues = [queues] if isinstance(queues, str) else queues
        self.lease, self.wait, self.stop_timeout = lease, wait, stop_timeout
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.consumer_groups, self.build = consumer_groups, build
        # Lanes in work, with their claims.
        self._running: dict[Lane, dict[str, Any]] = {}
        # Of those whose handler has ended.
        self._outcomes: dict[Lane, Outcome] = {}
        self._lock, self._beating = threading.Lock(), threading.Lock()
        self._stopping, self._stopped_at = False, 0.0
        self._failures = 0
        self._unknown: list[str] = []
        # Wakes `run`: a lane has ended, or the worker stops. Its `put` is safe in a signal handler.
        self._mail: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._over = threading.Event()

    def stop(self) -> None:
        """Claims no more; `run` returns when the handlers have ended, or after `stop_timeout`."""
        self._stopping, self._stopped_at = True, time.monotonic()
        self._mail.put(None)

    def run(self) -> None:
        """Works until `stop`, SIGTERM or SIGINT (a second one ends the process at once). Raises `Problem` if the server
        refuses the claims, as for a wrong token."""
        restore = self._stop_on_signals()
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            while not self._stopping:
                self._take()
            self._end()
        except Problem:
            self._end()
            raise
        finally:
            self._over.set()
            restore()

    def _stop_on_signals(self) -> Callable[[], None]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def stop(_number: int, _frame: Any) -> None:
            restore()
            self.stop()

        for number in before:
            signal.signal(number, stop)
        return restore

    def _lanes(self) -> list[Lane]:
        with self._lock:
            return list(self._running)

    def _wait(self, timeout: float = math.inf) -> None:
        """Waits for mail, and takes all of it."""
        until, over = time.monotonic() + timeout, False
        while not over:
            left = until - time.monotonic()
            try:
                self._mail.get(timeout=max(0, min(left, WAIT_MAX_S)))
                over = True
            except queue.Empty:
                over = left <= 0
        while not self._mail.empty():
            self._mail.get()

    def _take(self) -> None:
        running = self._lanes()
        # A lane that crashed before runs as the last one claimed: it would take others with it.
        if len(running) >= self.concurrency or any(lane.crashes for lane in running):
            self._wait()
            return
        self._wait(0)
        limit, sent_at = self.concurrency - len(running), time.monotonic()
        body = {
            "queues": self.queues,
            "consumer_groups": self.consumer_groups,
            "limit": limit,
            "lease_ttl_sec": self.lease,
            # The time of the claim counts from here.
            "wait_ms": int(min(self.wait, self.lease / 3) * 1000),
        }
        if self.build is not None:
            body["build"] = self.build
        try:
            answer = self._call("/work/claim", body, timeout=self.wait + 10, retry_for=0)
        except SeriatimError as error:
            if not may_repeat(error, safe=True):
                raise
            self._pause(error)
            return
        self._failures = 0
        unknown = answer.get("unknown_queues", [])
        if unknown and unknown != self._unknown:
            log.warning("queues that do not exist (the first push creates them): %s", ", ".join(unknown))
        self._unknown = unknown
        for document in answer["lanes"]:
            self._start(document, sent_at)
        self._heed(answer)

    def _heed(self, answer: dict[str, Any]) -> None:
        """Ends if an operator asks for it. A worker that is to be quiet just gets no lanes."""
        if answer.get("command") == "stop" and not self._stopping:
            log.warning("stopping: an operator asked for it")
            self.stop()

    def _pause(self, error: SeriatimError) -> None:
        if self._failures == 0:
            log.warning("cannot claim, trying again: %s", error)
        self._wait(pause_after(error, self._failures))
        self._failures += 1

    def _start(self, document: dict[str, Any], sent_at: float) -> None:
        claim = {"lane": document["lane"], "token": document["token"], "secret": document.pop("secret")}
        report = lambda text: claim.update(progress=json.loads(text))  # noqa: E731
        lane = Lane(document, report, self._ask, lambda: self._stopping, self._pulse)
        lane._until = sent_at + self.lease
        with self._lock:
            for older in self._running:
                # Its lease ended, and this worker has it again.
                older._lost |= older.lane == lane.lane
            self._running[lane] = claim
        threading.Thread(target=self._perform, args=(lane,), daemon=True).start()

    def _perform(self, lane: Lane) -> None:
        # What came with the last claim, during a stop, goes back.
        outcome = release() if self._stopping else lane._ended(outcome_of(self.handle, lane))
        with self._lock:
            self._outcomes[lane] = outcome
        try:
            self._settle_one(lane, outcome)
        except SeriatimError as error:
            log.error("the result of lane %s (key %r) is lost, it runs again: %s", lane.lane, lane.key, error)
        with self._lock:
            del self._running[lane], self._outcomes[lane]
        self._mail.put(None)

    def _settle_one(self, lane: Lane, outcome: Outcome) -> None:
        """A refused token may be known in a moment: tried again until this lease would end."""
        until, attempt = 0.0, 0
        while True:
            try:
                return self._settle([(lane, outcome)], math.inf)
            except Problem as error:
                pause = pause_after(error, attempt)
                until = until or lane._until
                if error.status not in (401, 403) or time.monotonic() + pause > until:
                    raise
                if attempt == 0:
                    log.warning("cannot settle lane %s (key %r), trying again: %s", lane.lane, lane.key, error)
                time.sleep(pause)
            attempt += 1

    def _settle_apart(self, outcomes: list[tuple[Lane, Outcome]], refusal: Problem, retry_for: float) -> None:
        """After a refusal: half of them at a time; what is refused alone is a failure."""
        if len(outcomes) > 1:
            middle = len(outcomes) // 2
            self._settle(outcomes[:middle], retry_for)
            self._settle(outcomes[middle:], retry_for)
            return
        for lane, outcome in outcomes:
            # Without what it refused, which may be long.
            place = f"{refusal.field}: " if refusal.field else ""
            why = refusal.detail or refusal.document.get("title", "")
            refused = f"the server refused the outcome `{outcome['outcome']}`: {place}{why}"
            self._settle([(lane, retry(refused))], retry_for, is_refusal=True)

    def _settle(self, outcomes: list[tuple[Lane, Outcome]], retry_for: float, is_refusal: bool = False) -> None:
        while outcomes:
            with self._lock:
                outcomes = [(lane, outcome) for lane, outcome in outcomes if lane in self._running]
                results = [{**proof(self._running[lane]), **outcome} for lane, outcome in outcomes]
            # A second settle of a claim changes nothing: it is stale.
            try:
                answer = self._call("/work/settle", {"results": results}, safe=True, retry_for=retry_for)
            except Problem as error:
                if error.status not in (400, 413) or is_refusal:
                    raise
                return self._settle_apart(outcomes, error, retry_for)
            for (lane, _), result in zip(outcomes, answer["results"]):
                if result["status"] == "stale":
                    log.warning("the claim of lane %s (key %r) was lost, or settled before", lane.lane, lane.key)
            # The server waits with the answer while there are no others.
            outcomes = [one for one, result in zip(outcomes, answer["results"]) if result["status"] == "busy"]

    def _beat(self) -> None:
        while not self._over.wait(min(self.lease / 3, HEARTBEAT_MAX_S)):
            with self._lock:
                held = {lane: claim for lane, claim in self._running.items() if not lane._lost}
            if held:
                self._keep(held)

    def _keep(self, held: dict[Lane, dict[str, Any]]) -> None:
        """Sends a heartbeat. If progress may be why it failed, it is sent again without: no lease must end for that."""
        try:
            self._say(held, timeout=self.lease / 3, retry_for=0)
        except Exception as error:  # Also of progress too deep to be written.
            log.warning("a heartbeat failed: %s", error)
            reported = [claim for claim in held.values() if claim.pop("progress", None) is not None]
            # A connection may break while a body is sent that is too large.
            if reported and (not isinstance(error, Problem) or error.status in (400, 413)):
                self._keep({lane: proof(claim) for lane, claim in held.items()})

    def _say(self, held: dict[Lane, dict[str, Any]], **options: Any) -> Any:
        """Sends a heartbeat for these lanes, and heeds the answer. One at a time: the steps and the progress of a lane
        must not overtake each other."""
        with self._beating:
            sent_at, claims = time.monotonic(), [dict(claim) for claim in held.values()]
            answer = self._call("/work/heartbeat", {"claims": claims, "lease_ttl_sec": self.lease}, safe=True, **options)
            for claim, sent in zip(held.values(), claims):
                if "progress" in sent and claim.get("progress") is sent["progress"]:
                    del claim["progress"]
        cancelled = {notice["lane"]: notice["job_ids"] for notice in answer["cancel"]}
        for lane in held:
            lane._said_at, lane._until = sent_at, sent_at + self.lease
            lane._lost |= lane.lane in answer["lost"]
            lane._cancelled.update(cancelled.get(lane.lane, ()))
        self._heed(answer)
        return answer

    def _ask(self, lane: Lane, name: str, ended: bool, result: Any) -> dict[str, Any]:
        """Tells of a step with a heartbeat, whose answer says what to do."""
        with self._lock:
            claim = self._running.get(lane)
        if claim is None:
            return NOBODY
        step = {"name": name, "done": True, "result": result} if ended else {"name": name}
        answer = self._say({lane: {**claim, "step": step}}, timeout=self.lease / 3, retry_for=self.lease)
        told = answer.get("steps", [])
        if not told or (not ended and lane.cancelled()):
            return NOBODY
        if told[0]["state"] == "run" and self._stopping:
            return {"state": "stop", "why": "stopping"}
        return told[0]

    def _pulse(self, lane: Lane) -> None:
        """A heartbeat at a `yield`, unless one was sent just now. A failed one is left to the next."""
        with self._lock:
            claim = self._running.get(lane)
        if claim is None or time.monotonic() - lane._said_at < PULSE_MIN_S:
            return
        self._keep({lane: claim})

    def _end(self) -> None:
        if not self._stopping:
            self.stop()
        deadline = self._stopped_at + self.stop_timeout
        while self._lanes() and time.monotonic() < deadline:
            self._wait(max(0, deadline - time.monotonic()))
        with self._lock:
            # Those that have ended: the server was away since then.
            ended = list(self._outcomes.items())
            running = [(lane, release()) for lane in self._running if lane not in self._outcomes]
        if running:
            log.warning("released lanes that did not end in time: %d", len(running))
        for left in (running, ended):
            try:
                self._settle(left, RELEASE_S)
            except SeriatimError as error:
                log.error("cannot release lanes: they run again when their leases end: %s", error)

    def _call(self, path: str, body: dict[str, Any], **options: Any) -> Any:
        return self.client.call("POST", path, {"worker": self.name, **body}, **options)


def proof(claim: dict[str, Any]) -> dict[str, Any]:
    """Without progress. The secret proves that the claim is ours: do not log it."""
    return {name: claim[name] for name in ("lane", "token", "secret")}
