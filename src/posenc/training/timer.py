"""Where the time of a run goes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

START, COMPILING, TRAINING, WAITING = "start", "compiling", "training", "waiting for a batch"
VALIDATION, PROBE, CHECKPOINTS, LOGGING, LOOP = "validation", "attention heads", "checkpoints", "logging", "loop"


class Timer:
    """Measures the time spent in each phase; always in exactly one phase, starting when it is created.

    GPU work is asynchronous: a phase must synchronise the device before it ends, as the rows of metrics.csv and the
    validations do.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)  # of each completed phase
        self._phase, self._since = START, time.perf_counter()

    def enter(self, phase: str) -> str:
        """Start a phase; returns the one that ends."""
        now, before = time.perf_counter(), self._phase
        self.seconds[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """Context of a phase; afterwards the previous phase resumes."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def spent(self) -> dict[str, float]:
        """Seconds in each phase so far, the longest first."""
        self.enter(self._phase)
        return dict(sorted(self.seconds.items(), key=lambda item: -item[1]))
