"""Tokens on disk, memory-mapped: written once, whole or not at all, and checked on every opening."""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from tqdm import tqdm

TOKENS, META = "tokens.bin", "meta.json"
FORMAT = 1


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

    Several processes may call this at once: one builds, the others wait and read. A build goes to a folder beside
    it, which is renamed when it is complete.

    Args:
        folder: where this split's tokens live.
        fingerprint: what they are made from.
        dtype: their type.
        encode: yields the tokens, chunk after chunk.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        fault = check(folder, fingerprint, dtype)
        if fault is not None:
            if folder.exists():
                print(
                    f"The cache {folder} is damaged ({fault}); it is built again.",
                    file=sys.stderr,
                    flush=True,
                )
            _build(folder, fingerprint, dtype, encode())
    return Tokens(np.memmap(folder / TOKENS, dtype=dtype, mode="r"), fingerprint)


def check(folder: Path, fingerprint: str, dtype: np.dtype) -> str | None:
    """What is wrong with a cache, in words; None if nothing is."""
    try:
        meta = json.loads((folder / META).read_text())
        size = (folder / TOKENS).stat().st_size
        with (folder / TOKENS).open("rb") as stream:
            checksum = hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        return f"unreadable: {error}"
    expected = {"format": FORMAT, "fingerprint": fingerprint, "dtype": str(dtype)}
    wrong = [key for key, value in expected.items() if not isinstance(meta, dict) or meta.get(key) != value]
    if wrong:
        return f"its {wrong[0]} is not the expected one"
    if size != meta.get("bytes"):
        return f"{size:,} bytes where {meta.get('bytes'):,} were written"
    return None if checksum == meta.get("sha256") else "its checksum does not match"


def _build(folder: Path, fingerprint: str, dtype: np.dtype, chunks: Iterator[np.ndarray]) -> None:
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    begun = time.monotonic()
    try:
        size, checksum = _write(partial / TOKENS, dtype, chunks, folder.name)
        meta = {
            "format": FORMAT,
            "fingerprint": fingerprint,
            "dtype": str(dtype),
            "bytes": size,
            "sha256": checksum,
        }
        (partial / META).write_text(json.dumps(meta, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    seconds = time.monotonic() - begun
    print(f"Cached {size // dtype.itemsize:,} tokens in {folder} ({seconds:.1f} s).", flush=True)


def _write(file: Path, dtype: np.dtype, chunks: Iterator[np.ndarray], title: str) -> tuple[int, str]:
    checksum, size = hashlib.sha256(), 0
    every = 0.1 if sys.stderr.isatty() else 30  # seconds
    bar = tqdm(desc=title, unit=" tokens", unit_scale=True, delay=1, mininterval=every)
    with file.open("wb") as stream, bar:
        for chunk in chunks:
            data = chunk.astype(dtype, copy=False).tobytes()
            stream.write(data)
            checksum.update(data)
            size += len(data)
            bar.update(len(chunk))
        stream.flush()
        os.fsync(stream.fileno())
    return size, checksum.hexdigest()
