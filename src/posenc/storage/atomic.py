"""Atomic writes, used for every complete file that the program writes."""

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
"""Suffix of files that are being written."""


@dataclass
class PartialFile:
    """A file that is being written.

    Attributes:
        stream: to write to.
        file: its final name; may be changed until the end, if the name depends on the contents.
    """

    stream: BinaryIO
    file: Path


@contextmanager
def atomic_open(file: Path, size: Callable[[], int]) -> Iterator[PartialFile]:
    """Write a temporary file and rename it to `file` at the end; it is removed on any failure.

    Args:
        file: the final path.
        size: the bytes it needs; called only if the disk is full.

    Raises:
        RunError: if the disk is full, or another I/O error occurs.
    """
    partial = file.with_name(f"{file.name}.{secrets.token_hex(4)}{PARTIAL}")
    with disk_errors(file, lambda: f"{size():,} bytes"):
        try:
            # O_EXCL: never writes through an existing file or link.
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
    """Write a file atomically; text as UTF-8.

    Raises:
        RunError: if the disk is full, or another I/O error occurs.
    """
    data = content.encode() if isinstance(content, str) else content
    with atomic_open(file, lambda: len(data)) as writing:
        writing.stream.write(data)


def _sync_folder(folder: Path) -> None:
    """Flush the rename to disk."""
    with suppress(OSError):  # not every file system supports it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def clear_partial(folder: Path) -> None:
    """Remove partial files of a killed process from a folder that no other process is writing to."""
    for partial in folder.glob(f"*{PARTIAL}"):
        partial.unlink()


def check_writable(what: str, folder: Path) -> None:
    """Check that a folder can be written to or created, without leaving anything behind.

    Args:
        what: its name in the error message, such as runs=here.
        folder: need not exist.

    Raises:
        UserError: if it cannot.
    """
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if _exists(path))
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UserError(f"{what} cannot be written to: {error.strerror}") from error


def _exists(path: Path) -> bool:
    """Like os.path.lexists, so that a link to nowhere exists, but raises OSError if the path is invalid."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True
