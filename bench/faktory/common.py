"""What both clients in Python do: the jobs, and what their work prints."""

import os
import time

QUEUES = ["ordered", "default"]
failed = set()


def say(event, n):
    os.write(1, f"{event} {n} {time.time():.6f}\n".encode())


def sync(n):
    say("start", n)
    time.sleep(1 if n % 485 == 0 else 0.005)
    if n % 50 in (7, 10) and n not in failed:
        failed.add(n)
        say("fail", n)
        raise RuntimeError("the first try fails")
    say("end", n)


def job(n, keys):
    """The queue and the custom fields of a job."""
    if n % 5:
        return "default", {}
    return "ordered", {"seriatim": {"key": f"key-{n // 5 % keys}", "score": n}}
