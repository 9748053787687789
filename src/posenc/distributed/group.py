"""What the processes of a run do together: they begin, tell each other, train, and end as one."""

import atexit
import functools
import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import Any

from posenc.distributed.heartbeat import Watch
from posenc.distributed.launch import started
from posenc.distributed.rank import Place, place
from posenc.distributed.rendezvous import LOST, meeting
from posenc.errors import MISUSE, Echo, RunError, UserError

POLL = 0.05
"""Seconds between two looks at what the others say, at the start."""

PATIENCE = 600.0
"""Seconds to wait for all of them at the start."""

_runs = itertools.count()
"""Those that processes started together have trained, one after the other."""


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
        task: what `posenc.training.worker` is to be told, if they are to be started.
    """
    with ExitStack() as stack:
        if world == 1:
            yield Together(Place())
            return
        if place().world > 1:
            _part_at_the_end()
            yield Together(place(), meeting(), run=next(_runs))
            return
        children = stack.enter_context(started(world, task))
        stack.callback(_part)
        yield Together(place(), meeting(), children)


@functools.cache
def _part_at_the_end() -> None:
    """A group that is left behind when Python ends now and then aborts the process."""
    atexit.register(_part)


def _part() -> None:
    """Leave torch's group of processes."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
