"""The rank of a process, from what torchrun tells it."""

import pytest

from posenc.distributed.rank import Rank, this_rank
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
