"""SLURM commands. Job states come from squeue, which, unlike sacct, does not need accounting."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

UNKNOWN = "no longer known to SLURM"
"""State of a job that ended so long ago that SLURM has purged it (MinJobAge)."""

FINAL = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
) | {UNKNOWN}
"""States that are final unless the job is requeued."""

TIMEOUT = 60
"""Seconds to wait for a busy controller."""


@dataclass(frozen=True)
class JobState:
    """The state of a job.

    Attributes:
        name: squeue's, such as RUNNING, or UNKNOWN.
        node: where it runs or last ran; empty while it is pending.
    """

    name: str
    node: str = ""


def job_states(jobs: Iterable[str]) -> dict[str, JobState] | None:
    """The state of each job by its id, such as 12, or 12_3 in an array; None if SLURM does not respond."""
    jobs = list(jobs)
    arrays = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    result = _run("squeue", "--noheader", "--array", "--states=all", f"--jobs={arrays}", "--format=%i|%T|%N")
    if result is None or (result.returncode and "Invalid job id" not in result.stderr):
        return None
    lines = [line.split("|") for line in result.stdout.splitlines()]
    known = {job: JobState(name, node) for job, name, node in lines}
    return {job: known.get(job, JobState(UNKNOWN)) for job in jobs}


def available() -> bool:
    """Whether there is a SLURM controller, and it responds."""
    result = _run("squeue", "--noheader", "--me")
    return result is not None and result.returncode == 0


def requeue(job: str) -> bool:
    """Requeue a running or finished job; returns whether SLURM accepted."""
    result = _run("scontrol", "requeue", job)
    return result is not None and result.returncode == 0


def _run(*command: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):  # SLURM's commands may not be installed
        return None
