"""Cache folders, such as the tokens of a split: built by one process, atomically."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from posenc.errors import UserError
from posenc.storage.atomic import PARTIAL, check_writable
from posenc.storage.resource_errors import disk_errors

_T = TypeVar("_T")


def built_once(
    folder: Path,
    read: Callable[[Path], _T],
    build: Callable[[Path], None],
    notice: str = "",
) -> _T:
    """The result of `read` on a folder, which is built first if it is missing or damaged.

    Several processes may call this at once: one builds, the others wait and read. A complete folder is only read, so
    that a cache may be on a read-only file system.

    Args:
        read: raises UserError if the folder is missing or damaged.
        build: fills a new folder, which is then renamed.
        notice: printed before it is built, by the one process that does.

    Raises:
        UserError: if the folder must be built but cannot be written to, or not read after that.
        RunError: if the disk is full, or another I/O error occurs.
    """
    while True:  # retry if another process deletes the folder
        with suppress(UserError):
            return read(folder)
        with _one_builder(folder):
            try:
                return read(folder)
            except UserError as damage:
                if folder.exists():
                    print(f"The cache {folder} is damaged ({damage}); rebuilding it.", file=sys.stderr, flush=True)
            if notice:
                print(notice, flush=True)
            _build(folder, build)
            try:
                return read(folder)
            except UserError as error:
                if folder.exists():
                    raise UserError(f"the cache {folder} has just been built and cannot be read: {error}") from error


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    """Fill a temporary folder and rename it; removed on any failure."""
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    with disk_errors(folder):
        try:
            partial.mkdir()
            build(partial)
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _one_builder(folder: Path) -> Iterator[None]:
    """Lock a folder; on failure the lock and new parent folders are removed."""
    check_writable(f"cache={folder.parent}", folder.parent)
    new_parents = [parent for parent in folder.parents if not parent.exists()]
    lock = FileLock(f"{folder}.lock")
    try:
        with disk_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            yield
        finally:
            # filelock notices that the file it waits for has been deleted, and creates a new one.
            with suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()
    except BaseException:
        for parent in new_parents:
            with suppress(OSError):  # not empty
                parent.rmdir()
        raise
