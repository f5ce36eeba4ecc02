"""What a handler makes of a lane. The first `done` jobs are done; the outcome is the next one's."""

from __future__ import annotations

from typing import Any, Optional, TypedDict


class Outcome(TypedDict, total=False):
    outcome: str
    error: str
    retry_in: Optional[float]
    done: int
    result: Any


def done(result: Any = None) -> Outcome:
    """The lane is done; so is a handler that returns nothing. `result`, any JSON value of at most 64 KiB, is for those who
    wait for its jobs."""
    return {"outcome": "done"} if result is None else {"outcome": "done", "result": result}


def retry(error: object, after: Optional[float] = None, done: int = 0) -> Outcome:
    """A failure: again after `after` seconds, or after the queue's backoff. An exception does the same."""
    return {"outcome": "retry", "error": text_of(error), "retry_in": after, "done": done}


def snooze(after: float, done: int = 0) -> Outcome:
    """Again after `after` seconds; not a failure."""
    return {"outcome": "snooze", "retry_in": after, "done": done}


def bury(error: object, done: int = 0) -> Outcome:
    """To the morgue, the dead-letter queue."""
    return {"outcome": "bury", "error": text_of(error), "done": done}


def cancel(reason: object = "", done: int = 0) -> Outcome:
    """Cancelled."""
    return {"outcome": "cancel", "error": text_of(reason), "done": done}


def release(done: int = 0) -> Outcome:
    """Back to the queue, uncounted. Remote workers only: use it when `lane.stopping()`. Steps use it themselves."""
    return {"outcome": "release", "done": done}


def text_of(error: object) -> str:
    """A message may have half a character, as names of files do that are not UTF-8; the server reads none."""
    return str(error).encode("utf-8", "replace").decode()


def is_outcome(answer: Any) -> bool:
    return isinstance(answer, dict) and "outcome" in answer
