"""Tokens on disk, memory-mapped: written once, whole or not at all, and checked on every opening."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from posenc.data.folders import one_builder, whole_folder

TOKENS, META = "tokens.bin", "meta.json"
FORMAT = 1

COUNTED = 5.0
"""Seconds that are spent on finding out how much a full disk lacks."""


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
    """The tokens cached in `folder`, built there first if they are missing or damaged.

    Several processes may call this at once: one builds, the others wait and read. What is whole is only read, so that
    a cache may lie where nothing can be written. Tokens that are open outlive the folder.

    Args:
        folder: where this split's tokens live.
        fingerprint: what they are made from.
        dtype: their type.
        encode: yields the tokens, chunk after chunk.

    Raises:
        UserError: if they are not there, and cannot be written.
        RunError: if the disk is full.
    """
    found = read(folder, fingerprint, dtype)
    while isinstance(found, str):  # again, if somebody deletes what was just built
        with one_builder(folder):
            found = read(folder, fingerprint, dtype)
            if isinstance(found, str):
                if folder.exists():
                    print(f"The cache {folder} is damaged ({found}); it is built again.", file=sys.stderr, flush=True)
                _build(folder, fingerprint, dtype, encode())
                found = read(folder, fingerprint, dtype)
    return Tokens(found, fingerprint)


def read(folder: Path, fingerprint: str, dtype: np.dtype) -> np.ndarray | str:
    """The tokens of a cache, (N,), memory-mapped, or what is wrong with it, in words."""
    try:
        meta = json.loads((folder / META).read_text())
        with (folder / TOKENS).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            wrong = _wrong(meta, fingerprint, dtype, size)
            if wrong is not None:
                return wrong
            if hashlib.file_digest(stream, "sha256").hexdigest() != meta.get("sha256"):
                return "its checksum does not match"
            # Of the file that is open, not of its name: another process may delete it now.
            return np.memmap(stream, dtype=dtype, mode="r", shape=(size // dtype.itemsize,))
    except (OSError, ValueError) as error:
        return f"unreadable: {error}"


def _wrong(meta: object, fingerprint: str, dtype: np.dtype, size: int) -> str | None:
    """What is wrong with a cache of `size` bytes, but for its contents."""
    held = meta if isinstance(meta, dict) else {}
    expected = {"format": FORMAT, "fingerprint": fingerprint, "dtype": str(dtype)}
    for key, value in expected.items():
        if held.get(key) != value:
            return f"its {key} is not the expected one"
    if size != held.get("bytes") or size == 0:
        return f"{size} bytes where {held.get('bytes')} were written"
    return None


def _build(folder: Path, fingerprint: str, dtype: np.dtype, chunks: Iterator[np.ndarray]) -> None:
    begun = time.monotonic()
    writing = _Writing(dtype, chunks)
    with whole_folder(folder, writing.needed) as partial:
        writing.write(partial / TOKENS, folder.name)
        meta = {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "dtype": str(dtype),
            "bytes": writing.size,
            "sha256": writing.checksum.hexdigest(),
        }
        (partial / META).write_text(json.dumps(meta, indent=1))
    seconds = time.monotonic() - begun
    print(f"Cached {writing.size // dtype.itemsize:,} tokens in {folder} ({seconds:.1f} s).", flush=True)


class _Writing:
    """Chunks of tokens on their way to a file.

    Attributes:
        size: bytes so far.
        checksum: of them.
    """

    def __init__(self, dtype: np.dtype, chunks: Iterator[np.ndarray]) -> None:
        self.dtype, self.chunks = dtype, chunks
        self.size, self.checksum = 0, hashlib.sha256()

    def write(self, file: Path, title: str) -> None:
        """Write all chunks."""
        every = 0.1 if sys.stderr.isatty() else 30  # seconds
        bar = tqdm(desc=title, unit=" tokens", unit_scale=True, delay=1, mininterval=every)
        with file.open("wb") as stream, bar:
            for chunk in self.chunks:
                data = chunk.astype(self.dtype, copy=False).tobytes()
                self.size += len(data)  # first: what does not fit is needed too
                stream.write(data)
                self.checksum.update(data)
                bar.update(len(chunk))
            stream.flush()
            os.fsync(stream.fileno())

    def needed(self) -> str:
        """The bytes of all chunks, or of those that could be counted in a few seconds."""
        deadline = time.monotonic() + COUNTED
        for chunk in self.chunks:
            self.size += len(chunk) * self.dtype.itemsize
            if time.monotonic() > deadline:
                return f"more than {self.size:,} bytes"
        return f"{self.size:,} bytes"
