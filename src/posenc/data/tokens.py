"""The tokens of a split, cached on disk."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from posenc.data.cache import built_once
from posenc.errors import UserError
from posenc.storage.reading import open_regular, read_mapping

TOKENS, META = "tokens.bin", "meta.json"
FORMAT = 1


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
    written: dict[str, Any] = {}

    def build(partial: Path) -> None:
        written.update(_write(partial / TOKENS, folder.name, dtype, encode()))
        (partial / META).write_text(json.dumps({**meta, **written}, indent=1))

    start = time.monotonic()
    ids = built_once(folder, lambda path: _read(path, meta), build)
    if written:
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
        if hashlib.file_digest(stream, "sha256").hexdigest() != meta.get("sha256"):
            raise UserError("its checksum does not match")
        # Maps the open file, not its name, since another process may delete it now.
        return np.memmap(stream, dtype=dtype, mode="r")


def _write(file: Path, title: str, dtype: np.dtype, chunks: Iterator[np.ndarray]) -> dict[str, Any]:
    """Write all chunks of tokens to a file; returns their SHA-256."""
    checksum = hashlib.sha256()
    interval = 0.1 if sys.stderr.isatty() else 30  # seconds
    bar = tqdm(desc=title, unit=" tokens", unit_scale=True, delay=1, mininterval=interval)
    with file.open("wb") as stream, bar:
        for chunk in chunks:
            data = chunk.astype(dtype, copy=False).tobytes()
            stream.write(data)
            checksum.update(data)
            bar.update(len(chunk))
        stream.flush()
        os.fsync(stream.fileno())
    return {"sha256": checksum.hexdigest()}
