"""Cache folders, such as the tokens of a split: built by one process, atomically."""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock
from tqdm import tqdm

from posenc.errors import UserError
from posenc.storage.atomic import PARTIAL, check_writable
from posenc.storage.reading import open_regular, read_mapping
from posenc.storage.resource_errors import disk_errors

TOKENS, META = "tokens.bin", "meta.json"
FORMAT = 1

COUNTING_SECONDS = 5.0
"""Seconds spent on counting how much space a full disk lacks."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Tokens:
    """One tokenised split of a corpus.

    Attributes:
        ids: (N,) uint8, uint16 or uint32, memory-mapped.
        fingerprint: identifies text, tokenizer and split.
    """

    ids: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.ids)


def open_or_build(
    folder: Path, fingerprint: str, dtype: np.dtype, encode: Callable[[], Iterator[np.ndarray]]
) -> Tokens:
    """The tokens cached in `folder`, memory-mapped, verified on opening; they stay valid if the folder is deleted.

    Raises:
        UserError, RunError: as `built_once`.
    """
    meta = {"format": FORMAT, "fingerprint": fingerprint, "dtype": str(dtype)}
    writer = TokenWriter(dtype, encode)

    def build(partial: Path) -> None:
        written = writer.write(partial / TOKENS, folder.name)
        (partial / META).write_text(json.dumps({**meta, **written}, indent=1))

    start = time.monotonic()
    ids = built_once(folder, lambda path: _read(path, meta), build, writer.needed)
    if writer.size:
        print(f"Cached {len(ids):,} tokens in {folder} ({time.monotonic() - start:.1f} s).", flush=True)
    return Tokens(ids, fingerprint)


def _read(folder: Path, expected: Mapping[str, Any]) -> np.ndarray:
    """Tokens (N,), memory-mapped.

    Raises:
        UserError: if they are damaged, or not the expected ones.
    """
    meta, dtype = read_mapping(folder / META), np.dtype(expected["dtype"])
    if {key: meta.get(key) for key in expected} != expected:
        raise UserError("its meta.json does not match")
    with open_regular(folder / TOKENS) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size == 0 or size % dtype.itemsize or size != meta.get("bytes"):
            raise UserError(f"{size} bytes instead of {meta.get('bytes')}")
        if hashlib.file_digest(stream, "sha256").hexdigest() != meta.get("sha256"):
            raise UserError("its checksum does not match")
        # Maps the open file, not its name, since another process may delete it now.
        return np.memmap(stream, dtype=dtype, mode="r")


class TokenWriter:
    """Writes chunks of tokens to a file; `size` is the number of bytes so far."""

    def __init__(self, dtype: np.dtype, encode: Callable[[], Iterator[np.ndarray]]) -> None:
        self.dtype, self.encode = dtype, encode
        self.size = 0
        self.chunks: Iterator[np.ndarray] = iter(())

    def write(self, file: Path, title: str) -> dict[str, Any]:
        """Write all chunks; returns their size in bytes and SHA-256."""
        self.size, self.chunks = 0, self.encode()
        checksum = hashlib.sha256()
        interval = 0.1 if sys.stderr.isatty() else 30  # seconds
        bar = tqdm(desc=title, unit=" tokens", unit_scale=True, delay=1, mininterval=interval)
        with file.open("wb") as stream, bar:
            for chunk in self.chunks:
                data = chunk.astype(self.dtype, copy=False).tobytes()
                self.size += len(data)  # before the write, which may fail
                stream.write(data)
                checksum.update(data)
                bar.update(len(chunk))
            stream.flush()
            os.fsync(stream.fileno())
        return {"bytes": self.size, "sha256": checksum.hexdigest()}

    def needed(self) -> str:
        """The total size of all chunks, or a lower bound if counting takes too long."""
        deadline = time.monotonic() + COUNTING_SECONDS
        for chunk in self.chunks:
            self.size += len(chunk) * self.dtype.itemsize
            if time.monotonic() > deadline:
                return f"more than {self.size:,} bytes"
        return f"{self.size:,} bytes"


def built_once(
    folder: Path,
    read: Callable[[Path], _T],
    build: Callable[[Path], None],
    needed: Callable[[], str],
    notice: str = "",
) -> _T:
    """The result of `read` on a folder, which is built first if it is missing or damaged.

    Several processes may call this at once: one builds, the others wait and read. A complete folder is only read, so
    that a cache may be on a read-only file system.

    Args:
        read: raises UserError if the folder is missing or damaged.
        build: fills a new folder, which is then renamed.
        needed: describes the space needed; called only if the disk is full.
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
            _build(folder, build, needed)
            try:
                return read(folder)
            except UserError as error:
                if folder.exists():
                    raise UserError(f"the cache {folder} has just been built and cannot be read: {error}") from error


def _build(folder: Path, build: Callable[[Path], None], needed: Callable[[], str]) -> None:
    """Fill a temporary folder and rename it; removed on any failure."""
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    with disk_errors(folder, needed):
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
        with disk_errors(folder, lambda: "a little"):
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
