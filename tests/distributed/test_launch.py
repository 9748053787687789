"""What the ranks that a process starts are told."""

import pytest
import torch

from posenc.distributed.launch import _environments


@pytest.mark.parametrize(("ranks", "given", "each"), [(2, None, "4"), (3, None, "2"), (16, None, "1"), (2, "5", "5")])
def test_ranks_share_the_threads_of_the_process_that_starts_them(ranks, given, each, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    told = _environments(ranks, port=1)
    assert [(one["RANK"], one["OMP_NUM_THREADS"]) for one in told.values()] == [
        (str(rank), each) for rank in range(ranks)
    ]
