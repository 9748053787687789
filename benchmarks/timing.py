"""Timing in interleaved rounds: a slow moment of the machine slows everything in its round.

Ratios are therefore computed within each round.
"""

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Name = TypeVar("Name")


class Spread(NamedTuple):
    """Median and range over the rounds."""

    median: float
    min: float
    max: float

    def text(self, form: str) -> str:
        """Like 1.23 (1.18 to 1.30), each number in the given format."""
        return f"{self.median:{form}} ({self.min:{form}} to {self.max:{form}})"


def spread(values: Iterable[float]) -> Spread:
    """Of one value per round."""
    every = list(values)
    return Spread(statistics.median(every), min(every), max(every))


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """One per round."""
    return [above / below for above, below in zip(numerators, denominators, strict=True)]


def elapsed(function: Callable[[], object], calls: int = 1) -> float:
    """Seconds per call, until the accelerator is idle."""
    from torch.utils.benchmark import timer  # here, since start.py does without torch

    start = timer()
    for _ in range(calls):
        function()
    return (timer() - start) / calls


def time_interleaved(
    functions: Mapping[Name, Callable[[], object]], rounds: int, calls: int = 1, warm_up: int = 1
) -> dict[Name, list[float]]:
    """Seconds per call, by function and round. Each round has an order of its own: none always follows another.

    Args:
        functions: by name.
        rounds: timed rounds.
        calls: consecutive calls of a function in a round.
        warm_up: untimed rounds before them.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in functions}
    names = list(functions)
    for number in range(warm_up + rounds):
        random.Random(number).shuffle(names)
        for name in names:
            seconds[name].append(elapsed(functions[name], calls))
    return {name: values[warm_up:] for name, values in seconds.items()}
