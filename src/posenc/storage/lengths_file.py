"""lengths.json: what a run's model makes of windows longer than those it was trained on."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from posenc.errors import UserError
from posenc.storage.atomic import atomic_write
from posenc.storage.reading import read_mapping

FILE = "lengths.json"
FORMAT = 1
"""To be raised when what is evaluated changes, the text too: files of both would not compare."""

TIMES = (1.0, 1.25, 1.5, 2.0, 4.0, 8.0)
"""Lengths evaluated, as multiples of the training length."""


@dataclass(frozen=True)
class AtLength:
    """One model at one length.

    Attributes:
        times: the length over the training length.
        length: tokens in a window.
        windows: how many were read; 0 where there is no entry.
        nats_per_token, bits_per_byte: the mean over all of them; None where there is no entry.
        edges: of the buckets of positions, in tokens from the start of a window: bucket i holds the predictions made
            from position edges[i] up to, not including, edges[i + 1]. The last edge is the length.
        losses: the mean loss of each bucket, in nats per token.
        no_entry: why there is none; empty where there is one.
    """

    times: float
    length: int
    windows: int = 0
    nats_per_token: float | None = None
    bits_per_byte: float | None = None
    edges: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    no_entry: str = ""

    def __post_init__(self) -> None:
        """Raises: ValueError if it is neither an entry nor the reason why there is none."""
        if self.no_entry:
            return
        numbers = [self.nats_per_token, self.bits_per_byte, *self.losses]
        sound = all(isinstance(number, float) and math.isfinite(number) for number in numbers)
        if not sound or len(self.edges) != len(self.losses) + 1 or self.edges[-1] != self.length:
            raise ValueError(f"length={self.length} has neither an entry nor a reason for having none")


@dataclass(frozen=True)
class Lengths:
    """One run at every length.

    Attributes:
        run: <scheme>/<directory>, so that a file copied elsewhere is not taken for another run's.
        checkpoint: the sha256 of the checkpoint that was evaluated.
        context: the training length.
        val_loss: of that checkpoint on the run's own validation windows, computed anew.
        entries: one for each of TIMES.
    """

    run: str
    checkpoint: str
    context: int
    val_loss: float
    entries: tuple[AtLength, ...]


def name_of(run: Path) -> str:
    """The run as its file names it."""
    absolute = run.resolve()
    return f"{absolute.parent.name}/{absolute.name}"


def write(lengths: Lengths, run: Path) -> None:
    """Write a run's file."""
    atomic_write(run / FILE, json.dumps({"format": FORMAT, **asdict(lengths)}, indent=1) + "\n")


def read(run: Path) -> Lengths | None:
    """What a run's file holds; None if there is no file.

    Raises:
        UserError: if it is damaged, of another format, or of another run.
    """
    from pydantic import TypeAdapter

    file = run / FILE
    if not file.exists():
        return None
    held = read_mapping(file)
    if held.pop("format", None) != FORMAT:
        raise UserError(f"{file} cannot be used: it is of another version")
    try:
        lengths = TypeAdapter(Lengths).validate_python(held)
    except ValueError as error:
        raise UserError(f"{file} cannot be used: it is damaged, or not written by this program") from error
    if lengths.run != name_of(run):
        raise UserError(f"{file} cannot be used: it is of {lengths.run}")
    if tuple(entry.times for entry in lengths.entries) != TIMES:
        raise UserError(f"{file} cannot be used: it is of other lengths")
    return lengths
