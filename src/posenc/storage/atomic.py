"""Files that appear whole, or not at all."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from posenc.errors import RunError

PARTIAL = ".partial"
"""What a file's name ends with while it is written."""

FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class Writing:
    """A file that is being written.

    Attributes:
        stream: takes its bytes.
        file: what it will be called; may be changed until the end, where the name depends on the contents.
    """

    stream: BinaryIO
    file: Path


@contextmanager
def whole(file: Path, size: Callable[[], int]) -> Iterator[Writing]:
    """Write a file beside its place, and put it there at the end; on any failure nothing of it is left.

    Args:
        file: its place.
        size: how many bytes it needs, asked only if the disk is full.

    Raises:
        RunError: if the disk is full.
    """
    partial = file.with_name(file.name + PARTIAL)
    with full_disk_told(file, lambda: f"{size():,} bytes"):
        try:
            with partial.open("wb") as stream:
                writing = Writing(stream, file)
                yield writing
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, writing.file)
            _sync_folder(file.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def full_disk_told(place: Path, needed: Callable[[], str]) -> Iterator[None]:
    """Around what writes to a file or folder: a full disk in a sentence.

    Args:
        place: what is written.
        needed: how much it needs, in words; asked only if the disk is full.

    Raises:
        RunError: if the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        free = f"{shutil.disk_usage(place.parent).free:,} are free there"
        raise RunError(f"{place} could not be written: it needs {needed()}, and {free}") from error


def _sync_folder(folder: Path) -> None:
    """Have the new name itself on disk before going on."""
    with suppress(OSError):  # not every file system offers it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def clear_partial(folder: Path) -> None:
    """Remove what a killed process left half-written in a folder, which nobody else may be writing to now."""
    for partial in folder.glob(f"*{PARTIAL}"):
        partial.unlink()
