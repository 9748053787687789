"""lengths.json: the evaluation of a run in windows longer than in training."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from posenc.bounds import PositiveInt
from posenc.errors import UserError
from posenc.storage.atomic import atomic_write
from posenc.storage.reading import check_types, read_mapping

FILE = "lengths.json"
FORMAT = 1
"""Must be incremented when the evaluation changes, including its text, since results would not be comparable."""

TIMES = (1.0, 1.25, 1.5, 2.0, 4.0, 8.0)
"""Lengths evaluated, as multiples of the training length."""


LARGEST = 1e6
"""Maximum of a loss and of bits per byte, far above those of an untrained model."""

PER_DOUBLING = 4
"""Position buckets per doubling of the position."""


def bucket_edges(context: int, length: int) -> tuple[int, ...]:
    """0, 1, 2, 3 ... length: PER_DOUBLING buckets per doubling of the position; one edge is at the context."""
    doublings = math.ceil(math.log2(max(context, length)))
    steps = range(-PER_DOUBLING * doublings, PER_DOUBLING * doublings + 1)
    edges = {round(context * 2 ** (step / PER_DOUBLING)) for step in steps}
    return tuple(sorted({0, length, *(edge for edge in edges if 0 < edge < length)}))


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
        """Raises ValueError if it has neither valid results nor only a reason."""
        numbers = (self.nats_per_token, self.bits_per_byte, *self.losses)
        if self.no_entry:
            valid = numbers == (None, None) and not self.edges
        else:
            valid = all(isinstance(number, float) and 0 <= number < LARGEST for number in numbers)
            valid = valid and len(self.edges) == len(self.losses) + 1 and self.edges[-1] == self.length
        if not valid:
            raise ValueError(f"length={self.length} has neither valid results nor a reason for having none")


@dataclass(frozen=True)
class Lengths:
    """One run at every length.

    Attributes:
        run: <scheme>/<directory>, so that a file copied to another run is detected.
        checkpoint: the first 16 digits of the SHA-256 of the evaluated checkpoint, or all.
        context: the training length.
        val_loss: of that checkpoint on the run's validation windows, recomputed.
        entries: one for each of TIMES.
    """

    run: str
    checkpoint: str
    context: PositiveInt
    val_loss: float
    entries: tuple[LengthResult, ...]


def name_of(run: Path) -> str:
    """The run's name in its file."""
    absolute = run.resolve()
    return f"{absolute.parent.name}/{absolute.name}"


def write(lengths: Lengths, run: Path) -> None:
    """Write a run's file."""
    atomic_write(run / FILE, json.dumps({"format": FORMAT, **asdict(lengths)}, indent=1) + "\n")


def read(run: Path, context: int | None) -> Lengths | None:
    """Read a run's file; None if there is none.

    Args:
        context: the training length in the run's configuration.

    Raises:
        UserError: if it is damaged, or from another format or run, or has other lengths or buckets.
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
    if lengths.context != context:
        raise UserError(f"{file} cannot be used: it has context={lengths.context}, and the run context={context}")
    expected = [(times, round(context * times)) for times in TIMES]
    if [(entry.times, entry.length) for entry in lengths.entries] != expected:
        raise UserError(f"{file} cannot be used: it has other lengths")
    if any(entry.edges != bucket_edges(context, entry.length) for entry in lengths.entries if not entry.no_entry):
        raise UserError(f"{file} cannot be used: it has other buckets of positions")
    return lengths
