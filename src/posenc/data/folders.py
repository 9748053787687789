"""Folders of the cache: built by one process, whole or not at all."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from posenc.errors import UserError
from posenc.storage.atomic import PARTIAL, full_disk_told


@contextmanager
def one_builder(folder: Path) -> Iterator[None]:
    """Hold a folder, which need not be there, against other processes that would build it too.

    Neither the lock nor a folder made for it stays when nothing was built.

    Raises:
        UserError: if nothing can be written there.
        RunError: if the disk is full.
    """
    made = [place for place in folder.parents if not place.exists()]
    lock = FileLock(f"{folder}.lock")
    try:
        with told(folder, lambda: "a little"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            yield
        finally:
            # Whoever has it open by now waits for a lock that nobody will find, notices, and makes a new one.
            with suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()
    except BaseException:
        for place in made:
            with suppress(OSError):  # something else lies in it
                place.rmdir()
        raise


@contextmanager
def whole_folder(folder: Path, size: Callable[[], str]) -> Iterator[Path]:
    """A folder to fill, which takes its place at the end; on any failure nothing of it is left.

    The caller holds `folder`, so that what a killed process left half-built can be removed.

    Args:
        folder: its place; what lies there is replaced.
        size: how much it needs, in words; asked only if the disk is full.

    Raises:
        UserError: if nothing can be written there.
        RunError: if the disk is full.
    """
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    with told(folder, size):
        try:
            partial.mkdir()
            yield partial
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def told(folder: Path, size: Callable[[], str]) -> Iterator[None]:
    """Around what writes to a folder of the cache: what the system refuses, in a sentence."""
    try:
        with full_disk_told(folder, size):
            yield
    except OSError as error:
        raise UserError(f"cache={folder.parent} cannot be written to: {error.strerror or error}") from error
