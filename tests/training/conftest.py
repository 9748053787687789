import signal
from types import SimpleNamespace

import pytest

from posenc.training import watchdog


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """A clock that goes on only where it is told to."""
    clock = SimpleNamespace(now=0.0)
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"time.{name}", lambda: clock.now)
    return clock


@pytest.fixture
def as_before(monkeypatch):
    """A process that was stopped by Ctrl-C hears no other; this one goes on, also if it was slow to stop."""
    monkeypatch.setattr(watchdog, "MARGIN", 60)
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
