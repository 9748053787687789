"""Stopping a run at a signal."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from posenc.distributed import this_rank
from posenc.distributed.stop_signals import TIME_LIMIT_SIGNALS, sigterm_ignored, stop_signals
from posenc.errors import Stopped, first_line
from posenc.training.watchdog import Watchdog, exit_at_once

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy

GRACE = 4.5
"""Seconds after a signal to stop even if no step ends.

With those that W&B has to end, it is less than the 10 seconds after which many senders kill the process.
"""

CTRL_C_GRACE = 60.0
"""Additional seconds after Ctrl-C with a single rank: whoever presses it can press it again."""

MULTI_RANK_GRACE = 20.0
"""Additional seconds for several ranks to reach a row of metrics.csv; torchrun and SLURM kill after 30 seconds."""


class Signals:
    """Context in which a signal ends the process at a safe point.

    Outside of training that is immediately; during training it is after the current step, once a checkpoint has been
    written, or after GRACE and perhaps more seconds. A second Ctrl-C exits at once.

    SIGINT and SIGTERM are handled, SIGHUP unless nohup ignores it, and SIGUSR1 and SIGUSR2 if they have a handler. The
    previous handler of a signal is called afterwards: that of the cluster launcher requeues the job.
    """

    def __init__(self) -> None:
        self.received: int | None = None  # the first signal
        self._before: dict[int, Any] = {}
        self._training = self._multi_rank = False
        self._agreed: int | None = None
        self._saving = False
        self._reason = "nothing was lost, and the same command resumes"
        self._passed_on = False
        self._watchdog: Watchdog | None = None
        self._timer_before = (0.0, 0.0)
        self._second_wait = 0.0  # seconds to wait after the grace period

    @property
    def asked(self) -> int | None:
        """The signal to stop for: with a single rank the one received, otherwise the one all ranks agreed on."""
        return self._agreed if self._multi_rank else self.received

    def agree(self, strategy: "Strategy") -> None:
        """Make all ranks of Lightning's strategy stop if one has received a signal; all ranks must call this."""
        if self._multi_rank:
            import torch

            received = torch.tensor(self.received or 0, device=strategy.root_device)
            self._agreed = int(strategy.reduce(received, reduce_op="max")) or None

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # handlers can only be set there
            handled = {*stop_signals(), signal.SIGALRM}
            self._before = {one: signal.getsignal(one) or signal.SIG_DFL for one in handled}  # None: not from Python
            self._timer_before = signal.setitimer(signal.ITIMER_REAL, 0)
            self._install()
            self._unraisable, sys.unraisablehook = sys.unraisablehook, self._raise_again
            stopping = handled - {signal.SIGALRM}
            self._watchdog = Watchdog(stopping, self._longest_wait, busy=lambda: self._saving)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._watchdog is not None:
            self._watchdog.close()
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = self._unraisable
        # The process is about to exit: another Ctrl-C would only add a traceback to its last message, and the SIGTERM
        # that torchrun sends after the death of another rank would prevent it.
        ignored = {signal.SIGINT} if self.received == signal.SIGINT else set()
        if error is not None and this_rank().world_size > 1:
            ignored |= {signal.SIGTERM}
        for one, handler in self._before.items():
            signal.signal(one, signal.SIG_IGN if one in ignored else handler)
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, *self._timer_before)
        # Such as a full disk while the step was to be saved. Ranks die together, and report the error of the first.
        alone = self.received is not None and this_rank().world_size == 1 and not self._previous(self.received)
        if alone and isinstance(error, Exception):
            raise self._stopped(first_line(error)) from error

    def start_training(self, multi_rank: bool = False) -> None:
        """From now on a signal takes effect after a step or, with several ranks, after a row of metrics.csv."""
        self._training, self._multi_rank = True, multi_rank
        self._install()  # replaces Lightning's handlers: see `posenc.training.trainer`

    def end_training(self) -> None:
        """From now on a signal takes effect at once; stop if one arrived after the last step."""
        self._training = False
        if self.asked is not None:
            self.stop("the last step is saved; the same command writes its result")

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Context for writing a checkpoint, which has no time limit."""
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
        """Stop the process; the reason says what has been saved and where, and how to resume.

        Raises:
            Stopped: always, unless the previous handler of the signal raises something else.
        """
        self._reason, self._second_wait = reason, 0.0
        if self._training and self._watchdog is not None:  # what is left to do has time limits of its own
            self._watchdog.stop()
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        stopped = self._stopped(reason)
        previous = self._previous(stopped.signum)
        if previous and not self._passed_on:
            self._passed_on = True
            if this_rank().is_zero:
                print(stopped, file=sys.stderr, flush=True)
            self._saving = True  # requeueing a job may take long if the SLURM controller is busy
            try:
                with sigterm_ignored():
                    previous(stopped.signum, None)
            finally:
                self._saving = False
        raise stopped

    def _previous(self, signum: int) -> Callable[..., Any] | None:
        """The handler to be called after ours; Python's own of Ctrl-C would only raise a KeyboardInterrupt."""
        previous = self._before.get(signum)
        return previous if callable(previous) and signum != signal.SIGINT else None

    def _stopped(self, reason: str) -> Stopped:
        signum = self._agreed or self.received
        assert signum is not None
        by = "Ctrl-C" if signum == signal.SIGINT else signal.Signals(signum).name
        return Stopped(signum, f"stopped by {by}: {reason}")

    def _install(self) -> None:
        for one in self._before:
            signal.signal(one, self._grace_is_over if one == signal.SIGALRM else self._receive)

    def _receive(self, signum: int, _: FrameType | None) -> None:
        if self.received is not None:
            if signum == signal.SIGINT:
                exit_at_once(signum)
            return
        self.received = signum
        if self._training:
            grace, limit = self._grace(signum), self._longest_wait(signum)
            awaited = "row of metrics.csv was written" if self._multi_rank else "step ended"
            self._reason = f"no {awaited} within {limit:g} s; the same command resumes from the last checkpoint"
            self._second_wait = limit - grace
            if not self._saving:
                signal.setitimer(signal.ITIMER_REAL, grace)
        else:
            self.stop(self._reason)

    def _grace_is_over(self, *_: object) -> None:
        longer, self._second_wait = self._second_wait, 0.0
        if not longer:
            self.stop(self._reason)
        signal.setitimer(signal.ITIMER_REAL, longer)
        with suppress(OSError):  # of a pipe whose reader Ctrl-C has ended
            os.write(2, b"\nStopping after this step; a second Ctrl-C stops at once.\n")  # print is not reentrant

    def _grace(self, signum: int) -> float:
        return GRACE + (MULTI_RANK_GRACE if self._multi_rank or signum in TIME_LIMIT_SIGNALS else 0.0)

    def _longest_wait(self, signum: int) -> float:
        at_a_terminal = signum == signal.SIGINT and self._training and not self._multi_rank
        return self._grace(signum) + (CTRL_C_GRACE if at_a_terminal else 0.0)

    def _raise_again(self, unraisable: Any) -> None:
        """Raise `Stopped` again shortly if it was raised where Python ignores exceptions, such as in __del__."""
        if isinstance(unraisable.exc_value, Stopped):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        else:
            self._unraisable(unraisable)
