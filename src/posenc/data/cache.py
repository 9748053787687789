"""Folders of the cache, such as the tokens of a split: built by one process, complete or not at all."""

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
from posenc.storage.resource_errors import disk_errors

TOKENS, META = "tokens.bin", "meta.json"
FORMAT = 1

MAX_BIGRAM_TOKENS = 5.0
"""Seconds that are spent on finding out how much a full disk lacks."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Tokens:
    """One split of a corpus as tokens.

    Attributes:
        ids: (N,) uint8, uint16 or uint32, memory-mapped.
        fingerprint: what the tokens were made from: text, tokenizer and split.
    """

    ids: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.ids)


def open_or_build(
    folder: Path, fingerprint: str, dtype: np.dtype, encode: Callable[[], Iterator[np.ndarray]]
) -> Tokens:
    """The tokens cached in `folder`, memory-mapped; checked on every opening. They outlive the folder once open.

    Args:
        folder: where this split's tokens live.
        fingerprint: what they are made from.
        dtype: their type.
        encode: yields the tokens, chunk after chunk.

    Raises:
        UserError, RunError: as `built_once`.
    """
    meta = {"format": FORMAT, "fingerprint": fingerprint, "dtype": str(dtype)}
    writer = TokenWriter(dtype, encode)

    def build(partial: Path) -> None:
        begun = time.monotonic()
        written = writer.write(partial / TOKENS, folder.name)
        (partial / META).write_text(json.dumps({**meta, **written}, indent=1))
        seconds = time.monotonic() - begun
        print(f"Cached {writer.size // dtype.itemsize:,} tokens in {folder} ({seconds:.1f} s).", flush=True)

    return Tokens(built_once(folder, lambda place: _read(place, meta), build, writer.needed), fingerprint)


def _read(folder: Path, expected: Mapping[str, Any]) -> np.ndarray:
    """Tokens (N,), memory-mapped.

    Raises:
        UserError: if they are damaged, or others than expected.
    """
    try:
        meta = json.loads((folder / META).read_text())
        if {key: meta.get(key) for key in expected} != expected:
            raise UserError("its meta.json is not the expected one")
        with (folder / TOKENS).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != meta.get("bytes") or size == 0:
                raise UserError(f"{size} bytes where {meta.get('bytes')} were written")
            if hashlib.file_digest(stream, "sha256").hexdigest() != meta.get("sha256"):
                raise UserError("its checksum does not match")
            # Of the file that is open, not of its name: another process may delete it now.
            return np.memmap(stream, dtype=np.dtype(expected["dtype"]), mode="r")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"unreadable: {error}") from error


class TokenWriter:
    """Chunks of tokens on their way to a file.

    Attributes:
        size: bytes so far.

    Args:
        dtype: the tokens' type in the file.
        encode: yields them.
    """

    def __init__(self, dtype: np.dtype, encode: Callable[[], Iterator[np.ndarray]]) -> None:
        self.dtype, self.encode = dtype, encode
        self.size = 0
        self.chunks: Iterator[np.ndarray] = iter(())

    def write(self, file: Path, title: str) -> dict[str, Any]:
        """Write all chunks; returns how many bytes they are, and their SHA-256."""
        self.size, self.chunks = 0, self.encode()
        checksum = hashlib.sha256()
        every = 0.1 if sys.stderr.isatty() else 30  # seconds
        bar = tqdm(desc=title, unit=" tokens", unit_scale=True, delay=1, mininterval=every)
        with file.open("wb") as stream, bar:
            for chunk in self.chunks:
                data = chunk.astype(self.dtype, copy=False).tobytes()
                self.size += len(data)  # first: what does not fit is needed too
                stream.write(data)
                checksum.update(data)
                bar.update(len(chunk))
            stream.flush()
            os.fsync(stream.fileno())
        return {"bytes": self.size, "sha256": checksum.hexdigest()}

    def needed(self) -> str:
        """The bytes of all chunks, or of those that could be counted in a few seconds."""
        deadline = time.monotonic() + MAX_BIGRAM_TOKENS
        for chunk in self.chunks:
            self.size += len(chunk) * self.dtype.itemsize
            if time.monotonic() > deadline:
                return f"more than {self.size:,} bytes"
        return f"{self.size:,} bytes"


def built_once(
    folder: Path, read: Callable[[Path], _T], build: Callable[[Path], None], needed: Callable[[], str]
) -> _T:
    """What `read` makes of a folder, which is built first where it is missing or damaged.

    Several processes may call this at once: one builds, the others wait and read. What is complete is only read, so
    that a cache may lie where nothing can be written.

    Args:
        folder: its place.
        read: raises UserError where the folder is missing or damaged.
        build: fills a new folder, which takes its place at the end.
        needed: how much that is, in words; asked only if the disk is full.

    Raises:
        UserError: if it is to be built, and nothing can be written there.
        RunError: if the disk is full, or fails in another way.
    """
    while True:  # again, if somebody deletes what was just built
        with suppress(UserError):
            return read(folder)
        with _one_builder(folder):
            try:
                return read(folder)
            except UserError as damage:
                if folder.exists():
                    print(f"The cache {folder} is damaged ({damage}); it is built again.", file=sys.stderr, flush=True)
            _build(folder, build, needed)


def _build(folder: Path, build: Callable[[Path], None], needed: Callable[[], str]) -> None:
    """Fill a folder beside the place, and put it there; on any failure nothing of it is left."""
    partial = folder.with_name(folder.name + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
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
    """Hold a folder against other processes; neither the lock nor a parent made for it stays if nothing is built."""
    check_writable(f"cache={folder.parent}", folder.parent)
    made = [place for place in folder.parents if not place.exists()]
    lock = FileLock(f"{folder}.lock")
    try:
        with disk_errors(folder, lambda: "a little"):
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
