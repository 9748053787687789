"""Where the processes of a run meet, and which of them says why they end."""

import functools
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from posenc.distributed.rank import ADDRESS, place
from posenc.errors import RunError

STARTED_HERE = "POSENC_CHILD"
"""Set for processes that a run has started itself."""

CONNECTING = 60.0
"""Seconds to wait for the first process at the start."""

LINGER = 3.0
"""Seconds that the first process, where the others meet, stays after its last word, so that they can hear it."""

LOST = "another process of this run has died; the same command goes on from the last checkpoint"


@functools.cache
def _store(address: str, port: str) -> Any:
    """The keys that all processes see; they live with torchrun, otherwise with the first process, while it does.

    Raises:
        RuntimeError: if there is nobody to ask.
    """
    from torch.distributed import TCPStore

    patience = timedelta(seconds=CONNECTING)
    try:
        return TCPStore(address, int(port), None, hosts(), patience, wait_for_workers=False, multi_tenant=True)
    except RuntimeError as error:
        if not hosts():
            raise
        raise RunError(
            f"MASTER_ADDR={address}, MASTER_PORT={port}: the processes cannot meet there; is it in use?"
        ) from error


def hosts() -> bool:
    """Whether the processes meet in this one."""
    return place().rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def meeting() -> Any:
    return _store(*(os.environ[name] for name in ADDRESS))


def tell(sentence: str, code: int) -> None:
    """Say why all processes end, on stderr, if no other has said it before."""
    if first_to_tell(sentence, code):
        print(f"{os.path.basename(sys.argv[0])}: {sentence}", file=sys.stderr, flush=True)
    if place().world > 1 and hosts():
        time.sleep(LINGER)


def first_to_tell(sentence: str, code: int) -> bool:
    """Whether it falls to this process to say why all of them end: to the first of them that asks.

    A process that the run has started itself leaves its sentence to the one that started it.

    Args:
        sentence: why.
        code: the exit code.
    """
    here = place()
    if here.world == 1:
        return True
    try:
        store = meeting()
        if store.add("ended", 1) > 1:
            return False
        store.set("end", json.dumps([sentence, code]))
    except RuntimeError:  # nobody to ask: the first process has gone without a word
        return here.rank == 1
    return STARTED_HERE not in os.environ
