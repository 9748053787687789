"""Checkpoint files, step-<step>-<16 digits of the SHA-256>.ckpt: each tells by its name whether it is whole."""

import hashlib
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posenc.errors import UserError

KEPT = 2
"""How many a run keeps: the newest, and one to go back to."""

_NAME = re.compile(r"step-\d{9}(?:-([0-9a-f]{16}))?\.ckpt")
"""Those of earlier versions of this program have no digits."""


def stem(step: int) -> str:
    """What a checkpoint is called before its digits are known."""
    return f"step-{step:09d}"


def step(file: Path) -> int:
    """After which step a checkpoint was written."""
    return int(file.name.removeprefix("step-")[:9])


def digits(checksum: "hashlib._Hash") -> str:
    """The part of a SHA-256 that is in the name."""
    return checksum.hexdigest()[:16]


def newest_first(folder: Path) -> list[Path]:
    """All checkpoints in a folder, damaged or not; plain files, since a pipe or a device would be read for ever."""
    found = (file for file in folder.glob("step-*.ckpt") if _NAME.fullmatch(file.name) and file.is_file())
    return sorted(found, reverse=True)


def intact(file: Path) -> bool:
    """Whether a checkpoint holds the bytes that were written."""
    named = _NAME.fullmatch(file.name)
    if named is None:
        return False
    if named[1] is None:
        return _sound_zip(file)
    with file.open("rb") as stream:
        return digits(hashlib.file_digest(stream, "sha256")) == named[1]


def _sound_zip(file: Path) -> bool:
    """Whether a file without a checksum of ours passes those inside it; what is no zip is judged when it is read."""
    with file.open("rb") as stream:
        if stream.read(2) != b"PK":
            return True
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except zipfile.BadZipFile:
        return False


def newest(folder: Path) -> tuple[Path | None, list[Path]]:
    """The newest checkpoint that is whole, None if there is none, and the damaged ones that are newer."""
    damaged: list[Path] = []
    for file in newest_first(folder):
        if intact(file):
            return file, damaged
        damaged.append(file)
    return None, damaged


def set_aside(damaged: list[Path]) -> Iterator[Path]:
    """Rename damaged checkpoints, so that they are neither used nor counted; yields each under its new name."""
    for file in damaged:
        yield file.rename(file.with_name(f"{file.name}.damaged"))


def load(file: Path) -> dict[str, Any]:
    """What is in a checkpoint, on the CPU. Nothing in it is ever executed.

    Raises:
        UserError: if it is no checkpoint, or holds anything but tensors and plain data.
    """
    import pickle

    import torch

    try:
        with warnings.catch_warnings(action="ignore"):  # it warns of what it then refuses
            checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(f"{file} holds more than tensors and plain data: it was not loaded, nor run") from error
    except OSError:
        raise
    except Exception as error:  # arbitrary bytes make the unpickler fail in any way
        raise UserError(f"{file} is not a checkpoint, or damaged") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("configuration"), dict):
        raise UserError(f"{file} is not a checkpoint of this program")
    return checkpoint
