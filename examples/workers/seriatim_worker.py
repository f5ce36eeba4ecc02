"""Runs a Python function as a Seriatim process worker: JSON lines on stdin and stdout.

A worker is a function that gets a Lane and returns nothing (done) or an outcome:

    from seriatim_worker import serve, retry
    def handle(lane):
        for job in lane.jobs: ...
    serve(handle, concurrency=4)

An exception is a retry with its text. Needs the standard library only; copy the file.
"""

import json
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

_out = sys.stdout
_write = threading.Lock()
# Other output of the worker goes to stderr, which Seriatim logs.
sys.stdout = sys.stderr


def done():
    """The lane is done."""
    return {"outcome": "done"}


def retry(error, after=None, done=0):
    """Retry after `after` seconds, or after the queue's backoff. The first `done` jobs are done."""
    return {"outcome": "retry", "error": str(error), "retry_in": after, "done": done}


def snooze(after, done=0):
    """Run it again after `after` seconds; not a failure."""
    return {"outcome": "snooze", "retry_in": after, "done": done}


def bury(error, done=0):
    """Move it to the morgue, the dead-letter queue."""
    return {"outcome": "bury", "error": str(error), "done": done}


def cancel(reason, done=0):
    """Cancel it."""
    return {"outcome": "cancel", "error": str(reason), "done": done}


class Lane:
    """Jobs of one key, lowest score first."""

    def __init__(self, batch, message):
        self.batch = batch
        self.name = message["lane"]
        self.queue, self.key, self.token = message["queue"], message["key"], message["token"]
        self.task, self.attempt = message["task"], message["attempt"]
        self.retry_count, self.crashes = message["retry_count"], message["crashes"]
        self.jobs = message["jobs"]
        self._cancelled = set()

    def payloads(self):
        return [job["payload"] for job in self.jobs]

    def cancelled(self, job=None):
        """Whether `job` is cancelled; without `job`: whether all are, or the time is up."""
        if job is not None:
            return job["job_id"] in self._cancelled
        return len(self._cancelled) >= len(self.jobs)

    def progress(self, **progress):
        """Reports progress; stored about once a second."""
        _send({"type": "progress", "batch": self.batch, "lane": self.name, "progress": progress})


def serve(handle, concurrency=1):
    """Runs until `shutdown` or the end of stdin."""
    running = {}
    with ThreadPoolExecutor(concurrency) as pool:
        for line in sys.stdin:
            message = json.loads(line)
            if message["type"] == "perform":
                lanes = [Lane(message["batch"], lane) for lane in message["lanes"]]
                running[message["batch"]] = lanes
                pool.submit(_perform, handle, message["batch"], lanes, running)
            elif message["type"] == "cancel":
                for lane in running.get(message["batch"], []):
                    if lane.name == message["lane"]:
                        lane._cancelled.update(message["job_ids"])
            elif message["type"] == "shutdown":
                break


def _perform(handle, batch, lanes, running):
    results = [{"lane": lane.name, **_one(handle, lane)} for lane in lanes]
    running.pop(batch, None)
    if all(result["outcome"] == "done" for result in results):
        _send({"type": "done", "batch": batch})
    else:
        _send({"type": "result", "batch": batch, "results": results})


def _one(handle, lane):
    try:
        return handle(lane) or done()
    except Exception as error:
        traceback.print_exc()
        return retry(f"{type(error).__name__}: {error}")


def _send(message):
    with _write:
        _out.write(json.dumps(message) + "\n")
        _out.flush()
