"""A thread that ends the process after a signal even if a library blocks the main thread.

Python runs signal handlers in the main thread, between two bytecode instructions, and one call into C may take minutes.
The wakeup file descriptor is written by the C handler itself, at once.
"""

import io
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from posenc.distributed import this_rank
from posenc.distributed.stop_signals import AT_ONCE

MARGIN = 1.5
"""Seconds after that until the process exits without any cleanup."""

REPEATED = 0.5
"""Seconds after which a Ctrl-C is a second one: Python's handlers, too, take two in a shorter time for one."""


class Watchdog:
    """Must be created in the main thread; its own thread starts at once.

    Args:
        signals: those after which the process is expected to end.
        wait: seconds from a signal until its handler ends the process.
        busy: whether the process may take longer, such as for writing a checkpoint.
    """

    def __init__(self, signals: Collection[int], wait: Callable[[int], float], busy: Callable[[], bool]) -> None:
        self._signals, self._wait, self._busy = signals, wait, busy
        self._stopped = threading.Event()
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._writing, self._wakeup_before = writing, signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reading,), daemon=True).start()

    def stop(self) -> None:
        """From now on the process is not ended: it is leaving, and what is left to do has time limits of its own."""
        self._stopped.set()

    def close(self) -> None:
        """Stop, and end the thread."""
        self.stop()
        if (current := signal.set_wakeup_fd(self._wakeup_before)) != self._writing:  # of another library
            signal.set_wakeup_fd(current)
        os.close(self._writing)

    def _watch(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as pipe:
            while received := pipe.read(1):  # until the other end is closed
                if received[0] in self._signals:
                    self._wait_for_end(received[0], pipe)

    def _wait_for_end(self, signum: int, pipe: io.FileIO) -> None:
        since = time.monotonic()
        until = since + self._wait(signum) + MARGIN
        while not self._stopped.is_set():
            received = select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]
            again = pipe.read(1) if received else b""
            if self._stopped.is_set() or (received and not again):  # the other end is closed
                return
            if not received and self._busy():
                until += self._wait(signum) + MARGIN
            elif not received or (again[0] == signum == signal.SIGINT and time.monotonic() - since > REPEATED):
                exit_at_once(signum)


def exit_at_once(signum: int) -> None:
    """Exit without cleanup: partial files are recognised by their names and removed when the run is resumed."""
    if this_rank().is_zero:
        with suppress(OSError):
            os.write(2, f"\n{AT_ONCE}\n".encode())
    os._exit(128 + signum)
