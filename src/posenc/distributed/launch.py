"""The other processes of a run that nobody else has started, on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

from posenc.distributed.heartbeat import LEAVING
from posenc.distributed.rendezvous import STARTED_HERE


@contextmanager
def started(world: int, task: Mapping[str, Any]) -> Iterator[tuple[subprocess.Popen[str], ...]]:
    """The other processes on this machine; they do not outlive this one's interest in them."""
    variables = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
    variables["MASTER_PORT"] = str(_free_port())
    children = []
    with _set(os.environ, {**variables, "RANK": "0", "LOCAL_RANK": "0"}):
        for rank in map(str, range(1, world)):
            environment = {
                **os.environ,
                "RANK": rank,
                "LOCAL_RANK": rank,
                STARTED_HERE: "1",
                "TORCH_CPP_LOG_LEVEL": "ERROR",
            }
            command = [sys.executable, "-m", "posenc.training.worker"]
            child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True)
            children.append(child)
            assert child.stdin is not None
            child.stdin.write(json.dumps(task))
            child.stdin.close()
        try:
            yield tuple(children)
            with suppress(subprocess.TimeoutExpired):
                for child in children:
                    child.wait(LEAVING)
        finally:
            for child in children:
                child.kill()
                child.wait()


@contextmanager
def _set(environment: MutableMapping[str, str], values: Mapping[str, str]) -> Iterator[None]:
    before = {name: environment.get(name) for name in values}
    environment.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
