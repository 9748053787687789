"""Signals that stop a run, and two of them."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.outcome import Outcome
from tests.faults.toy import Toy, same_curve

STOPS = {
    signal.SIGTERM: "SIGTERM in training",
    signal.SIGINT: "Ctrl-C in training",
    signal.SIGHUP: "the terminal closed in training (SIGHUP)",
}
PROMISED = 10.0
"""Seconds from a signal to the end."""


def stopped(toy: Toy, signum: int, after_rows: int, delay: float) -> tuple[int, float, str]:
    """Signal a run some time after a row: its exit code, the seconds it took to end, and what it said."""
    with toy.start() as process:
        toy.wait_for_rows(toy.written() + after_rows, process)
        time.sleep(delay)
        process.send_signal(signum)
        begun = time.monotonic()
        _, said = process.communicate(timeout=120)
    return process.returncode, time.monotonic() - begun, said


def twice(toy: Toy, between: float) -> tuple[int, str]:
    """Ctrl-C, and again before the first has been granted: exit code, and what was said."""
    with toy.start() as process:
        toy.wait_for_rows(toy.written() + 2, process)
        process.send_signal(signal.SIGINT)
        time.sleep(between)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    return process.returncode, said


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: stops by each of the signals, and by two of them.
    """
    chance = random.Random(0)
    whole, victim = Toy(folder / "whole", steps=4000), Toy(folder / "victim", steps=4000)
    whole.finish()
    tried = []
    for signum in STOPS:
        for _ in range(times):
            code, seconds, said = stopped(victim, signum, after_rows=1, delay=chance.uniform(0, 0.2))
            kept = code == 128 + signum and seconds < PROMISED and "is saved in" in said and "Traceback" not in said
            tried.append((signum, kept, seconds))
    doubled = [twice(victim, chance.uniform(0, 0.05)) for _ in range(times)]
    same = victim.finish().returncode == 0 and same_curve(whole, victim)
    for signum, name in STOPS.items():
        mine = [(kept, seconds) for one, kept, seconds in tried if one == signum]
        slowest = max(seconds for _, seconds in mine)
        lost = f"nothing: saved at that step, exit {128 + signum}, within {slowest:.1f} s"
        yield Outcome(name, times, sum(kept for kept, _ in mine) * same, lost)
    good = sum(code == 130 and "Traceback" not in said for code, said in doubled)
    yield Outcome("Ctrl-C twice", times, good * same, "at most what came after the last checkpoint; exit 130")
