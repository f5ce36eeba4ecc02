"""The jobs of one key, handed over to a handler."""

from __future__ import annotations

import json
import math
import time
from typing import Any, Callable, Optional


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
    jobs: list[dict[str, Any]]
    """In order, each with `job_id`, `score` and `payload`."""

    def __init__(
        self, document: dict[str, Any], report: Callable[[str], None], stopping: Callable[[], bool] = lambda: False
    ):
        self.__dict__.update(document)
        self._report, self._stopping = report, stopping
        self._cancelled: set[str] = set()
        self._lost = False
        # When the claim ends unless it is extended: then another worker may have the lane.
        self._until = math.inf

    def payloads(self) -> list[Any]:
        return [job["payload"] for job in self.jobs]

    def cancelled(self, job: Optional[dict[str, Any]] = None) -> bool:
        """Whether `job` is cancelled; without `job`: whether all are. All are when the time is up or the
        claim is lost."""
        if self._lost or time.monotonic() > self._until:
            return True
        jobs = self.jobs if job is None else [job]
        return self._cancelled.issuperset(job["job_id"] for job in jobs)

    def stopping(self) -> bool:
        """Whether the remote worker stops. Finish within its `stop_timeout`, or return `release(done=…)`."""
        return self._stopping()

    def progress(self, progress: Any) -> None:
        """Reports progress: any JSON value, which replaces the one before."""
        self._report(json.dumps(progress))
