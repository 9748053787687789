"""Where the time of a run goes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

START, COMPILING, TRAINING, WAITING = "start", "compiling", "training", "waiting for a batch"
VALIDATION, PROBE, CHECKPOINTS, LOGGING, LOOP = "validation", "attention heads", "checkpoints", "logging", "loop"


class Timer:
    """A clock that always runs in exactly one phase, from the moment it is made.

    On a GPU work goes on behind the program's back: a phase must wait for it before it ends, as the rows of
    metrics.csv and the validations do.

    Attributes:
        seconds: spent in each phase so far, the present one left out.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._phase, self._since = START, time.perf_counter()

    def enter(self, phase: str) -> str:
        """End the present phase, which is returned, and begin another."""
        now, before = time.perf_counter(), self._phase
        self.seconds[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """A phase inside another, which resumes afterwards."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def spent(self) -> dict[str, float]:
        """Seconds in each phase up to now, the longest first."""
        self.enter(self._phase)
        return dict(sorted(self.seconds.items(), key=lambda item: -item[1]))
