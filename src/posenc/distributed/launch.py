"""The ranks of a run on this machine, where neither torchrun nor srun has started any.

Torch starts them, watches over them and ends all when one fails, by the same means as torchrun.
"""

import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from posenc.distributed.group import LOST, REPORT, TASK
from posenc.errors import MISUSE, RunError, Stopped, UserError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext

ADDRESS = "127.0.0.1"

SAVING = 30
"""Seconds that ranks get for saving the run after a signal, as with torchrun and SLURM."""

AT_ONCE = "stopped at once; the same command resumes from the last checkpoint"

AHEAD = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that SLURM sends well before a job's time limit: they leave as much time as several ranks get."""


def launch(module: str, world_size: int, task: Mapping[str, Any]) -> None:
    """Train a run as several ranks, each a process of its own.

    Args:
        module: what each rank runs, as in `python -m`.
        world_size: how many ranks.
        task: what they find in the store, plain data.

    Raises:
        UserError, RunError, Stopped: what they ended with.
    """
    import torch
    from torch.distributed import TCPStore
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what happens is said in one sentence
    store = TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
    store.set(TASK, json.dumps(task))
    shared = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": str(True),  # torch's word for a store that is kept by none of the ranks
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // world_size))),
    }
    ranks = range(world_size)
    commands = dict.fromkeys(ranks, ("-m", module))
    environments = {rank: {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks}
    with _handlers_restored() as before:
        code = _exit_code(
            start_processes("rank", sys.executable, commands, environments, DefaultLogsSpecs(os.devnull)), before
        )
    if code == 0:
        return
    if code < 0:  # a rank was killed; the others may say so, or that torch stopped them
        raise RunError(LOST)
    reported = json.loads(store.get(REPORT)) if store.check([REPORT]) else (AT_ONCE if code > 128 else LOST, code)
    sentence, code = reported[0], code if code > 128 else reported[1]
    waiting = before.get(code - 128)
    if callable(waiting) and code - 128 != signal.SIGINT:  # a cluster's launcher puts the job back into its queue
        print(sentence, file=sys.stderr, flush=True)
        waiting(code - 128, None)
    raise _error(sentence, code)


def _exit_code(ranks: "PContext", before: Mapping[int, Any]) -> int:
    """Wait for the ranks, and pass a signal on to them: the exit code of the first that failed."""
    from torch.distributed.elastic.multiprocessing import SignalException

    try:
        _take_signals(before)
        ended = ranks.wait(period=0.1)
    except SignalException as asked:
        with suppress(SignalException):
            ranks.close(signal.SIGINT if asked.sigval == signal.SIGINT else signal.SIGTERM, SAVING)
        ranks.close(signal.SIGKILL)  # after a second Ctrl-C
        return 128 + asked.sigval
    assert ended is not None  # it waits for ever
    return next((failure.exitcode for failure in ended.failures.values()), 0)


@contextmanager
def _handlers_restored() -> Iterator[dict[int, Any]]:
    """Torch takes signals as torchrun does and keeps them; gives who took them before."""
    taken = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, *AHEAD)
    before: dict[int, Any] = {one: signal.getsignal(one) for one in taken}
    try:
        yield before
    finally:
        _set_handlers(before)


def _take_signals(before: Mapping[int, Any]) -> None:
    ahead: dict[int, Any] = {
        one: _ask for one in AHEAD if callable(before[one])
    }  # for others they mean the end of the process
    _set_handlers({**before, **ahead, signal.SIGINT: _ask, signal.SIGTERM: _ask})


def _set_handlers(handlers: Mapping[int, Any]) -> None:
    if threading.current_thread() is threading.main_thread():  # Python lets no other thread take signals
        for one, handler in handlers.items():
            if handler is not None:  # one that was not taken in Python
                signal.signal(one, handler)


def _ask(signum: int, _: FrameType | None) -> None:
    """Have the ranks save the run; after that only Ctrl-C is heard, which ends them at once."""
    from torch.distributed.elastic.multiprocessing import SignalException

    _set_handlers(dict.fromkeys((signal.SIGTERM, *AHEAD), signal.SIG_IGN))
    raise SignalException(f"stopped by signal {signum}", signal.Signals(signum))


def _error(sentence: str, code: int) -> BaseException:
    if code > 128:
        return Stopped(code - 128, sentence)
    return UserError(sentence) if code == MISUSE else RunError(sentence)


def end_with_parent(signum: int) -> None:
    """Have Linux send this process a signal when the one that started it dies, however it dies."""
    death_signal = 1  # PR_SET_PDEATHSIG: linux/prctl.h
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(death_signal, signum)
