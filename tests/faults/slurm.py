"""What befalls the jobs of a sweep on a SLURM cluster; nothing is tried where SLURM is absent."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from posenc.directory import failed_jobs
from tests.faults.outcome import Outcome
from tests.slurm.cluster import MISSING, ON_SLURM, Cluster, Held, jobs_of

Fault = Callable[[Cluster, Held, str], None]
"""Done to a run that is held still in mid-training, and its job."""


def preempted(cluster: Cluster, run: Held, job: str) -> None:  # noqa: ARG001
    cluster.preempt()


def signalled(cluster: Cluster, run: Held, job: str) -> None:
    cluster.signal(job, "USR1")
    run.go_on()


def killed(cluster: Cluster, run: Held, job: str) -> None:  # noqa: ARG001
    run.kill()


SAVED = "nothing: saved at that very step, back in the queue by itself"
RECOVERABLE: tuple[tuple[str, Fault, str], ...] = (
    ("preempted", preempted, SAVED),
    ("signalled", signalled, SAVED),
    ("killed", killed, "what came after the last checkpoint; queued again within 10 s"),
)
WORDS = {
    "preempted": "SLURM job preempted",
    "signalled": "SLURM job signalled ahead of its time limit",
    "killed": "SLURM job killed outright",
}


def one_at_a_time(cluster: Cluster, name: str, times: int) -> "subprocess.Popen[str]":
    seeds = ",".join(map(str, range(times)))
    return cluster.sweep(name, "pos=rope", f"seed={seeds}", *ON_SLURM, "hydra.launcher.array_parallelism=1")


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: jobs that each fault befalls.
    """
    if MISSING:
        return
    with Cluster(folder) as cluster:
        seeds = range(times)
        whole = cluster.sweep("undisturbed", "pos=rope", f"seed={','.join(map(str, seeds))}")
        whole.communicate()
        for name, fault, lost in RECOVERABLE:
            sweep = one_at_a_time(cluster, name, times)
            for seed, job in zip(seeds, jobs_of(sweep), strict=True):
                fault(cluster, cluster.held_still(name, "rope", seed), job)
            sweep.communicate()
            same = [cluster.curve(name, "rope", seed) == cluster.curve("undisturbed", "rope", seed) for seed in seeds]
            yield Outcome(WORDS[name], times, sum(same) * (sweep.returncode == 0), lost)

        sweep = one_at_a_time(cluster, "lost", times)
        for seed in seeds:
            run = cluster.held_still("lost", "rope", seed)
            run.kill()
            cluster.held_still("lost", "rope", seed, after=run.step).kill()
        said = sweep.communicate()[1]
        told = sum("and is given up" in failure["error"] for failure in failed_jobs(cluster.folder / "lost"))
        given_up = told * (sweep.returncode == 1 and "Traceback" not in said)
        yield Outcome("SLURM job killed twice", times, given_up, "given up, naming node, run and last step; exit 1")
