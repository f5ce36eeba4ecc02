"""PyPI's faktory: `faktory_client.py push JOBS KEYS` or `faktory_client.py work SLOTS`."""

import sys

import faktory

import common

what, count = sys.argv[1], int(sys.argv[2])
if what == "push":
    with faktory.connection() as client:
        for n in range(count):
            queue, custom = common.job(n, int(sys.argv[3]))
            if not client.queue("Sync", args=(n,), queue=queue, custom=custom):
                sys.exit(f"job {n} was refused")
else:
    worker = faktory.Worker(queues=common.QUEUES, concurrency=count, use_threads=True)
    worker.register("Sync", common.sync)
    worker.run()
