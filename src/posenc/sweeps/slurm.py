"""What SLURM says of jobs, by squeue: unlike sacct, it needs no accounting. And the one thing asked of it."""

import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

FORGOTTEN = "no longer known to SLURM"
"""Our state for a job that ended longer ago than SLURM remembers (MinJobAge)."""

OVER = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
) | {FORGOTTEN}
"""States that a job does not leave by itself."""

TIMEOUT = 60
"""Seconds that a busy controller is given to answer."""


@dataclass(frozen=True)
class JobState:
    """The state of a job.

    Attributes:
        name: as squeue writes it out, such as RUNNING; or FORGOTTEN.
        node: where it runs or last ran; empty while it is pending.
    """

    name: str
    node: str = ""

    @property
    def over(self) -> bool:
        return self.name in OVER


def job_states(jobs: Iterable[str]) -> dict[str, JobState] | None:
    """The state of each job; None if SLURM does not answer now, which says nothing about the jobs.

    Args:
        jobs: ids, like 12, or 12_3 in an array.
    """
    jobs = list(jobs)
    arrays = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    answer = _asked("squeue", "--noheader", "--array", "--states=all", f"--jobs={arrays}", "--format=%i|%T|%N")
    if answer is None or (answer.returncode and "Invalid job id" not in answer.stderr):
        return None
    lines = [line.split("|") for line in answer.stdout.splitlines()]
    known = {job: JobState(name, node) for job, name, node in lines}
    return {job: known.get(job, JobState(FORGOTTEN)) for job in jobs}


def answers() -> bool:
    """Whether there is a cluster here, and its controller answers."""
    answer = _asked("squeue", "--noheader", "--me")
    return answer is not None and answer.returncode == 0


def requeue(job: str) -> bool:
    """Put a job back into the queue, whether it runs or has ended; whether SLURM agreed."""
    answer = _asked("scontrol", "requeue", job)
    return answer is not None and answer.returncode == 0


def signal_name(asked: str) -> str:
    """The signal in an option like USR1@60 or R:10@60 of sbatch: USR1."""
    name = asked.rpartition(":")[2].partition("@")[0].upper().removeprefix("SIG")
    return signal.Signals(int(name)).name.removeprefix("SIG") if name.isdigit() else name


def _asked(*command: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):  # a node need not have SLURM's commands
        return None
