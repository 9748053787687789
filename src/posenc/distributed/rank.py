"""The rank of this process, from the environment variables of torchrun or srun."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

from posenc.errors import UserError

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
READ_BY_LIGHTNING = ("SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""At its import, as integers."""


@dataclass(frozen=True)
class Rank:
    """One of `world_size` ranks, `local_world_size` of which are on this node."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def is_zero(self) -> bool:
        """Whether this is rank 0, which prints and writes files."""
        return self.rank == 0


def this_rank() -> Rank:
    """The rank of this process; the only one if there are no variables.

    Raises:
        UserError: if the variables are invalid.
    """
    for name in (*VARIABLES, *READ_BY_LIGHTNING):
        if not os.environ.get(name, "0").isdecimal():
            value = os.environ.pop(name)  # without it this process reports the error as a single rank
            raise UserError(f"the environment variable {name}={value} must be an integer, as set by torchrun or srun")
    if any(name not in os.environ for name in (*VARIABLES, *ADDRESS)):
        return Rank()
    rank = Rank(*(int(os.environ[name]) for name in VARIABLES))
    if not (rank.rank < rank.world_size and rank.local_rank < rank.local_world_size <= rank.world_size):
        given = " ".join(f"{name}={os.environ.pop(name)}" for name in VARIABLES)
        raise UserError(f"the environment variables {given} contradict each other: ranks must be below world sizes")
    return rank


def adopt_srun() -> None:
    """Translate srun's variables to torchrun's, which torch and Lightning also read.

    Must be called before torch is imported, whose C++ code would log the death of a peer in addition to our message.

    Raises:
        UserError: if they are incomplete or invalid.
    """
    if "RANK" not in os.environ:
        try:
            os.environ.update(from_srun(os.environ))
        except (KeyError, ValueError, IndexError) as error:
            raise UserError(f"srun's environment variables are incomplete or invalid: {error!r}") from error
    if this_rank().world_size > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def from_srun(environment: Mapping[str, str]) -> dict[str, str]:
    """Torchrun's variables from srun's; empty for a single task, or without srun."""
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if not tasks.isdecimal():
        raise UserError(f"the environment variable SLURM_STEP_NUM_TASKS={tasks} must be an integer, as set by srun")
    if int(tasks) == 1:
        return {}
    job, step = int(environment["SLURM_JOB_ID"]), int(environment["SLURM_STEP_ID"])
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(tasks_on(environment["SLURM_STEP_TASKS_PER_NODE"], int(environment["SLURM_NODEID"]))),
        "MASTER_ADDR": first_host(environment["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(20000 + (job + 1009 * step) % 10000),  # all ranks know it, and jobs on a node differ
    }


def tasks_on(tasks_per_node: str, node: int) -> int:
    """The number of tasks on a node, from SLURM's list of tasks per node, such as 8(x2),4."""
    runs = re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks_per_node)
    return [int(tasks) for tasks, times in runs for _ in range(int(times or 1))][node]


def first_host(nodes: str) -> str:
    """The first node of SLURM's node list, such as gpu[01-02,07],big1."""
    return re.sub(r"\[([^],-]+)[^]]*\]", r"\1", nodes).partition(",")[0]


@contextmanager
def rank_zero_output() -> Iterator[None]:
    """Context in which ranks other than 0 print nothing to stdout; errors are still reported."""
    if this_rank().is_zero:
        yield
        return
    with open(os.devnull, "w") as devnull, redirect_stdout(devnull):
        yield
