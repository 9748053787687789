"""Files that appear complete, or not at all. Nothing else in this program writes a whole file."""

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from posenc.errors import UserError
from posenc.storage.resource_errors import disk_errors

PARTIAL = ".partial"
"""What a file's name ends with while it is written."""


@dataclass
class PartialFile:
    """A file that is being written.

    Attributes:
        stream: takes its bytes.
        file: what it will be called; may be changed until the end, where the name depends on the contents.
    """

    stream: BinaryIO
    file: Path


@contextmanager
def atomic_open(file: Path, size: Callable[[], int]) -> Iterator[PartialFile]:
    """Write a new file beside `file` and rename it at the end; on any failure nothing of it is left.

    Args:
        file: its place.
        size: how many bytes it needs, asked only if the disk is full.

    Raises:
        RunError: if the disk is full, or fails in another way.
    """
    partial = file.with_name(f"{file.name}.{secrets.token_hex(4)}{PARTIAL}")
    with disk_errors(file, lambda: f"{size():,} bytes"):
        try:
            # O_EXCL: a new file, and no link that somebody has laid there, is written to.
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb") as stream:
                writing = PartialFile(stream, file)
                yield writing
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, writing.file)
            _sync_folder(file.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def atomic_write(file: Path, content: str | bytes) -> None:
    """Write a file, complete or not at all; text as UTF-8.

    Raises:
        RunError: if the disk is full, or fails in another way.
    """
    data = content.encode() if isinstance(content, str) else content
    with atomic_open(file, lambda: len(data)) as writing:
        writing.stream.write(data)


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


def check_writable(what: str, folder: Path) -> None:
    """Check that a folder can be written to, or made; nothing is left of the attempt.

    Args:
        what: names it on the command line, like runs=here.
        folder: need not be there.

    Raises:
        UserError: if not.
    """
    try:
        existing = next(place for place in (folder, *folder.absolute().parents) if _exists(place))
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UserError(f"{what} cannot be written to: {error.strerror}") from error


def _exists(place: Path) -> bool:
    """Whether a path is there; unlike Path.exists, raises OSError where it can never be."""
    try:
        place.stat()
    except FileNotFoundError:
        return False
    return True
