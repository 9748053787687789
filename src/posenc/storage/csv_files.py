"""CSV files: writing, appending during a run, and reading."""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from posenc.errors import UserError
from posenc.storage.atomic import atomic_write
from posenc.storage.reading import read_bytes, read_text
from posenc.storage.resource_errors import disk_errors

_Row = TypeVar("_Row")

MAX_BYTES, MAX_ROWS = 2**27, 2**19
"""Maximum size of a CSV file: at most a few GB of memory when it is read. No run writes more rows."""


def to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], header: bool = True) -> str:
    """Format rows as CSV; missing values are empty, and keys that are not columns are ignored."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: _escape_formula(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def _escape_formula(value: Any) -> Any:
    """Quote text that a spreadsheet would execute as a formula; numbers such as -1.5 are unchanged."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


class MetricsFile:
    """A CSV file that is appended to during a run, such as metrics.csv; its first column is the step.

    When a run resumes, rows after the checkpoint are dropped, since they will be written again. Those may be damaged
    after a power failure: only rows up to a checkpoint have been flushed to disk.

    Args:
        last_step: of the checkpoint; 0 for a new file.
    """

    def __init__(self, file: Path, columns: Sequence[str], last_step: int) -> None:
        self.file, self.columns = file, columns
        rows = intact_rows(file) if last_step else []
        atomic_write(file, to_csv(columns, (row for row in rows if int(row["step"]) <= last_step)))

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows in one write; missing values are empty.

        Raises:
            RunError: if the disk is full, or the file has been deleted.
        """
        lines = to_csv(self.columns, rows, header=False)
        with disk_errors(self.file), self.file.open("r+") as stream:
            stream.seek(0, os.SEEK_END)
            stream.write(lines)

    def sync(self) -> None:
        """Flush all rows to disk, so that after a power failure no checkpoint is newer than its rows."""
        with disk_errors(self.file), self.file.open("r+") as stream:
            os.fsync(stream.fileno())


def read_csv(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; a last row without a line end is left out. Empty if the file does not exist.

    Raises:
        UserError: if it is too large or not valid CSV, has a column twice, or a row with more or fewer cells than the
            header.
    """
    if not file.exists():
        return []
    text = read_text(file, MAX_BYTES)
    complete = text[: text.rfind("\n") + 1]
    if (lines := complete.count("\n")) > MAX_ROWS:
        raise UserError(f"{file} cannot be read: {lines:,} lines, at most {MAX_ROWS:,} are allowed")
    try:
        reader = csv.DictReader(io.StringIO(complete))
        rows, columns = list(reader), reader.fieldnames or ()
    except csv.Error as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if len(set(columns)) < len(columns):
        raise UserError(f"{file} cannot be read: duplicate column")
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            raise UserError(f"{file} cannot be read: row {number} has more or fewer cells than the header")
    return rows


def read_rows(file: Path, row: type[_Row]) -> list[_Row]:
    """The rows of a CSV file with their cells converted to the types of a TypedDict or dataclass.

    Raises:
        UserError: if it cannot be read, or a cell is missing or invalid; names its row and column.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(list[row]).validate_python(read_csv(file))  # type: ignore[valid-type]
    except ValidationError as error:
        wrong = error.errors()[0]
        number, *column = wrong["loc"]
        at = f", column {column[0]}" if column else ""
        raise UserError(f"{file}, row {int(number) + 1}{at} cannot be read: {wrong['msg']}") from error


def read_numbers(file: Path) -> list[dict[str, float]]:
    """The rows of metrics.csv or attention.csv, without empty cells.

    Raises:
        UserError: if a cell is not a number, or a row has no step.
    """
    try:
        rows = [_numbers(row) for row in read_csv(file)]
        steps = [row["step"] for row in rows]
    except (KeyError, ValueError) as error:
        raise UserError(f"{file} cannot be read: a cell is not a number, or a row has no step") from error
    if not all(map(float.is_integer, steps)):
        raise UserError(f"{file} cannot be read: a step is not an integer")
    return rows


def intact_rows(file: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv or attention.csv before the first damaged one; empty if the file does not exist.

    Raises:
        UserError: if it is too large or not a regular file.
    """
    text = read_bytes(file, MAX_BYTES).decode(errors="replace") if file.exists() else ""
    header, *lines = text.split("\n")[:-1] or [""]  # the last row may lack its end
    rows = []
    with suppress(KeyError, ValueError):  # of the first damaged row
        for line in lines:
            row = dict(zip(header.split(","), line.split(","), strict=True))
            int(row["step"])
            _numbers(row)
            rows.append(row)
    return rows


def _numbers(row: Mapping[str, str]) -> dict[str, float]:
    """A row without its empty cells."""
    return {name: float(cell) for name, cell in row.items() if cell}
