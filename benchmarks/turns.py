"""Contenders timed in turns in one process, and the table of what came out: for the scripts beside this file.

Whatever slows the machine slows all contenders of a round, so a ratio of two of them is taken within each round.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from posenc.storage.atomic import atomic_write


class Spread(NamedTuple):
    """A figure that was taken in every round."""

    median: float
    smallest: float
    largest: float

    def text(self, form: str) -> str:
        """Like 1.23 (1.18 to 1.30), each number in the given format."""
        return f"{self.median:{form}} ({self.smallest:{form}} to {self.largest:{form}})"


def spread(values: Iterable[float]) -> Spread:
    """Of one value a round."""
    every = list(values)
    return Spread(statistics.median(every), min(every), max(every))


def chosen(device: str) -> torch.device:
    """auto, cpu or cuda -> the device.

    Raises:
        ValueError: if this machine has no such device.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this machine has no CUDA GPU; use auto or cpu")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def in_turns(
    parts: Mapping[str, Callable[[], object]], rounds: int, device: torch.device, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds that each part took in each round. The part that goes first is another one every round.

    Args:
        parts: what is timed, under its name.
        rounds: how often.
        device: what is waited for before and after a part.
        warm_up: rounds before those that count.
    """
    times: dict[str, list[float]] = {name: [] for name in parts}
    names = list(parts)
    for turn in range(warm_up + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            wait_for(device)
            begun = time.perf_counter()
            parts[name]()
            wait_for(device)
            times[name].append(time.perf_counter() - begun)
    return {name: seconds[warm_up:] for name, seconds in times.items()}


def wait_for(device: torch.device) -> None:
    """Until all that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def with_version(package: str) -> str:
    """Like litgpt 0.5.13; the name alone if it is on the path without having been installed, as posenc may be."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that is also readable as it is: the first column to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rule = "|" + "|".join("-" * (width + 1) + (":" if column else "-") for column, width in enumerate(widths)) + "|"
    drawn = ["| " + " | ".join(_padded(line, widths)) + " |" for line in lines]
    return "\n".join([drawn[0], rule, *drawn[1:]])


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def write(folder: Path, name: str, page: str, figures: Mapping[str, Any]) -> None:
    """FOLDER/NAME.md for a reader, and FOLDER/NAME.json with every round's figures."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / f"{name}.md", page + "\n")
    atomic_write(folder / f"{name}.json", json.dumps(figures, indent=1) + "\n")
    print(f"\nwritten to {folder / name}.md and .json")
