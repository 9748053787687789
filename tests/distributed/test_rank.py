"""The rank of a process, from what torchrun or srun tells it."""

import pytest

from posenc.distributed.rank import Rank, first_host, from_srun, tasks_on, this_rank
from posenc.errors import UserError

TOLD = {
    "RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost", "MASTER_PORT": "1",
}  # fmt: skip


def test_a_rank_is_what_torchrun_says_and_one_that_is_not_told_all_is_the_only_one(monkeypatch):
    for name, value in TOLD.items():
        monkeypatch.setenv(name, value)
    assert this_rank() == Rank(1, 4, 1, 2)
    for name in TOLD:
        with monkeypatch.context() as patch:
            patch.delenv(name)
            assert this_rank() == Rank(0, 1, 0, 1)


@pytest.mark.parametrize(("name", "value"), [("RANK", "4"), ("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "5")])
def test_a_rank_as_large_as_its_world_and_a_node_larger_than_it_are_refused(name, value, monkeypatch):
    for key, told in {**TOLD, name: value}.items():
        monkeypatch.setenv(key, told)
    with pytest.raises(UserError, match=f"{name}={value} .*contradict each other"):
        this_rank()


SRUN = {
    "SLURM_JOB_ID": "123456", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "20", "SLURM_PROCID": "17",
    "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
    "SLURM_STEP_NODELIST": "gpu[07-08,11],big1",
}  # fmt: skip


def test_srun_tells_each_task_its_rank():
    assert from_srun(SRUN) == {
        "RANK": "17", "WORLD_SIZE": "20", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "gpu07", "MASTER_PORT": "23456",
    }  # fmt: skip


def test_the_ranks_of_two_jobs_and_of_two_steps_of_a_job_meet_at_different_ports():
    """They may be on one node at the same time."""
    changed: tuple[dict[str, str], ...] = ({}, {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "123457"})
    assert len({from_srun({**SRUN, **one})["MASTER_PORT"] for one in changed}) == 3


def test_a_job_s_only_task_and_a_batch_script_are_by_themselves():
    """In a batch script SLURM_PROCID and SLURM_NTASKS are set, too: those of a step are not."""
    assert from_srun({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) == {}
    assert from_srun({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}) == {}


@pytest.mark.parametrize(
    ("nodes", "first"), [("vm", "vm"), ("n1,n2", "n1"), ("gpu[01-16]", "gpu01"), ("a[3,5]b-ib,c", "a3b-ib")]
)
def test_the_first_of_slurm_s_nodes(nodes, first):
    assert first_host(nodes) == first


def test_slurm_s_tasks_a_node():
    assert [tasks_on("8(x2),4", node) for node in range(3)] == [8, 8, 4]
