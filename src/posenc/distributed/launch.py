"""Starts the ranks of a run on this machine, if neither torchrun nor srun has done so.

Uses torch's elastic multiprocessing, as torchrun does, which ends all ranks when one fails.
"""

import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from posenc.distributed.group import LOST, REPORT, TASK, own_keys
from posenc.errors import MISUSE, RunError, Stopped, UserError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext

ADDRESS = "127.0.0.1"

SAVING = 30
"""Seconds that ranks have to save the run after a signal, as with torchrun and SLURM."""

AT_ONCE = "stopped at once; the same command resumes from the last checkpoint"

LAUNCHER = "POSENC_LAUNCHER"
"""Environment variable of the ranks with the process id of their launcher."""

TIME_LIMIT_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that SLURM sends well before a job's time limit; the grace period is that of several ranks."""


def launch(module: str, world_size: int, task: Mapping[str, Any]) -> None:
    """Run `python -m module` as several ranks, one process each, with a task of plain data in their store.

    Raises:
        UserError, RunError, Stopped: the error of the ranks.
    """
    import torch
    from torch.distributed import TCPStore
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, start_processes

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are reported in one sentence
    shared_store = TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
    store = own_keys(shared_store)
    store.set(TASK, json.dumps(task))
    shared = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(shared_store.port),
        "TORCHELASTIC_USE_AGENT_STORE": str(True),  # the store is not hosted by one of the ranks
        LAUNCHER: str(os.getpid()),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // world_size))),
    }
    ranks = range(world_size)
    commands = dict.fromkeys(ranks, ("-m", module))
    environments = {rank: {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks}
    before = _left_to_torch()
    try:
        started = start_processes("rank", sys.executable, commands, environments, DefaultLogsSpecs(os.devnull))
        code = _exit_code(started, before)
    except SignalException as received:  # while they were being started; they end with this process
        code = 128 + received.sigval
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if code == 0:
        return
    if code < 0:  # a rank was killed; the reported error may be that torch stopped the others
        raise RunError(LOST)
    sentence, reported = (AT_ONCE if code > 128 else LOST), code
    if store.check([REPORT]):
        sentence, reported = json.loads(store.get(REPORT))
    signum = (code if code > 128 else reported) - 128
    if signum <= 0:
        raise UserError(sentence) if reported == MISUSE else RunError(sentence)
    previous = before.get(signum)
    if callable(previous) and signum != signal.SIGINT:  # the cluster launcher's handler requeues the job
        print(sentence, file=sys.stderr, flush=True)
        with sigterm_ignored():
            previous(signum, None)
    raise Stopped(signum, sentence)


def stop_signals() -> list[signal.Signals]:
    """The signals that stop a run: SIGHUP unless nohup ignores it, and those of a time limit if they have a handler.

    The default action of the latter ends the process.
    """
    closed = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    ahead = [one for one in TIME_LIMIT_SIGNALS if callable(signal.getsignal(one))]
    return [signal.SIGINT, signal.SIGTERM, *closed, *ahead]


@contextmanager
def sigterm_ignored() -> Iterator[None]:
    """Context in which this process, and the commands that it starts, ignore SIGTERM.

    SLURM sends it to every process of a requeued job, also to a `scontrol requeue` that still waits for its answer.
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _left_to_torch() -> dict[int, Any]:
    """Tell torch which signals to handle; returns the handlers that it will replace."""
    if threading.current_thread() is not threading.main_thread():  # handlers can only be set there
        return {}
    handled = stop_signals()
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ",".join(one.name for one in handled)
    return {one: signal.getsignal(one) or signal.SIG_DFL for one in handled}


def _exit_code(ranks: "PContext", handled: Collection[int]) -> int:
    """Wait for the ranks, and forward signals to them; returns the exit code of the first that failed, or 0."""
    from torch.distributed.elastic.multiprocessing import SignalException

    try:
        ended = ranks.wait(period=0.1)
    except SignalException as received:
        for one in set(handled) - {signal.SIGINT}:  # while the ranks save the run, only Ctrl-C has an effect
            signal.signal(one, signal.SIG_IGN)
        with suppress(SignalException):
            ranks.close(signal.SIGINT if received.sigval == signal.SIGINT else signal.SIGTERM, SAVING)
        ranks.close(signal.SIGKILL)  # after a second Ctrl-C
        return 128 + received.sigval
    assert ended is not None  # it waits without a timeout
    return next((failure.exitcode for failure in ended.failures.values()), 0)


def end_with_parent(signum: int, parent: int) -> None:
    """Make Linux send this process a signal when its parent, given by its process id, dies, or if it has died."""
    pr_set_pdeathsig = 1  # linux/prctl.h
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(pr_set_pdeathsig, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)
