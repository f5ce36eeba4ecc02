"""A program of `seriatim serve`: calls on stdin, answers on stdout (docs/workers.md, "Processes")."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from functools import partial
from typing import Any, Callable

from .handle import outcome_of
from .lane import Lane
from .steps import NOBODY


class ProcessWorker:
    """Runs `handle` for each lane. Calls run in parallel, as many as `concurrency` of the configuration allows; the
    lanes of one call run one after another."""

    def __init__(self, handle: Callable[[Lane], Any]):
        self.handle = handle
        self._calls: dict[str, list[Lane]] = {}
        self._write = threading.Lock()
        self._answers: dict[tuple[str, str], queue.SimpleQueue[dict[str, Any]]] = {}

    def run(self) -> None:
        """Returns after `shutdown`, or when stdin has ended."""
        # Whatever else is printed, by this program or its children, goes to stderr, which Seriatim logs.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message["type"] == "perform":
                self._start(message["batch"], message["lanes"])
            elif message["type"] == "step":
                self._hear_step(message)
            elif message["type"] == "cancel":
                for lane in self._calls.get(message["batch"], []):
                    if lane.lane == message["lane"]:
                        lane._cancelled.update(message["job_ids"])
            elif message["type"] == "shutdown":
                return
        # The node is gone: nobody hears the answers.
        for lanes in list(self._calls.values()):
            for lane in lanes:
                lane._lost = True
        for answers in list(self._answers.values()):
            answers.put(NOBODY)

    def _start(self, batch: str, documents: list[dict[str, Any]]) -> None:
        def lane_of(document: dict[str, Any]) -> Lane:
            message = {"type": "progress", "batch": batch, "lane": document["lane"]}
            report = lambda text: self._send({**message, "progress": json.loads(text)})  # noqa: E731
            return Lane(document, report, partial(self._ask_step, batch))

        self._calls[batch] = [lane_of(document) for document in documents]
        threading.Thread(target=self._perform, args=(batch,)).start()

    def _ask_step(self, batch: str, lane: Lane, name: str, ended: bool, result: Any) -> dict[str, Any]:
        """Tells of a step, and waits for the answer."""
        place = (batch, lane.lane)
        answers = self._answers.setdefault(place, queue.SimpleQueue())
        message = {"type": "step_done" if ended else "step", "batch": batch, "lane": lane.lane, "step": name}
        self._send({**message, "result": result} if ended else message)
        # At the end of stdin nobody answers any more.
        return NOBODY if lane._lost else answers.get()

    def _hear_step(self, message: dict[str, Any]) -> None:
        answers = self._answers.get((message["batch"], message["lane"]))
        if answers:
            answers.put(message)

    def _perform(self, batch: str) -> None:
        lanes = self._calls[batch]
        results = [{"lane": lane.lane, **outcome_of(self.handle, lane)} for lane in lanes]
        del self._calls[batch]
        for lane in lanes:
            self._answers.pop((batch, lane.lane), None)
        self._send({"type": "result", "batch": batch, "results": results})

    def _send(self, message: dict[str, Any]) -> None:
        with self._write:
            try:
                self._out.write(json.dumps(message) + "\n")
                self._out.flush()
            except BrokenPipeError:
                pass  # The node is gone, which the end of stdin says too.
