"""Signals that ask a run to end, and when it does so."""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

from posenc.errors import Stopped

GRACE = 8.0
"""Seconds from a signal to the end, if no step ends before; what sends signals often kills 10 seconds later."""

GO_ON = "the same command goes on from there"


class Signals:
    """Between entering and leaving, a signal ends the process where that harms nothing.

    That is at once while nothing is trained; in training it is at the end of the step, when a checkpoint has been
    written, or after GRACE seconds without one. A second Ctrl-C ends it at once.

    SIGINT and SIGTERM are taken, and SIGUSR1 and SIGUSR2 if somebody waits for them. Who waited for a signal before
    is told after us: a launcher of cluster jobs then puts the job back into its queue.

    Attributes:
        received: the first signal so far.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        self._training = False

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread take signals
            wanted = {signal.SIGINT, signal.SIGTERM}
            wanted |= {one for one in (signal.SIGUSR1, signal.SIGUSR2) if callable(signal.getsignal(one))}
            self._before = {one: signal.getsignal(one) for one in wanted}
            self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self.saving()
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def _take(self) -> None:
        for one in self._before:
            signal.signal(one, self._receive)

    def training(self) -> None:
        """From now on a signal waits for the end of a step."""
        self._training = True
        self._take()  # back from Lightning, whose handler talks to other processes in the middle of whatever goes on

    def trained(self) -> None:
        """From now on a signal ends the process at once."""
        self._training = False

    def saving(self) -> None:
        """A checkpoint is being written, which may take longer than GRACE."""
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def stop(self, saved: str) -> None:
        """Grant what a signal asked for.

        Args:
            saved: what, and where.

        Raises:
            Stopped: always, unless who waited for the signal before leaves in another way.
        """
        assert self.received is not None
        told = self._before.get(self.received)
        stopped = Stopped(self.received, f"{_in_words(self.received)}: {saved}; {GO_ON}")
        if callable(told) and told is not signal.default_int_handler:
            print(stopped, file=sys.stderr, flush=True)
            told(self.received, None)
        raise stopped

    def _receive(self, signum: int, _: FrameType | None) -> None:
        if self.received is not None:
            if signum == signal.SIGINT:
                _leave_at_once(signum)
            return
        self.received = signum
        if self._training:
            signal.signal(signal.SIGALRM, self._out_of_time)
            signal.setitimer(signal.ITIMER_REAL, GRACE)
        else:
            self.stop("nothing was lost")

    def _out_of_time(self, *_: object) -> None:
        self.stop(f"no step ended within {GRACE:.0f} s, and the last checkpoint stays")


def _leave_at_once(signum: int) -> None:
    """Without any cleaning up: what is half-written is known by its name, and removed by the next start."""
    with suppress(OSError):
        os.write(2, b"\nstopped at once; the same command goes on from the last checkpoint\n")
    os._exit(128 + signum)


def _in_words(signum: int) -> str:
    return "stopped by Ctrl-C" if signum == signal.SIGINT else f"stopped by {signal.Signals(signum).name}"
