"""Runs a handler on a lane."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any, Callable

from .lane import Lane
from .outcome import Outcome, done, is_outcome, retry
from .steps import Stopped, drive

log = logging.getLogger("seriatim")


def outcome_of(handle: Callable[[Lane], Any], lane: Lane) -> Outcome:
    """Runs the handler. What is not an outcome is done, and an exception a retry with its text."""
    try:
        answer = handle(lane)
        if inspect.isgenerator(answer):
            answer = drive(answer, lane)
        json.dumps(answer if is_outcome(answer) else None)
    except Stopped as stop:
        log.info("lane %s (key %r): %s", lane.lane, lane.key, stop)
        return stop.outcome
    except BaseException as error:  # Also SystemExit, which would end the thread and nothing else.
        log.exception("the handler of lane %s (key %r) failed", lane.lane, lane.key)
        return retry(f"{type(error).__name__}: {error}")
    return answer if is_outcome(answer) else done()
