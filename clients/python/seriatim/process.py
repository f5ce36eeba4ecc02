"""A program of `seriatim serve`: calls on stdin, answers on stdout (docs/workers.md, "Processes")."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, Callable

from .lane import Lane
from .outcome import outcome_of


class ProcessWorker:
    """Runs `handle` for each lane. Calls run in parallel, as many as `concurrency` of the configuration allows; the
    lanes of one call run one after another."""

    def __init__(self, handle: Callable[[Lane], Any]):
        self.handle = handle
        self._calls: dict[str, list[Lane]] = {}
        self._write = threading.Lock()

    def run(self) -> None:
        """Returns after `shutdown`, or when stdin has ended."""
        # Whatever else is printed, by this program or its children, goes to stderr, which Seriatim logs.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message["type"] == "perform":
                self._start(message["batch"], message["lanes"])
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

    def _start(self, batch: str, documents: list[dict[str, Any]]) -> None:
        def lane_of(document: dict[str, Any]) -> Lane:
            message = {"type": "progress", "batch": batch, "lane": document["lane"]}
            return Lane(document, lambda text: self._send({**message, "progress": json.loads(text)}))

        self._calls[batch] = [lane_of(document) for document in documents]
        threading.Thread(target=self._perform, args=(batch,)).start()

    def _perform(self, batch: str) -> None:
        lanes = self._calls[batch]
        results = [{"lane": lane.lane, **outcome_of(self.handle, lane)} for lane in lanes]
        del self._calls[batch]
        self._send({"type": "result", "batch": batch, "results": results})

    def _send(self, message: dict[str, Any]) -> None:
        with self._write:
            try:
                self._out.write(json.dumps(message) + "\n")
                self._out.flush()
            except BrokenPipeError:
                pass  # The node is gone, which the end of stdin says too.
