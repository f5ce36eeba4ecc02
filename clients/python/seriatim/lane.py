"""The jobs of one key, handed over to a handler."""

from __future__ import annotations

import json
import math
import time
from typing import Any, Callable, Optional

from .outcome import Outcome, release
from .steps import run_step

# For the server and the engine.
PROGRESS_BYTES_MAX = 65_536


class Lane:
    """Has the fields of docs/workers.md ("The call"), among them these."""

    lane: str
    queue: str
    key: Optional[str]
    token: int
    """Only grows for a key: send it with your writes, so that the receiver can refuse stale ones."""
    task: Optional[str]
    attempt: int
    retry_count: int
    crashes: int
    max_retries: int
    first_attempt_at: Optional[str]
    jobs: list[dict[str, Any]]
    """In order, each with `job_id`, `score` and `payload`."""

    def __init__(
        self,
        document: dict[str, Any],
        report: Callable[[str], None],
        ask: Callable[[Lane, str, bool, Any], dict[str, Any]],
        stopping: Callable[[], bool] = lambda: False,
        pulse: Callable[[Lane], None] = lambda _lane: None,
    ):
        self.__dict__.update(document)
        self._report, self._asked, self._stopping, self._pulse = report, ask, stopping, pulse
        self._cancelled: set[str] = set()
        self._lost = False
        # Whether `cancelled` has said so although perhaps nobody cancelled anything.
        self._doubted = False
        # When the claim ends unless it is extended: then another worker may have the lane.
        self._until = math.inf
        # When its last heartbeat was sent.
        self._said_at = 0.0

    def payloads(self) -> list[Any]:
        return [job["payload"] for job in self.jobs]

    def cancelled(self, job: Optional[dict[str, Any]] = None) -> bool:
        """Whether `job` is cancelled; without `job`: whether all are. All are when the time is up or the
        claim is lost. From a remote worker, `cancel` then only releases the lane."""
        if self._lost or time.monotonic() > self._until:
            self._doubted = True
            return True
        jobs = self.jobs if job is None else [job]
        return self._cancelled.issuperset(job["job_id"] for job in jobs)

    def stopping(self) -> bool:
        """Whether the remote worker stops. Finish within its `stop_timeout`, or return `release(done=…)`."""
        return self._stopping()

    def progress(self, progress: Any) -> None:
        """Reports progress: any JSON value of at most 64 KiB, which replaces the one before."""
        text = json.dumps(progress, allow_nan=False)
        if len(text) > PROGRESS_BYTES_MAX:
            raise ValueError(f"progress has {len(text)} bytes as JSON; at most {PROGRESS_BYTES_MAX} are kept")
        self._report(text)

    def step(self, name: str, run: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Runs a step and returns its result as JSON; if it ended in an earlier run, only returns the result. Ends the
        handler if the lane is cancelled or the worker stops."""
        return run_step(self, name, lambda: run(*args, **options))

    def _ask(self, name: str, ended: bool, result: Any) -> dict[str, Any]:
        return self._asked(self, name, ended, result)

    def _ended(self, outcome: Outcome) -> Outcome:
        """A claim that only may be lost goes back: if nobody cancelled the jobs, they run again."""
        doubted = self._doubted and outcome["outcome"] == "cancel"
        return release(outcome.get("done", 0)) if doubted else outcome

    def _boundary(self) -> str:
        """Why a generator ends at this `yield`; empty if it goes on."""
        self._pulse(self)
        return "cancelled" if self.cancelled() else "stopping" if self.stopping() else ""
