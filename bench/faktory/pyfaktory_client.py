"""PyPI's pyfaktory: `pyfaktory_client.py push JOBS KEYS` or `pyfaktory_client.py work SLOTS`."""

import sys

from pyfaktory import Client, Consumer, Job, Producer

import common


def described(n, keys):
    queue, custom = common.job(n, keys)
    return Job(jobtype="Sync", args=[n], queue=queue, custom=custom)


what, count = sys.argv[1], int(sys.argv[2])
if what == "push":
    with Client(role="producer") as client:
        for first in range(0, count, 1000):
            numbers = range(first, min(first + 1000, count))
            jobs = [described(n, int(sys.argv[3])) for n in numbers]
            wrong = Producer(client).push_bulk(jobs)
            if wrong:
                sys.exit(f"refused: {wrong}")
else:
    with Client(role="consumer") as client:
        consumer = Consumer(client, queues=common.QUEUES, priority="strict", concurrency=count)
        consumer.register("Sync", common.sync)
        consumer.run()
