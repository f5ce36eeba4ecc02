"""What the tests of the clients run: pushes, a remote worker or a process worker in Python."""

import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time

from seriatim import Client, Lane, Problem, ProcessWorker, RemoteWorker, Unreachable
from seriatim import bury, cancel, done, release, snooze, step


def handle(lane):
    for number, job in enumerate(lane.jobs):
        told = job["payload"]
        with open("seen", "a") as seen:
            seen.write(f"{lane.key} {told['name']} {lane.attempt}\n")
        lane.progress({"percent": 40})
        if told.get("do") == "yields":
            return pipeline(lane)
        if told.get("do") in ("steps", "crash"):
            one = lane.step("one", note, lane, "one")
            if lane.attempt == 1:
                if told["do"] == "crash":
                    os._exit(9)
                raise RuntimeError("told to fail")
            lane.step("two", note, lane, f"two after {one['noted']}")
        if told.get("do") == "stepping":
            for number in range(1000):
                lane.step(str(number), note, lane, "step" if number == 0 else "")
                time.sleep(0.05)
        if told.get("do") == "fail" and lane.attempt == 1:
            raise RuntimeError("told to fail")
        if told.get("do") == "snooze" and not pathlib.Path("go").exists():
            return snooze(0.1)
        if told.get("do") == "bury":
            return bury("told to bury", done=number)
        if told.get("do") == "bytes":
            raise RuntimeError("caf" + os.fsdecode(b"\xe9"))
        if told.get("do") == "signal":
            # By now the main thread waits: the other lane runs, and there are no more places.
            time.sleep(0.2)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        while told.get("do") in ("wait", "release", "signal") and not pathlib.Path("go").exists():
            if lane.cancelled(job):
                return cancel("as asked")
            if told["do"] != "wait" and lane.stopping():
                return release()
            time.sleep(0.01)
        if told.get("do") == "return":
            return done({"sum": 6})
        if told.get("do") == "long":
            return done("x" * 70_000)
        if told.get("do") == "plain":
            return 42
        if told.get("do") == "nan result":
            return done(float("nan"))
        if told.get("do") == "nan progress":
            lane.progress({"percent": float("nan")})
        if told.get("do") == "nan step":
            lane.step("one", lambda: float("nan"))
        if told.get("do") == "odd":
            return {"outcome": "explode"}
    print("done:", lane.key)


def note(lane, what):
    if what:
        with open("seen", "a") as seen:
            seen.write(f"{lane.key} {what} {lane.attempt}\n")
    return {"noted": what}


def pipeline(lane):
    one = yield step("one", note, lane, "one")
    yield {"percent": 50}
    if lane.attempt == 1:
        raise RuntimeError("told to fail")
    yield
    yield step("two", note, lane, f"two after {one['noted']}")


def push(url):
    client = Client(url, retry_for=60)
    once = {"key": "k", "idempotency_key": "once"}
    tell(client.push("orders", {"name": 1}, **once)["status"])
    tell(client.push("orders", {"name": 1}, **once)["status"])
    jobs = client.push_all("orders", [{"key": "k", "payload": {"name": n}, "delay": "1h", "priority": 3} for n in (2, 3)])
    tell([client.job(job["job_id"])["priority"] for job in jobs])
    tell(client.cancel(jobs[1]["job_id"])["status"])
    tell(client.push_and_wait("orders", {"name": 4}, wait=0.05, key="k", delay="1h")["status"])
    tell(client.job(jobs[1]["job_id"], wait=60)["status"])
    for wrong in (lambda: client.push("orders", {}, kee="k"), lambda: Client("http://127.0.0.1:2", retry_for=0.2).job("1")):
        try:
            wrong()
        except Problem as problem:
            tell([problem.status, problem.field])
        except Unreachable as error:
            tell([error.sent])


def torn():
    """A refusal whose connection breaks behind the head."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse():
            with server.accept()[0] as stream:
                stream.recv(65_536)
                stream.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 99\r\n\r\n{")

        threading.Thread(target=refuse).start()
        try:
            Client("http://127.0.0.1:%d" % server.getsockname()[1], retry_for=0).job("1")
        except Problem as problem:
            tell(problem.status)


def redirected(url):
    try:
        Client(url, token="secret", retry_for=0).push("orders", {})
    except Problem as problem:
        tell(problem.status)


def options():
    for wrong in (0, -1, "4", 1001):
        try:
            RemoteWorker(Client(), "orders", handle, concurrency=wrong)
        except ValueError as error:
            tell(str(error))


class Outage:
    """A server that hands over these lanes one by one, and hears nothing of them until they end. Its first so many answers to
    an end are that the lane is busy."""

    def __init__(self, names, lease, busy=0):
        self.names, self.lease, self.busy = names, lease, busy
        self.worker = RemoteWorker(self, "orders", doubt, lease=lease)
        self.worker.run()

    def call(self, _method, path, body, **_options):
        if path == "/work/claim":
            return {"lanes": self.next(body)}
        if path == "/work/settle":
            tell([self.soon, body["results"][0]["outcome"], body["results"][0]["done"]])
            self.busy -= 1
            return {"results": [{"status": "ok" if self.busy < 0 else "busy"}]}
        if self.lease < 1:
            raise Unreachable(path, OSError("away"), True)
        return {"cancel": [{"lane": "1-0-1", "job_ids": ["a", "b"]}], "lost": [], "steps": []}

    def next(self, body):
        self.soon = body["wait_ms"] <= self.lease * 1000 / 3
        if not self.names:
            self.worker.stop()
            return []
        fields = {"lane": "1-0-1", "token": 1, "secret": "s", "key": self.names.pop(0), "crashes": 0}
        return [{**fields, "jobs": [{"job_id": "a"}, {"job_id": "b"}]}]


class Odd:
    """A client whose first heartbeat cannot be written."""

    def __init__(self):
        self.beats = 0
        self.worker = RemoteWorker(self, "orders", handle, lease=0.03)
        self.worker._running[Lane({"lane": "1-0-1"}, None, None)] = {"lane": "1-0-1", "token": 1, "secret": "s"}
        self.worker._beat()
        tell(self.beats)

    def call(self, *_arguments, **_options):
        self.beats += 1
        if self.beats == 1:
            raise RecursionError("too deep")
        self.worker._over.set()
        return {"cancel": [], "lost": []}


class Strict:
    """A server that refuses progress with this status. Of two lanes, one reports too much, and then less."""

    def __init__(self, status):
        self.status = status
        self.worker = RemoteWorker(self, "orders", handle, lease=0.03)
        claims = [{"lane": f"1-0-{number}", "token": 1, "secret": "s"} for number in range(2)]
        lanes = [Lane(claim, lambda text: claims[0].update(progress=text), None) for claim in claims]
        self.worker._running.update(zip(lanes, claims))
        try:
            lanes[0].progress("x" * 65_535)
        except ValueError as error:
            tell(str(error))
        lanes[0].progress("x" * 65_534)
        self.worker._beat()

    def call(self, _method, path, body, **_options):
        self.worker._over.set()
        reported = ["progress" in claim for claim in body["claims"]]
        tell(reported)
        if any(reported):
            raise Problem(path, self.status, {"field": "claims[0].progress"})
        return {"cancel": [], "lost": []}


class Away:
    """A server that is away when its lanes end, and back for the last words of the worker: it takes one at a time."""

    def __init__(self, count):
        fields = {"token": 1, "secret": "s", "key": "k", "crashes": 0, "jobs": [{"job_id": "a"}]}
        self.lanes = [{"lane": f"1-0-{number}", **fields} for number in range(count)]
        self.waiting, self.left = [], count
        self.back = threading.Event()
        self.worker = RemoteWorker(self, "orders", lambda _lane: None, concurrency=count, stop_timeout=0)
        self.worker.run()

    def call(self, _method, path, body, **options):
        if path == "/work/claim":
            lanes, self.lanes = self.lanes, []
            return {"lanes": lanes}
        if options["retry_for"] == float("inf"):
            self.waiting.append(body)
            if len(self.waiting) == self.left:
                self.worker.stop()
            self.back.wait()
            return {"results": [{"status": "stale"}]}
        if len(body["results"]) > 1:
            raise Problem(path, 413, {})
        tell(body["results"][0]["outcome"])
        self.left -= 1
        if self.left == 0:
            self.back.set()
        return {"results": [{"status": "ok"}]}


class Refusing:
    """A server that refuses the end of its lane with these statuses, one after the other."""

    def __init__(self, statuses):
        fields = {"lane": "1-0-1", "token": 1, "secret": "s", "key": "k", "crashes": 0}
        self.statuses, self.lanes = statuses, [{**fields, "jobs": [{"job_id": "a"}]}]
        self.worker = RemoteWorker(self, "orders", lambda _lane: None)
        self.worker.run()

    def call(self, _method, path, body, **_options):
        if path == "/work/claim":
            lanes, self.lanes = self.lanes, []
            if not lanes:
                self.worker.stop()
            return {"lanes": lanes}
        if path == "/work/heartbeat":
            return {"cancel": [], "lost": []}
        tell([body["results"][0]["outcome"], body["results"][0].get("error")])
        if self.statuses:
            raise Problem(path, self.statuses.pop(0), {"title": "refused"}, 0)
        return {"results": [{"status": "ok"}]}


def doubt(lane):
    while lane.key != "named" and not lane.cancelled():
        time.sleep(0.001)
    if lane.key != "asks":
        lane.step("one", note, lane, "")
    return cancel("as asked", done=1) if lane.cancelled(lane.jobs[1]) else None


def tell(what):
    print(json.dumps(what), flush=True)


if sys.argv[1] == "push":
    push(sys.argv[2])
elif sys.argv[1] == "redirected":
    redirected(sys.argv[2])
elif sys.argv[1] == "options":
    options()
elif sys.argv[1] == "torn":
    torn()
elif sys.argv[1] == "doubt":
    Outage(["asks", "steps"], 0.03)
    Outage(["named"], 600)
elif sys.argv[1] == "busy":
    Outage(["named"], 600, busy=1200)
elif sys.argv[1] == "odd":
    Odd()
elif sys.argv[1] == "strict":
    for status in (400, 413, 503):
        Strict(status)
elif sys.argv[1] == "away":
    Away(1)
elif sys.argv[1] == "apart":
    Away(2)
elif sys.argv[1] == "refused":
    Refusing([401, 403, 413])
elif sys.argv[1] == "process":
    ProcessWorker(handle).run()
else:
    RemoteWorker(Client(sys.argv[2]), "orders", handle, concurrency=2, lease=float(sys.argv[3]), wait=1).run()
