"""Atomic writes, used for every complete file that the program writes."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from posenc.errors import UserError
from posenc.storage.resource_errors import disk_errors

PARTIAL = ".partial"
"""Suffix of files that are being written."""


def atomic_write(file: Path, content: str | bytes | memoryview) -> None:
    """Write a temporary file and rename it, also if there is a file of that name; text as UTF-8.

    The temporary file is removed on any failure.

    Raises:
        RunError: if the disk is full, or another I/O error occurs.
    """
    # A file name that is not UTF-8 has surrogates, which cannot be encoded.
    data = content.encode(errors="replace") if isinstance(content, str) else content
    partial = file.parent / (f"{file.name}.{secrets.token_hex(4)}{PARTIAL}")
    with disk_errors(file):
        try:
            with partial.open("xb") as stream:  # x: never writes through an existing file or link
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, file)
            _sync_folder(file.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _sync_folder(folder: Path) -> None:
    """Flush the rename to disk."""
    with suppress(OSError):  # not every file system supports it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def clear_partial(folder: Path) -> None:
    """Remove partial files of a killed process from a folder that no other process is writing to.

    Files with other names stay: the folder may be a link, in a run from elsewhere, to one with files of the user's.
    """
    for partial in folder.glob(f"*.{'[0-9a-f]' * 8}{PARTIAL}"):
        partial.unlink()


def check_writable(what: str, folder: Path) -> None:
    """Check that a folder can be written to or created, without leaving anything behind.

    Raises:
        UserError: if it cannot; `what` is its name there, such as runs=here.
    """
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if _exists(path))
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise UserError(f"{what} cannot be written to: {error.strerror}") from error


def _exists(path: Path) -> bool:
    """Like os.path.lexists, so that a dangling symlink exists, but raises OSError if the path is invalid."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True
