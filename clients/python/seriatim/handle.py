"""Runs a handler on a lane."""

from __future__ import annotations

import inspect
import json
import logging
import reprlib
from typing import Any, Callable

from .lane import Lane
from .outcome import Outcome, done, is_outcome, retry
from .steps import Stopped, drive

log = logging.getLogger("seriatim")
warned = False


def outcome_of(handle: Callable[[Lane], Any], lane: Lane) -> Outcome:
    """Runs the handler. What is not an outcome is done, and dropped; an exception is a retry with its text."""
    try:
        answer = handle(lane)
        if inspect.iscoroutine(answer) or inspect.isasyncgen(answer):
            raise TypeError("the handler is `async def`, which is not awaited: write a function, with asyncio.run(…) in it if need be")
        if inspect.isgenerator(answer):
            answer = drive(answer, lane)
        # NaN is no JSON.
        json.dumps(answer if is_outcome(answer) else None, allow_nan=False)
    except Stopped as stop:
        log.info("lane %s (key %r): %s", lane.lane, lane.key, stop)
        return stop.outcome
    except BaseException as error:  # Also SystemExit, which would end the thread and nothing else.
        log.exception("the handler of lane %s (key %r) failed", lane.lane, lane.key)
        return retry(f"{type(error).__name__}: {error}")
    if is_outcome(answer):
        return answer
    if answer is not None:
        warn_of(reprlib.repr(answer)[:60])
    return done()


def warn_of(answer: str) -> None:
    """Once: many handlers return what nobody needs."""
    global warned
    if not warned:
        warned = True
        log.warning("the handler returned %s, which is not an outcome: use done(%s) to keep it as the result", answer, answer)
