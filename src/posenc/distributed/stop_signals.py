"""The signals that stop a run, and what processes do at one."""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

AT_ONCE = "stopped at once; the same command resumes from the last checkpoint"

TIME_LIMIT_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that SLURM sends well before a job's time limit; the grace period is that of several ranks."""


def stop_signals() -> list[signal.Signals]:
    """The signals that stop a run: SIGHUP unless nohup ignores it, and those of a time limit if they have a handler.

    The default action of the latter ends the process.
    """
    closed = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    ahead = [one for one in TIME_LIMIT_SIGNALS if callable(signal.getsignal(one))]
    return [signal.SIGINT, signal.SIGTERM, *closed, *ahead]


@contextmanager
def sigterm_ignored() -> Iterator[None]:
    """Context in which this process, and the commands that it starts, ignore SIGTERM.

    SLURM sends it to every process of a requeued job, also to a `scontrol requeue` that still waits for its answer.
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_with_parent(signum: int, parent: int) -> None:
    """Make Linux send this process a signal when its parent, given by its process id, dies, or if it has died."""
    pr_set_pdeathsig = 1  # linux/prctl.h
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(pr_set_pdeathsig, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)
