#!/usr/bin/env python3
"""A remote worker for Seriatim in one file, with the standard library alone.

    python3 worker.py http://127.0.0.1:7117 orders [--until-empty]

It claims lanes (a lane is a key with its jobs), extends its claims by heartbeats, and settles each lane
with an outcome. Put your own work into `perform`. Set SERIATIM_TOKEN if the API requires a token.
"""

import json
import os
import socket
import sys
import threading
import urllib.error
import urllib.request

LEASE_S = 60
LIMIT = 10
WAIT_MS = 20_000


def perform(lane, cancelled):
    """Does the work of one lane: jobs of one key, in order.

    `cancelled` is the set of job ids to cancel. `lane["token"]` is a fencing token: it only grows for a key, so
    that your other systems can refuse writes with an older one.
    """
    for job in lane["jobs"]:
        if job["job_id"] in cancelled:
            continue
        if isinstance(job["payload"], dict) and job["payload"].get("fail"):
            raise RuntimeError("told to fail")
        print(lane["queue"], lane["key"], job["payload"], flush=True)


class Seriatim:
    def __init__(self, url, worker):
        self.url, self.worker = url.rstrip("/") + "/api/v1/work/", worker

    def call(self, what, **body):
        request = urllib.request.Request(
            self.url + what,
            data=json.dumps({"worker": self.worker, **body}).encode(),
            headers={"Content-Type": "application/json"},
        )
        if token := os.environ.get("SERIATIM_TOKEN"):
            request.add_header("Authorization", "Bearer " + token)
        with urllib.request.urlopen(request, timeout=WAIT_MS / 1000 + 30) as answer:
            return json.load(answer)


def named(lane):
    """Identifies a claim in requests. The secret proves that it is ours: do not log it."""
    return {name: lane[name] for name in ("lane", "token", "secret")}


class Pulse(threading.Thread):
    """Extends the claims, and learns which jobs are cancelled and which claims are lost."""

    def __init__(self, api, lanes):
        super().__init__(daemon=True)
        self.api, self.done = api, threading.Event()
        self.held = {lane["lane"]: named(lane) for lane in lanes}
        self.cancelled, self.lost = set(), set()

    def run(self):
        while not self.done.wait(LEASE_S / 3):
            try:
                answer = self.api.call("heartbeat", claims=list(self.held.values()))
            except OSError as error:
                print("heartbeat:", error, file=sys.stderr)
                continue
            self.lost.update(answer["lost"])
            for notice in answer["cancel"]:
                self.cancelled.update(notice["job_ids"])


def work(api, lanes):
    pulse = Pulse(api, lanes)
    pulse.start()
    try:
        for lane in lanes:
            if lane["lane"] in pulse.lost:
                continue  # Another worker has it now and our result would be refused.
            result = named(lane) | {"outcome": "done"}
            try:
                perform(lane, pulse.cancelled)
            except Exception as error:
                result |= {"outcome": "retry", "error": f"{type(error).__name__}: {error}"}
            answer = api.call("settle", results=[result])
            pulse.held.pop(lane["lane"], None)
            if answer["results"][0]["status"] == "stale":
                print("lost", lane["key"], "to another worker", file=sys.stderr)
    finally:
        pulse.done.set()


def main():
    url, queues, until_empty = sys.argv[1], sys.argv[2].split(","), "--until-empty" in sys.argv
    api = Seriatim(url, f"{socket.gethostname()}-{os.getpid()}")
    while True:
        wait_ms = 0 if until_empty else WAIT_MS
        try:
            answer = api.call(
                "claim", queues=queues, limit=LIMIT, lease_ttl_sec=LEASE_S, wait_ms=wait_ms
            )
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                sys.exit(f"{error.code}: {error.read().decode()}")
            threading.Event().wait(1)
            continue
        if answer["lanes"]:
            work(api, answer["lanes"])
        elif until_empty:
            return


if __name__ == "__main__":
    main()
