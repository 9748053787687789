from types import SimpleNamespace

import pytest


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """A clock that goes on only where it is told to."""
    clock = SimpleNamespace(now=0.0)
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"time.{name}", lambda: clock.now)
    return clock
