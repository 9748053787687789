"""Checkpoint files, step-<step>-<16 digits of the SHA-256>.ckpt, whose name allows verifying them."""

import hashlib
import pickle
import re
import warnings
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

from posenc.errors import UserError, out_of_memory

KEPT = 2
"""Number of checkpoints kept: the newest, and one to fall back to."""

_NAME = re.compile(r"step-\d{9}-[0-9a-f]{16}\.ckpt")


def stem(step: int) -> str:
    """The name of a checkpoint without its checksum."""
    return f"step-{step:09d}"


def step(file: Path) -> int:
    """The step of a checkpoint."""
    return int(file.name.removeprefix("step-")[:9])


def checksum(content: BytesIO | BufferedReader) -> str:
    """The part of the SHA-256, in hexadecimal digits, that is in the name."""
    return hashlib.file_digest(content, "sha256").hexdigest()[:16]


def newest_first(folder: Path) -> list[Path]:
    """All checkpoints in a folder, damaged or not; only regular files, since reading a pipe would block."""
    found = (file for file in folder.glob("step-*.ckpt") if _NAME.fullmatch(file.name) and file.is_file())
    return sorted(found, reverse=True)


def intact(file: Path) -> bool:
    """Whether a checkpoint matches its checksum."""
    with file.open("rb") as stream:
        return checksum(stream) == file.stem.rpartition("-")[2]


def newest(folder: Path) -> tuple[Path | None, list[Path]]:
    """The newest intact checkpoint, or None, and the damaged ones that are newer."""
    damaged: list[Path] = []
    for file in newest_first(folder):
        if intact(file):
            return file, damaged
        damaged.append(file)
    return None, damaged


def load(file: Path) -> dict[str, Any]:
    """Load a checkpoint to the CPU, without executing code from it.

    Raises:
        UserError: if it is not a checkpoint, or contains anything but tensors and plain data.
    """
    import torch

    try:
        with warnings.catch_warnings(action="ignore"):  # torch warns before it raises
            checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(f"{file} contains more than tensors and plain data, and was not loaded") from error
    except Exception as error:  # the unpickler can raise anything on arbitrary bytes
        if isinstance(error, OSError) or out_of_memory(error):
            raise
        raise UserError(f"{file} is not a checkpoint, or is damaged") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("configuration"), dict):
        raise UserError(f"{file} is not a checkpoint of this program")
    return checkpoint
