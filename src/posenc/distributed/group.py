"""What ranks say to each other beside the gradients: a decision, "go on", and which of them reports an error.

It goes through the store of torch's rendezvous, which torchrun (or `launch`) keeps; under srun rank 0 does.
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
from posenc.errors import RunError

CONNECTING = timedelta(minutes=10)
"""For all ranks to have started."""

WAITING = timedelta(days=1)
"""For rank 0, which may be tokenizing a large corpus."""

LINGER = 3.0
"""Seconds that rank 0, where it keeps the store, stays after its last word, so that the others do not repeat it."""

TASK = "posenc/task"
"""What ranks find in the store that `launch` has started."""

REPORT = "posenc/report"
"""Sentence and exit code of the first error."""

LOST = "another rank of this run has died, or does not answer; the same command resumes from the last checkpoint"


@functools.cache
def store() -> Any:
    """The keys that all ranks see.

    Raises:
        RuntimeError: if nobody keeps them.
    """
    from torch.distributed import rendezvous

    atexit.register(_leave_process_group)
    keys, _, _ = next(rendezvous("env://", timeout=CONNECTING))
    keys.set_timeout(WAITING)
    return keys


def _leave_process_group() -> None:
    """A group that is left behind when Python ends now and then aborts the process."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def broadcast(decide: Callable[[], Any]) -> Any:
    """What rank 0 decides, plain data; the other ranks wait for it. All must call this, in the same order."""
    here = this_rank()
    if here.world_size == 1:
        return decide()
    key = f"posenc/broadcast {store().add(f'posenc/broadcasts of {here.rank}', 1)}"
    if here.is_zero:
        value = decide()
        store().set(key, json.dumps(value))
        return value
    return json.loads(store().get(key))


@contextmanager
def rank_zero_first() -> Iterator[None]:
    """Rank 0 does this, then the others."""
    if this_rank().is_zero:
        yield
    broadcast(lambda: None)
    if not this_rank().is_zero:
        yield


@contextmanager
def named_peer_failures() -> Iterator[None]:
    """
    Raises:
        RunError: in place of what gloo, NCCL and the store say when another rank has died or does not answer.
    """
    try:
        yield
    except RuntimeError as error:
        if this_rank().world_size == 1 or not _is_of_a_peer(error):
            raise
        raise RunError(LOST) from error


def _is_of_a_peer(error: RuntimeError) -> bool:
    from torch.distributed import DistError

    signs = ("by peer", "broken pipe", "connection closed", "timed out", "remote process exit", "was aborted")
    return isinstance(error, DistError) or any(sign in str(error).lower() for sign in signs)


def first_to_report(sentence: str, code: int) -> bool:
    """Whether it falls to this rank to say why all of them end: to the first that asks.

    Ranks that `launch` has started leave it to the process that started them.

    Args:
        sentence: why.
        code: the exit code.
    """
    here = this_rank()
    if here.world_size == 1:
        return True
    try:
        if store().add("posenc/errors", 1) > 1:
            return False
        store().set(REPORT, json.dumps([sentence, code]))
        return not store().check([TASK])
    except RuntimeError:  # rank 0, which kept the store, has died without a word
        return here.rank == 1


def report_error(sentence: str, code: int) -> None:
    """Say on stderr why the run ends, once for all ranks."""
    if first_to_report(sentence, code):
        print(f"{os.path.basename(sys.argv[0])}: {sentence}", file=sys.stderr, flush=True)
    here = this_rank()
    if here.world_size > 1 and here.is_zero and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
        time.sleep(LINGER)
