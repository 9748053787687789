"""Which of the ranks of a run this process is: torchrun and srun say it in environment variables."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

from posenc.errors import UserError

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
ADDRESS = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """One of `world_size` ranks over all machines, and of `local_world_size` on its own."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def is_zero(self) -> bool:
        """Whether it is the one that prints and writes."""
        return self.rank == 0


def this_rank() -> Rank:
    """That of this process; by itself it is the only one."""
    if any(name not in os.environ for name in (*VARIABLES, *ADDRESS)):
        return Rank()
    for name in VARIABLES:
        if not os.environ[name].isdecimal():
            value = os.environ.pop(name)  # without it this process is alone, and says so itself
            raise UserError(f"the environment's {name}={value} must be a whole number, as torchrun sets it")
    here = Rank(*(int(os.environ[name]) for name in VARIABLES))
    if not (here.rank < here.world_size and here.local_rank < here.local_world_size <= here.world_size):
        given = " ".join(f"{name}={os.environ.pop(name)}" for name in VARIABLES)
        raise UserError(f"the environment's {given} contradict each other: a rank is below the number of ranks")
    return here


def adopt_srun() -> None:
    """Put what srun says of this rank into torchrun's variables, where torch and Lightning look, too.

    It must come before torch is imported, whose C++ would log the death of a peer beside our sentence.
    """
    if "RANK" not in os.environ:
        os.environ.update(from_srun(os.environ))
    if this_rank().world_size > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def from_srun(environment: Mapping[str, str]) -> dict[str, str]:
    """Torchrun's variables, from those that srun sets for several tasks; none for a single one, or without srun."""
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if not tasks.isdecimal():
        raise UserError(f"the environment's SLURM_STEP_NUM_TASKS={tasks} must be a whole number, as srun sets it")
    if int(tasks) == 1:
        return {}
    job, step = int(environment["SLURM_JOB_ID"]), int(environment["SLURM_STEP_ID"])
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(tasks_on(environment["SLURM_STEP_TASKS_PER_NODE"], int(environment["SLURM_NODEID"]))),
        "MASTER_ADDR": first_host(environment["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(20000 + (job + 1009 * step) % 10000),  # all know it, and two jobs on a machine differ
    }


def tasks_on(tasks_per_node: str, node: int) -> int:
    """Of SLURM's list of tasks a node, like 8(x2),4, the number on one of them."""
    runs = re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks_per_node)
    return [int(tasks) for tasks, times in runs for _ in range(int(times or 1))][node]


def first_host(nodes: str) -> str:
    """Of SLURM's list of nodes, like gpu[01-02,07],big1, the first."""
    return re.sub(r"\[([^],-]+)[^]]*\]", r"\1", nodes).partition(",")[0]


@contextmanager
def rank_zero_output() -> Iterator[None]:
    """Ranks other than 0 print nothing on stdout; what has gone wrong they still report."""
    if this_rank().is_zero:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield
