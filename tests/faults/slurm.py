"""What befalls the jobs of a sweep on a SLURM cluster; nothing is tried where SLURM is absent."""

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from posenc.storage.failed_jobs import failed_jobs
from tests.faults.outcome import Outcome
from tests.slurm.cluster import MISSING, ON_SLURM, Cluster, Held, jobs_of

Fault = Callable[[Cluster, Held, str], None]
"""Done to a run that is held still in mid-training, and its job."""


def preempted(cluster: Cluster, run: Held, job: str) -> None:  # noqa: ARG001
    cluster.preempt()
    run.preempted()


def signalled(cluster: Cluster, run: Held, job: str) -> None:
    cluster.signal(job, "USR2")
    run.go_on()


def killed(cluster: Cluster, run: Held, job: str) -> None:  # noqa: ARG001
    run.kill()


SAVED = "nothing: saved at that step, and requeued"
RECOVERABLE: tuple[tuple[str, Fault, str, str], ...] = (
    ("preempted", preempted, "SLURM job preempted", SAVED),
    ("signalled", signalled, "SLURM job signalled ahead of its time limit", SAVED),
    ("killed", killed, "SLURM job killed", "what came after the last checkpoint; queued again by the sweep"),
)


def submitted(cluster: Cluster, name: str, times: int) -> "subprocess.Popen[str]":
    """A sweep of one job at a time, so that a preemption hits no other."""
    seeds = ",".join(map(str, range(times)))
    return cluster.sweep(name, "pos=rope", f"seed={seeds}", *ON_SLURM, "hydra.launcher.array_parallelism=1")


def recovered(cluster: Cluster, name: str, fault: Fault, times: int) -> int:
    """How many jobs ended with the curve of an undisturbed run, each after one fault."""
    sweep = submitted(cluster, name, times)
    for seed, job in enumerate(jobs_of(sweep)):
        fault(cluster, cluster.held_still(name, "rope", seed), job)
    sweep.communicate()
    same = [cluster.curve(name, "rope", seed) == cluster.curve("undisturbed", "rope", seed) for seed in range(times)]
    return sum(same) * (sweep.returncode == 0)


def given_up(cluster: Cluster, times: int) -> int:
    """How many jobs were given up in a sentence, each after it was killed twice."""

    def kill_twice(seed: int) -> None:
        run = cluster.held_still("lost", "rope", seed)
        run.kill()
        cluster.held_still("lost", "rope", seed, after=run.step).kill()

    sweep = submitted(cluster, "lost", times)
    with ThreadPoolExecutor(times) as pool:
        list(pool.map(kill_twice, range(times)))
    said = sweep.communicate()[1]
    told = sum("and is not retried" in failure["error"] for failure in failed_jobs(cluster.folder / "lost"))
    return told * (sweep.returncode == 1 and "Traceback" not in said)


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: jobs that each fault befalls.
    """
    if MISSING:
        return
    with Cluster(folder) as cluster:
        cluster.sweep("undisturbed", "pos=rope", f"seed={','.join(map(str, range(times)))}").communicate()
        for name, fault, words, lost in RECOVERABLE:
            yield Outcome(words, times, recovered(cluster, name, fault, times), lost)
        lost = "given up, naming node, run and last step; the sweep goes on and exits with 1"
        yield Outcome("SLURM job killed twice", times, given_up(cluster, times), lost)
