"""Communication between ranks, here one after the other in this process."""

import signal
import threading

import pytest
import torch.distributed as dist

from posenc.distributed import group
from posenc.errors import RunError, Stopped


@pytest.fixture
def become(monkeypatch):
    """Makes this process one of two ranks, in an attempt of torchrun, whose store remains."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": server.port, "TORCHELASTIC_USE_AGENT_STORE": True}
    monkeypatch.setattr(group.atexit, "register", lambda _: None)

    def rank(number: int, attempt: int) -> None:
        own = {"RANK": number, "LOCAL_RANK": number, "TORCHELASTIC_RESTART_COUNT": attempt}
        for name, value in {**address, **own, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}.items():
            monkeypatch.setenv(name, str(value))
        group._connection.cache_clear()

    yield rank
    group._connection.cache_clear()


def test_ranks_that_torchrun_starts_again_see_nothing_of_the_attempt_that_failed(become):
    become(0, attempt=0)
    assert [group.broadcast(lambda: "step 10"), group.broadcast(lambda: "step 20")] == ["step 10", "step 20"]
    become(1, attempt=0)
    assert group.broadcast(lambda: None) == "step 10"
    assert group.first_to_report("out of memory", 1)  # before the second broadcast
    become(0, attempt=1)
    assert group.broadcast(lambda: "step 30") == "step 30"
    become(1, attempt=1)
    assert group.broadcast(lambda: None) == "step 30"
    assert group.first_to_report("out of memory", 1)
    become(0, attempt=1)
    assert not group.first_to_report("out of memory", 1)


def test_an_error_of_nccl_is_told_apart_from_a_rank_that_died(become):
    become(0, attempt=0)
    duplicate = "NCCL error in: /pytorch/NCCLUtils.cpp:88, invalid usage\nDuplicate GPU detected : rank 1 and rank 0"
    told = {
        dist.DistBackendError(duplicate): "^the ranks cannot communicate: Duplicate GPU detected : rank 1 and rank 0 ",
        dist.DistBackendError("NCCL: remote process exited"): f"^{group.LOST}$",
        dist.DistNetworkError("The client socket has failed to connect"): f"^{group.LOST}$",
        dist.DistBackendError("Cuda failure 2 'out of memory'"): None,
        RuntimeError("mat1 and mat2 shapes"): None,
    }
    for error, sentence in told.items():
        with pytest.raises(RunError if sentence else type(error), match=sentence), group.named_peer_failures():
            raise error


def test_a_store_that_cannot_be_hosted_is_tried_once_and_reported_by_rank_0(become, monkeypatch):
    become(0, attempt=0)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE")  # so that rank 0 hosts it, at a port that is taken
    port = group.os.environ["MASTER_PORT"]
    for _ in range(2):
        with pytest.raises(RunError, match=rf"^the ranks cannot connect at 127\.0\.0\.1:{port}: "):
            group.store()
    assert group._connection.cache_info().misses == 1
    assert group.first_to_report("in use", 1)
    for name, value in (("RANK", "2"), ("WORLD_SIZE", "3"), ("LOCAL_WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    assert not group.first_to_report("in use", 1)


def test_a_rank_that_waits_for_rank_0_stops_at_a_signal(become):
    def stop(signum, _):
        raise Stopped(signum, "stopped")

    become(0, attempt=0)
    store, decided = group.store(), threading.Event()

    def decide():
        decided.set()
        store.set("broadcast 1", "1")

    late = threading.Timer(5, decide)
    become(1, attempt=0)
    before = signal.signal(signal.SIGALRM, stop)
    late.start()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Stopped):
            group.broadcast(lambda: None)
        assert not decided.is_set()
    finally:
        late.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
