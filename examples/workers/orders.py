"""A process worker: prints the updates of each order, lowest score first.

    [[workers]]
    queue = "orders"
    process = ["python3", "examples/workers/orders.py"]
    watch = ["examples/workers/seriatim_worker.py"]
    concurrency = 4
"""

from seriatim_worker import bury, cancel, serve


def handle(lane):
    for number, job in enumerate(lane.jobs):
        if lane.cancelled():
            return cancel("not needed any more", done=number)
        if "status" not in job["payload"]:
            return bury("an order update needs a status", done=number)
        # The token only grows for a key, so a receiver can refuse stale writes.
        print(f"order {lane.key} is {job['payload']['status']} (token {lane.token})")
        lane.progress(done=number + 1, of=len(lane.jobs))


serve(handle, concurrency=4)
