"""Starts the ranks of a run on this machine, if neither torchrun nor srun has done so.

Uses torch's elastic multiprocessing, as torchrun does, which ends all ranks when one fails.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from posenc.distributed.group import LOST, REPORT, TASK, own_keys
from posenc.distributed.stop_signals import AT_ONCE, sigterm_ignored, stop_signals
from posenc.errors import MISUSE, RunError, Stopped, UserError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext

ADDRESS = "127.0.0.1"

SAVING = 30
"""Seconds that ranks have to save the run after a signal, as with torchrun and SLURM."""

LAUNCHER = "POSENC_LAUNCHER"
"""Environment variable of the ranks with the process id of their launcher."""


def launch(module: str, world_size: int, task: Mapping[str, Any]) -> None:
    """Run `python -m module` as several ranks, one process each, with a task of plain data in their store.

    Raises:
        UserError, RunError, Stopped: the error of the ranks.
    """
    from torch.distributed import TCPStore
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, start_processes

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are reported in one sentence
    shared_store = TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
    store = own_keys(shared_store)
    store.set(TASK, json.dumps(task))
    commands = dict.fromkeys(range(world_size), ("-m", module))
    environments = _environments(world_size, shared_store.port)
    before = _left_to_torch()
    try:
        started = start_processes("rank", sys.executable, commands, environments, DefaultLogsSpecs(os.devnull))
        code = _exit_code(started, before)
    except SignalException as received:  # while they were being started; they end with this process
        code = 128 + received.sigval
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    if code:
        _raise_reported(code, json.loads(store.get(REPORT)) if store.check([REPORT]) else None, before)


def _environments(world_size: int, port: int) -> dict[int, dict[str, str]]:
    """The environment variables of each rank, as torchrun sets them, with the store at a port of this machine."""
    import torch

    shared = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": str(True),  # the store is not hosted by one of the ranks
        LAUNCHER: str(os.getpid()),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // world_size))),
    }
    return {rank: {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world_size)}


def _raise_reported(code: int, report: tuple[str, int] | None, before: Mapping[int, Any]) -> NoReturn:
    """Raise the error that a rank has reported, or what the exit code says of ranks that could not report one.

    Args:
        before: the handlers of this process, by signal.
    """
    if code < 0:  # a rank was killed; the reported error may be that torch stopped the others
        raise RunError(LOST)
    sentence, reported = report or (AT_ONCE if code > 128 else LOST, code)
    signum = (code if code > 128 else reported) - 128
    if signum <= 0:
        raise UserError(sentence) if reported == MISUSE else RunError(sentence)
    previous = before.get(signum)
    if callable(previous) and signum != signal.SIGINT:  # the cluster launcher's handler requeues the job
        print(sentence, file=sys.stderr, flush=True)
        with sigterm_ignored():
            previous(signum, None)
    raise Stopped(signum, sentence)


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
