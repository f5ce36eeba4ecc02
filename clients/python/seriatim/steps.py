"""Handlers with several steps, of which those that have ended are not run again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, Generator

from .outcome import Outcome, cancel, release

if TYPE_CHECKING:
    from .lane import Lane


NOBODY = {"state": "stop", "why": "cancelled"}
"""The answer to a step of a lane that is cancelled or lost."""


class Step:
    """What a generator yields to run a step: `rows = yield step("extract", extract, path)`."""

    def __init__(self, name: str, run: Callable[[], Any]):
        self.name, self.run = name, run


def step(name: str, run: Callable[..., Any], *args: Any, **options: Any) -> Step:
    """A step for a handler that is a generator. Its result must be JSON; the results of all steps may have 64 KiB."""
    return Step(name, lambda: run(*args, **options))


class Stopped(Exception):
    """The lane is cancelled, or its worker stops: ends the handler between two steps."""

    def __init__(self, why: str, outcome: Outcome):
        super().__init__(why)
        self.outcome = outcome


def stopped(why: str, name: str = "") -> Stopped:
    where = f" before step {name!r}" if name else " between two steps"
    return Stopped(why + where, release() if why == "stopping" else cancel(why + where))


def run_step(lane: Lane, name: str, run: Callable[[], Any]) -> Any:
    """Runs a step, or returns its result from an earlier run."""
    if lane.cancelled():
        raise stopped("cancelled", name)
    told = lane._ask(name, False, None)
    if told["state"] == "stop":
        raise stopped(told["why"], name)
    if told["state"] == "done":
        return told.get("result")
    # As JSON gives it back: later runs see the same.
    result = json.loads(json.dumps(run(), allow_nan=False))
    lane._ask(name, True, result)
    return result


def drive(task: Generator[Any, Any, Any], lane: Lane) -> Any:
    """Runs a generator. Each `yield` looks whether to go on; what it yields is a step, progress, or nothing."""
    resume, value = task.send, None
    try:
        while True:
            try:
                asked = resume(value)
            except StopIteration as end:
                return end.value
            resume, value = task.send, None
            if isinstance(asked, Step):
                try:
                    value = run_step(lane, asked.name, asked.run)
                except Stopped:
                    raise
                except Exception as error:  # As if the step stood where the `yield` is.
                    resume, value = task.throw, error
                continue
            if asked is not None:
                lane.progress(asked)
            why = lane._boundary()
            if why:
                raise stopped(why)
    finally:
        task.close()
