"""A process worker: prints the updates of each order, lowest score first.

    [[workers]]
    queue = "orders"
    process = ["python3", "examples/workers/orders.py"]
    env = { PYTHONPATH = "clients/python" }
    watch = ["clients/python/seriatim"]
    concurrency = 4
"""

from seriatim import ProcessWorker, bury, cancel


def handle(lane):
    for number, job in enumerate(lane.jobs):
        if lane.cancelled():
            return cancel("not needed any more", done=number)
        if "status" not in job["payload"]:
            return bury("an order update needs a status", done=number)
        # The token only grows for a key, so a receiver can refuse stale writes.
        print(f"order {lane.key} is {job['payload']['status']} (token {lane.token})")
        lane.progress({"done": number + 1, "of": len(lane.jobs)})


ProcessWorker(handle).run()
