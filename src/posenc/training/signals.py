"""Signals that ask a run to end, and when it does so."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from posenc.distributed import this_rank
from posenc.distributed.launch import AHEAD
from posenc.errors import Stopped

GRACE = 7.0
"""Seconds from a signal to the end, if no step ends before; what sends signals often kills 10 seconds later."""

LIMIT = 1.5
"""Seconds on top where Python itself gets no turn, since a library is at work; then nothing is cleaned up."""

SEVERAL = 18.0
"""Seconds that several ranks get on top, to come to a row of metrics.csv: torchrun and SLURM kill 30 later."""


class Signals:
    """Between entering and leaving, a signal ends the process where that harms nothing.

    That is at once while nothing is trained; in training it is at the end of the step, when a checkpoint has been
    written, or after GRACE seconds without one. A second Ctrl-C ends it at once.

    SIGINT and SIGTERM are taken, and SIGUSR1 and SIGUSR2 if somebody waits for them. Who waited for a signal before
    hears it after us: a launcher of cluster jobs then puts the job back into its queue.

    Attributes:
        received: the first signal so far.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}
        self._training = self._several = False
        self._agreed: int | None = None
        self._saving = False
        self._reason = "nothing was lost, and the same command resumes"
        self._passed_on = False
        self._leaving = threading.Event()
        self._timer_before = (0.0, 0.0)

    @property
    def asked(self) -> int | None:
        """The signal that a training run is to stop for: one rank heeds its own, several what they agreed on."""
        return self._agreed if self._several else self.received

    def agree(self, largest: Callable[[int], int]) -> None:
        """Have all ranks stop if one of them has received a signal; all must call this.

        Args:
            largest: of the numbers that it is given in all ranks.
        """
        if self._several:
            self._agreed = largest(self.received or 0) or None

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread take signals
            wanted = {signal.SIGINT, signal.SIGTERM, signal.SIGALRM}
            wanted |= {one for one in AHEAD if callable(signal.getsignal(one))}
            self._before = {one: signal.getsignal(one) for one in wanted}
            self._timer_before = signal.setitimer(signal.ITIMER_REAL, 0)
            self._install()
            self._unraisable, sys.unraisablehook = sys.unraisablehook, self._raise_again
            self._watch()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.close(signal.set_wakeup_fd(self._wakeup_before))
            sys.unraisablehook = self._unraisable
        for one, handler in self._before.items():
            # The process is about to end: another Ctrl-C would only put a traceback into its last words.
            signal.signal(one, signal.SIG_IGN if one == self.received == signal.SIGINT else handler)
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, *self._timer_before)

    def training(self, several: bool = False) -> None:
        """From now on a signal waits for the end of a step, or, with several ranks, of a row of metrics.csv."""
        self._training, self._several = True, several
        self._install()  # back from Lightning: see `posenc.training.trainer`

    def trained(self) -> None:
        """From now on a signal ends the process at once; one that came too late for the last step does so now."""
        self._training = False
        if self.asked is not None:
            self.stop("the last step is saved; the same command writes its result")

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a checkpoint is being written, which may take as long as it does."""
        self._saving = True
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            yield
        finally:
            self._saving = False
            if self.received is not None:
                signal.setitimer(signal.ITIMER_REAL, self._grace(self.received))

    def stop(self, reason: str) -> None:
        """Grant what a signal asked for.

        Args:
            reason: what has been saved and where, and how to resume.

        Raises:
            Stopped: always, unless who waited for the signal before leaves in another way.
        """
        signum = self._agreed or self.received
        assert signum is not None
        self._reason = reason
        if self._training:  # what was to be saved is saved, and what is left to do has limits of its own
            self._leaving.set()
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        stopped = Stopped(signum, f"{_by(signum)}: {reason}")
        waiting = self._before.get(signum)
        if callable(waiting) and signum != signal.SIGINT and not self._passed_on:
            self._passed_on = True
            if this_rank().is_zero:
                print(stopped, file=sys.stderr, flush=True)
            self._saving = True  # putting a job back into its queue takes as long as the cluster's controller is busy
            try:
                waiting(signum, None)
            finally:
                self._saving = False
        raise stopped

    def _install(self) -> None:
        for one in self._before:
            signal.signal(one, self._grace_is_over if one == signal.SIGALRM else self._receive)

    def _receive(self, signum: int, _: FrameType | None) -> None:
        if self.received is not None:
            if signum == signal.SIGINT:
                _leave_at_once(signum)
            return
        self.received = signum
        if self._training:
            grace = self._grace(signum)
            self._reason = f"no step ended within {grace:.0f} s; the same command resumes from the last checkpoint"
            if not self._saving:
                signal.setitimer(signal.ITIMER_REAL, grace)
        else:
            self.stop(self._reason)

    def _grace_is_over(self, *_: object) -> None:
        self.stop(self._reason)

    def _grace(self, signum: int) -> float:
        return GRACE + (SEVERAL if self._several or signum in AHEAD else 0.0)

    def _raise_again(self, unraisable: Any) -> None:
        """Raise `Stopped` once more where it came at a place from which Python lets nothing out, such as __del__."""
        if isinstance(unraisable.exc_value, Stopped):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        else:
            self._unraisable(unraisable)

    def _watch(self) -> None:
        """Have a thread see to it that a signal ends the process even while a library keeps Python waiting."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._force_exit, args=(reading,), daemon=True).start()

    def _force_exit(self, reading: int) -> None:
        ending = set(self._before) - {signal.SIGALRM}
        with open(reading, "rb", buffering=0) as arrived:
            while received := arrived.read(1):  # the end comes when the other end is closed
                while received[0] in ending and not self._leaving.wait(self._grace(received[0]) + LIMIT):
                    if not self._saving:
                        _leave_at_once(received[0])


def _leave_at_once(signum: int) -> None:
    """Without any cleaning up: what is half-written is known by its name, and removed by the next start."""
    if this_rank().is_zero:
        with suppress(OSError):
            os.write(2, b"\nstopped at once; the same command resumes from the last checkpoint\n")
    os._exit(128 + signum)


def _by(signum: int) -> str:
    return "stopped by Ctrl-C" if signum == signal.SIGINT else f"stopped by {signal.Signals(signum).name}"
