"""Client of Seriatim: push jobs and run workers, over HTTP or as a program of `seriatim serve`."""

from .client import Client, Job, Problem, Pushed, SeriatimError, Unreachable
from .lane import Lane
from .outcome import Outcome, bury, cancel, done, release, retry, snooze
from .process import ProcessWorker
from .remote import RemoteWorker
from .steps import Step, step

__all__ = [
    "Client", "Job", "Lane", "Outcome", "Problem", "ProcessWorker", "Pushed", "RemoteWorker", "SeriatimError",
    "Step", "Unreachable", "bury", "cancel", "done", "release", "retry", "snooze", "step",
]  # fmt: skip
