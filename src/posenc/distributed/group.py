"""Communication between ranks apart from gradients: broadcast, rank 0 first, and which rank reports an error.

Uses the store of torch's rendezvous, which torchrun (or `launch`) hosts; under srun rank 0 does.
"""

import atexit
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from posenc.distributed.rank import this_rank
from posenc.errors import RunError, first_line, out_of_memory

CONNECTING = timedelta(minutes=10)
"""Timeout for all ranks to start."""

POLL = 0.1
"""Seconds between two looks at the store while rank 0, which may be tokenizing a large corpus, decides."""

LINGER = 3.0
"""Seconds that rank 0, if it hosts the store, waits after reporting an error, so that other ranks do not repeat it."""

TASK = "task"
"""Key of the task in the store that `launch` has started."""

REPORT = "report"
"""Key of the message and exit code of the first error."""

LOST = "another rank of this run has died or does not respond; the same command resumes from the last checkpoint"


def store() -> Any:
    """The key-value store shared by all ranks.

    Raises:
        RunError: if it cannot be hosted or reached.
    """
    shared = _connection()
    if isinstance(shared, RunError):
        raise shared
    return shared


@functools.cache
def _connection() -> Any:
    """The store, or the error of the only attempt to connect, which may have taken all of CONNECTING."""
    from torch.distributed import rendezvous

    atexit.register(_leave_process_group)
    try:
        shared, _, _ = next(rendezvous("env://", timeout=CONNECTING))
    except RuntimeError as error:
        address = ":".join(os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
        return RunError(f"the ranks cannot connect at {address}: {first_line(error)}")
    return own_keys(shared)


def own_keys(shared: Any) -> Any:
    """A store without the keys of torch, and of earlier attempts: `torchrun --max-restarts` keeps its store."""
    from torch.distributed import PrefixStore

    return PrefixStore(f"posenc/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", shared)


def _leave_process_group() -> None:
    """A process group that still exists when Python exits sometimes aborts the process."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def broadcast(decide: Callable[[], Any]) -> Any:
    """The result of `decide` on rank 0, JSON data. All ranks must call this, in the same order."""
    rank = this_rank()
    if rank.world_size == 1:
        return decide()
    key = f"broadcast {store().add(f'broadcasts of {rank.rank}', 1)}"
    if rank.is_zero:
        value = decide()
        store().set(key, json.dumps(value))
        return value
    while not store().check([key]):  # `get` would block, and with it the handlers of signals
        time.sleep(POLL)
    return json.loads(store().get(key))


@contextmanager
def rank_zero_first() -> Iterator[None]:
    """Context that rank 0 runs first, then the others."""
    if this_rank().is_zero:
        yield
    broadcast(lambda: None)
    if not this_rank().is_zero:
        yield


@contextmanager
def named_peer_failures() -> Iterator[None]:
    """Name the cause of an error of communication.

    Raises:
        RunError: in place of the errors of gloo, NCCL and the store when another rank has died or does not respond, or
            when the ranks cannot communicate.
    """
    try:
        yield
    except RuntimeError as error:
        sentence = _of_communication(error)
        if this_rank().world_size == 1 or sentence is None:
            raise
        raise RunError(sentence) from error


def _of_communication(error: RuntimeError) -> str | None:
    """What to say of an error of gloo, NCCL or the store; None for any other."""
    from torch.distributed import DistBackendError, DistNetworkError, DistStoreError

    signs = ("by peer", "broken pipe", "connection closed", "timed out", "remote process exit", "was aborted")
    if isinstance(error, DistNetworkError | DistStoreError) or any(sign in str(error).lower() for sign in signs):
        return LOST
    if not isinstance(error, DistBackendError) or out_of_memory(error):
        return None
    *_, reason = str(error).strip().splitlines()  # the lines before it name a source file of torch
    return f"the ranks cannot communicate: {reason} (NCCL_DEBUG=INFO logs more)"


def first_to_report(sentence: str, code: int) -> bool:
    """Whether this rank should print the error that ends the run: true for the first rank that calls this.

    For ranks started by `launch` it is false, since the parent process prints it.
    """
    rank = this_rank()
    if rank.world_size == 1:
        return True
    try:
        if store().add("errors", 1) > 1:
            return False
        store().set(REPORT, json.dumps([sentence, code]))
        return not store().check([TASK])
    except RunError:  # the ranks have never been connected, and perhaps only rank 0 has started
        return rank.rank <= 1
    except RuntimeError:  # rank 0, which hosted the store, has died without a message
        return rank.rank == 1


def report_error(sentence: str, code: int) -> None:
    """Print the error to stderr, once for all ranks."""
    if first_to_report(sentence, code):
        print(f"{os.path.basename(sys.argv[0])}: {sentence}", file=sys.stderr, flush=True)
    rank = this_rank()
    if rank.world_size > 1 and rank.is_zero and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
        time.sleep(LINGER)
