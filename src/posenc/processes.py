"""The processes that train one run together: which one this is, who starts them, and how they end as one.

torchrun says it in environment variables; what srun says is put into the same ones. Where nobody has started several,
the first process starts the others.
"""

import atexit
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from posenc.errors import MISUSE, Echo, RunError, UserError

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
OURS = "POSENC_CHILD"
"""Set for processes that a run has started itself."""

POLL, BEAT = 0.05, 2.0
"""Seconds between two looks at what the others say: at the start, and while training."""

MISSED = 15
"""Beats without a sign of life from a process that count as its death: half a minute."""

LINGER = 3.0
"""Seconds that the first process, where the others meet, stays after its last word, so that they can hear it."""

LEAVING = 15.0
"""Seconds to leave in order after the end was announced; who waits for a dead process would wait for ever."""

CONNECTING, PATIENCE = 60.0, 600.0
"""Seconds to wait for the first process, and for all of them, at the start."""

LOST = "another process of this run has died; the same command goes on from the last checkpoint"


_runs = itertools.count()
"""Those that processes started together have trained, one after the other."""


@dataclass(frozen=True)
class Place:
    """Which of the processes that were started together this one is, over all and among those of its machine."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1


def place() -> Place:
    """That of this process; by itself it is the only one."""
    if "RANK" not in os.environ:
        os.environ.update(from_srun(os.environ))  # where torch looks, too
    if any(name not in os.environ for name in (*PLACE, *ADDRESS)):
        return Place()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # before torch: it would warn of the death that we tell
    return Place(*(int(os.environ[name]) for name in PLACE))


def from_srun(environment: Mapping[str, str]) -> dict[str, str]:
    """Torch's variables, from those that srun sets for several tasks; none for a single one, or without srun."""
    if int(environment.get("SLURM_STEP_NUM_TASKS", 1)) == 1:
        return {}
    job, step = int(environment["SLURM_JOB_ID"]), int(environment["SLURM_STEP_ID"])
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(tasks_on(environment["SLURM_STEP_TASKS_PER_NODE"], int(environment["SLURM_NODEID"]))),
        "MASTER_ADDR": first_host(environment["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": str(20000 + (job + 1009 * step) % 10000),  # all know it, and two jobs on a machine differ
    }


def tasks_on(tasks_per_node: str, node: int) -> int:
    """Of SLURM's list of tasks a node, like 8(x2),4, the number on one of them."""
    runs = re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks_per_node)
    return [int(tasks) for tasks, times in runs for _ in range(int(times or 1))][node]


def first_host(nodes: str) -> str:
    """Of SLURM's list of nodes, like gpu[01-02,07],big1, the first."""
    return re.sub(r"\[([^],-]+)[^]]*\]", r"\1", nodes).partition(",")[0]


@functools.cache
def _store(address: str, port: str) -> Any:
    """The keys that all processes see; they live with torchrun, otherwise with the first process, while it does.

    Raises:
        RuntimeError: if there is nobody to ask.
    """
    from torch.distributed import TCPStore

    patience = timedelta(seconds=CONNECTING)
    try:
        return TCPStore(address, int(port), None, _hosts(), patience, wait_for_workers=False, multi_tenant=True)
    except RuntimeError as error:
        if not _hosts():
            raise
        raise RunError(
            f"MASTER_ADDR={address}, MASTER_PORT={port}: the processes cannot meet there; is it in use?"
        ) from error


def _hosts() -> bool:
    """Whether the processes meet in this one."""
    return place().rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _meeting() -> Any:
    return _store(*(os.environ[name] for name in ADDRESS))


def tell(sentence: str, code: int) -> None:
    """Say why all processes end, on stderr, if no other has said it before."""
    if first_to_tell(sentence, code):
        print(f"{os.path.basename(sys.argv[0])}: {sentence}", file=sys.stderr, flush=True)
    if place().world > 1 and _hosts():
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
        store = _meeting()
        if store.add("ended", 1) > 1:
            return False
        store.set("end", json.dumps([sentence, code]))
    except RuntimeError:  # nobody to ask: the first process has gone without a word
        return here.rank == 1
    return OURS not in os.environ


class Together:
    """This process among those that train the run together.

    Attributes:
        place: which it is.

    Args:
        where: likewise.
        store: the keys that all see; None if there is one process.
        children: those that this one has started.
        run: how many runs these processes have trained before.
    """

    def __init__(
        self, where: Place, store: Any = None, children: tuple[subprocess.Popen[str], ...] = (), run: int = 0
    ) -> None:
        self.place, self._store, self._children, self._run = where, store, children, run
        self._told = 0

    @property
    def first(self) -> bool:
        """Whether it is the one that writes."""
        return self.place.rank == 0

    def told(self, of: Callable[[], Any]) -> Any:
        """What the first process makes of it, plain data, which the others are told and wait for."""
        if self._store is None:
            return of()
        self._told += 1
        key = f"{self._run} told {self._told}"
        if self.first:
            value = of()
            self._store.set(key, json.dumps(value))
            return value
        self._wait(lambda: self._store.check([key]))
        return json.loads(self._store.get(key))

    @contextmanager
    def one_after_the_other(self) -> Iterator[None]:
        """The first process does this, then the others."""
        if self.first:
            yield
        self.told(lambda: None)
        if not self.first:
            yield

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Training together, once all are there; none of them goes on when one has died.

        Raises:
            RunError: if one of them has died.
        """
        if self._store is None:
            yield
            return
        self._store.add(f"{self._run} arrived", 1)
        begun = time.monotonic()
        self._wait(lambda: self._arrived(time.monotonic() - begun))
        watch = Watch(self.place, self._store.clone(), self._children, self._run)
        watch.start()
        try:
            yield
        except RuntimeError as error:
            if not lost_a_peer(error):
                raise
            raise self._reason() from error
        finally:
            watch.stop()

    def _arrived(self, waited: float) -> bool:
        there = self._store.add(f"{self._run} arrived", 0)
        if waited > PATIENCE:
            raise RunError(f"only {there} of {self.place.world} processes have come within {PATIENCE:.0f} s")
        return there == self.place.world

    def _wait(self, for_what: Callable[[], bool]) -> None:
        """Until it is so, or until another process has told why the run ends, or died."""
        try:
            while not for_what():
                if self._store.check(["end"]) or any(child.poll() is not None for child in self._children):
                    raise self._reason()
                time.sleep(POLL)
        except RuntimeError as error:
            raise RunError(LOST) from error

    def _reason(self) -> Exception:
        """Why the others have gone: what one has told, since it tells before it goes, or that it died."""
        with suppress(RuntimeError):
            if self._store.check(["end"]):
                sentence, code = json.loads(self._store.get("end"))
                if not self._children:
                    return Echo(sentence)
                return UserError(sentence) if code == MISUSE else RunError(sentence)
        return RunError(LOST)


class Watch(threading.Thread):
    """Ends this process when another one has told its end, or died: its own work may be waiting for it for ever.

    Each process gives a sign of life in every beat, and looks at those of the one before it. The time is counted in
    beats, so that processes that were all halted, and go on, do not take each other for dead.
    """

    def __init__(self, where: Place, store: Any, children: tuple[subprocess.Popen[str], ...], run: int) -> None:
        super().__init__(daemon=True, name="watch over the other processes")
        self.place, self.store, self.children, self.training = where, store, children, run
        self._stopped = threading.Event()
        self._seen, self._missed = 0, 0

    def stop(self) -> None:
        """Nothing that happens to the others matters any more."""
        self._stopped.set()
        with suppress(RuntimeError):
            self.store.set(f"{self.training} done {self.place.rank}", "")

    def run(self) -> None:
        while not self._stopped.wait(BEAT):
            sentence, code = self._end()
            if sentence is None:
                continue
            for child in self.children:  # so that this process, if it waits for one of them, waits no longer
                child.kill()
            if not self._stopped.wait(LEAVING):  # let it leave in order, if it can
                self._leave(sentence, code)

    def _leave(self, sentence: str, code: int) -> None:
        if self.children:
            print(f"{os.path.basename(sys.argv[0])}: {sentence}", file=sys.stderr, flush=True)
        else:
            tell(sentence, code)
        os._exit(code)

    def _end(self) -> tuple[str | None, int]:
        """Why the run is at its end, and the exit code; None while it is not."""
        try:
            self.store.add(f"{self.training} beat {self.place.rank}", 1)
            if self.store.check(["end"]):
                sentence, code = json.loads(self.store.get("end"))
                return sentence, code
            before = (self.place.rank - 1) % self.place.world
            beats = self.store.add(f"{self.training} beat {before}", 0)
            done = self.store.check([f"{self.training} done {before}"])
        except RuntimeError:
            return LOST, 1
        self._missed = 0 if beats != self._seen or done else self._missed + 1
        self._seen = beats
        if self._missed < MISSED:
            return None, 0
        return f"process {before} of this run has given no sign of life for {MISSED * BEAT:.0f} s", 1


def lost_a_peer(error: BaseException) -> bool:
    """Whether this is how the death of another process shows: with gloo, and with NCCL."""
    signs = ("by peer", "broken pipe", "connection closed", "remote process exit", "communicator was aborted")
    return any(sign in str(error).lower() for sign in signs)


@contextmanager
def quiet_unless_first() -> Iterator[None]:
    """All processes but the first print nothing; what has gone wrong they still say."""
    if place().rank == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


@contextmanager
def together(world: int, task: Mapping[str, Any]) -> Iterator[Together]:
    """This process with the others, which are started on this machine unless they were started with it.

    Args:
        world: how many there are to be.
        task: what `posenc.training.process` is to be told, if they are to be started.
    """
    with ExitStack() as stack:
        if world == 1:
            yield Together(Place())
            return
        if place().world > 1:
            _part_at_the_end()
            yield Together(place(), _meeting(), run=next(_runs))
            return
        children = stack.enter_context(_others(world, task))
        stack.callback(_part)
        yield Together(place(), _meeting(), children)


@contextmanager
def _others(world: int, task: Mapping[str, Any]) -> Iterator[tuple[subprocess.Popen[str], ...]]:
    """The other processes on this machine; they do not outlive this one's interest in them."""
    variables = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
    variables["MASTER_PORT"] = str(_free_port())
    children = []
    with _set(os.environ, {**variables, "RANK": "0", "LOCAL_RANK": "0"}):
        for rank in map(str, range(1, world)):
            environment = {**os.environ, "RANK": rank, "LOCAL_RANK": rank, OURS: "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
            command = [sys.executable, "-m", "posenc.training.process"]
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


@functools.cache
def _part_at_the_end() -> None:
    """A group that is left behind when Python ends now and then aborts the process."""
    atexit.register(_part)


def _part() -> None:
    """Leave torch's group of processes."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
