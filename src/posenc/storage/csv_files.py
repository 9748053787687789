"""Tables as .csv: written, grown row by row while a run goes on, and read back."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc.errors import UserError
from posenc.storage.atomic import atomic_write
from posenc.storage.reading import read_text
from posenc.storage.resource_errors import disk_errors

MOST_BYTES = 2**28
"""Of a table that is read."""


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], header: bool = True) -> str:
    """A table; a column that a row lacks stays empty, and what is in no column is left out."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: _no_formula(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def _no_formula(value: Any) -> Any:
    """A name that a spreadsheet would run as a formula, quoted; numbers in text, such as -1.5, stay."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


class MetricsFile:
    """A table that grows while a run goes on, such as metrics.csv; its first column is the step.

    After a resume, rows past the checkpoint are dropped, since they will be written again.
    """

    def __init__(self, file: Path, columns: Sequence[str], resumed_at: int) -> None:
        self.file, self.columns = file, columns
        atomic_write(file, to_csv(columns, (row for row in read_csv(file) if int(row["step"]) <= resumed_at)))

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows in one write; a column without a value stays empty.

        Raises:
            RunError: if the disk is full, or the file gone.
        """
        lines = to_csv(self.columns, rows, header=False)
        with disk_errors(self.file, lambda: f"{len(lines):,} bytes more"), self.file.open("r+") as stream:
            stream.seek(0, os.SEEK_END)
            stream.write(lines)

    def sync(self) -> None:
        """Have every row on disk: a checkpoint must not outlive, in a power cut, the rows that came before it."""
        with disk_errors(self.file, lambda: "no more"), self.file.open("r+") as stream:
            os.fsync(stream.fileno())


def read_csv(file: Path) -> list[dict[str, str]]:
    """The complete rows of a table, none if there is no such file; a row cut short is left out.

    Raises:
        UserError: if it is no table.
    """
    if not file.exists():
        return []
    text = read_text(file, MOST_BYTES)
    complete = text[: text.rfind("\n") + 1]
    try:
        rows = list(csv.DictReader(io.StringIO(complete)))
    except csv.Error as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    return [row for row in rows if None not in row and None not in row.values()]


def read_numbers(file: Path) -> list[dict[str, float]]:
    """The rows of metrics.csv or attention.csv, less empty cells.

    Raises:
        UserError: if a cell holds no number, or a row no step.
    """
    try:
        rows = [{name: float(cell) for name, cell in row.items() if cell} for row in read_csv(file)]
        if all(row["step"].is_integer() for row in rows):
            return rows
    except (KeyError, ValueError) as error:
        raise UserError(f"{file} cannot be read: a cell holds no number, or a row no step") from error
    raise UserError(f"{file} cannot be read: a step is no whole number")


def steps_in(file: Path) -> list[int]:
    """The steps that a table has rows of, each once; none if it cannot be read."""
    try:
        return list(dict.fromkeys(int(row["step"]) for row in read_csv(file)))
    except (UserError, KeyError, ValueError):
        return []
