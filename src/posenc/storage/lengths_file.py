"""lengths.json: the evaluation of a run in windows longer than in training."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from posenc.errors import UserError
from posenc.storage.atomic import atomic_write
from posenc.storage.reading import check_types, read_mapping

FILE = "lengths.json"
FORMAT = 1
"""Must be incremented when the evaluation changes, including its text, since results would not be comparable."""

TIMES = (1.0, 1.25, 1.5, 2.0, 4.0, 8.0)
"""Lengths evaluated, as multiples of the training length."""


@dataclass(frozen=True)
class LengthResult:
    """One model at one length.

    Attributes:
        times: the length as a multiple of the training length.
        length: tokens per window.
        windows: 0 if it was not evaluated.
        nats_per_token, bits_per_byte: mean over all windows; None if it was not evaluated.
        edges: of the position buckets, in tokens from the start of a window: bucket i contains the predictions from
            position edges[i] up to, not including, edges[i + 1]. The last edge is the length.
        losses: the mean loss of each bucket, in nats per token.
        no_entry: why it was not evaluated; otherwise empty.
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
        """Raises ValueError if it has neither valid results nor a reason."""
        if self.no_entry:
            return
        numbers = [self.nats_per_token, self.bits_per_byte, *self.losses]
        valid = all(isinstance(number, float) and math.isfinite(number) for number in numbers)
        if not valid or len(self.edges) != len(self.losses) + 1 or self.edges[-1] != self.length:
            raise ValueError(f"length={self.length} has neither valid results nor a reason for having none")


@dataclass(frozen=True)
class Lengths:
    """One run at every length.

    Attributes:
        run: <scheme>/<directory>, so that a file copied to another run is detected.
        checkpoint: the SHA-256 of the evaluated checkpoint.
        context: the training length.
        val_loss: of that checkpoint on the run's validation windows, recomputed.
        entries: one for each of TIMES.
    """

    run: str
    checkpoint: str
    context: int
    val_loss: float
    entries: tuple[LengthResult, ...]


def name_of(run: Path) -> str:
    """The run's name in its file."""
    absolute = run.resolve()
    return f"{absolute.parent.name}/{absolute.name}"


def write(lengths: Lengths, run: Path) -> None:
    """Write a run's file."""
    atomic_write(run / FILE, json.dumps({"format": FORMAT, **asdict(lengths)}, indent=1) + "\n")


def read(run: Path) -> Lengths | None:
    """Read a run's file; None if there is none.

    Raises:
        UserError: if it is damaged, or from another format or run.
    """
    file = run / FILE
    if not file.exists():
        return None
    content = read_mapping(file)
    if content.pop("format", None) != FORMAT:
        raise UserError(f"{file} cannot be used: it is from another version")
    lengths: Lengths = check_types(file, content, Lengths)
    if lengths.run != name_of(run):
        raise UserError(f"{file} cannot be used: it belongs to {lengths.run}")
    if tuple(entry.times for entry in lengths.entries) != TIMES:
        raise UserError(f"{file} cannot be used: it has other lengths")
    return lengths
