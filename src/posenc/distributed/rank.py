"""Which of the processes that train one run together this one is.

torchrun says it in environment variables; what srun says is put into the same ones.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
ADDRESS = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """Which of the processes that were started together this one is, over all and among those of its machine."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1


def place() -> Place:
    """That of this process; by itself it is the only one."""
    if "RANK" not in os.environ:
        os.environ.update(from_srun(os.environ))  # where torch looks, too
    if any(name not in os.environ for name in (*PLACE, *ADDRESS)):
        return Place()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # before torch: it would warn of the death that we tell
    return Place(*(int(os.environ[name]) for name in PLACE))


def from_srun(environment: Mapping[str, str]) -> dict[str, str]:
    """Torch's variables, from those that srun sets for several tasks; none for a single one, or without srun."""
    if int(environment.get("SLURM_STEP_NUM_TASKS", 1)) == 1:
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
