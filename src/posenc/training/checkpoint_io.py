"""Writing and reading checkpoints."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from posenc.config.schema import NOT_IN_IDENTITY
from posenc.errors import UserError
from posenc.storage import checkpoint_files
from posenc.storage.atomic import atomic_open
from posenc.storage.reading import leaves
from posenc.storage.run_directory import RunDirectory

ADDED_KEYS = ("choices", "precision")
"""Keys that `run` adds to a configuration and that may differ; it also adds `text`, which is compared."""


class CheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically with a checksum in the name; loads only tensors and plain data."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:  # noqa: ARG002
        """Write to `path` with the checksum appended to its name.

        Raises:
            RunError: if the disk is full.
        """
        file = Path(path)
        with atomic_open(file.with_suffix(".ckpt"), lambda: _size(checkpoint)) as writing:
            stream = _Checksum(writing.stream)
            try:
                torch.save(checkpoint, stream)  # type: ignore[arg-type]  # it needs only `write` and `flush`
            except RuntimeError:
                if stream.error is None:
                    raise
                raise stream.error from None
            writing.file = file.with_name(f"{file.name}-{checkpoint_files.digits(stream.checksum)}.ckpt")

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:  # noqa: ARG002
        """
        Raises:
            UserError: if it contains anything but tensors and plain data.
        """
        return checkpoint_files.load(Path(path))


def check_configuration(checkpoint: Mapping[str, Any], configuration: Mapping[str, Any]) -> None:
    """Check that a checkpoint was written with the same configuration.

    Raises:
        UserError: names the keys that differ.
    """
    theirs, ours = (_compared(one) for one in (checkpoint["configuration"], configuration))
    differing = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    if differing:
        named = [f"{key}={theirs.get(key)} (here {ours.get(key)})" for key in differing[:3]]
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise UserError(f"the checkpoint is from another configuration: {', '.join(named)}{more}")


def _compared(configuration: Mapping[str, Any]) -> dict[str, Any]:
    apart = {*NOT_IN_IDENTITY, *ADDED_KEYS}
    return dict(leaves({key: value for key, value in configuration.items() if key not in apart}))


class _Checksum:
    """A stream that computes a checksum of what is written to it.

    Attributes:
        error: why a write failed, which torch's own error does not say.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.checksum = stream, hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        self.checksum.update(data)
        try:
            return self.stream.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.stream.flush()


class _Length:
    """A stream that only counts bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        self.bytes += memoryview(data).nbytes
        return memoryview(data).nbytes

    def flush(self) -> None:
        pass


def _size(checkpoint: Mapping[str, Any]) -> int:
    length = _Length()
    torch.save(checkpoint, length)  # type: ignore[arg-type]  # it needs only `write` and `flush`
    return length.bytes


def newest_intact(directory: RunDirectory) -> Path | None:
    """The checkpoint to resume from, or None; newer ones that are damaged are set aside with a warning."""
    newest, damaged = checkpoint_files.newest(directory.checkpoints)
    for aside in checkpoint_files.set_aside(damaged):
        instead = f"using the previous one, {newest.name}" if newest else "starting from scratch"
        print(f"{aside} is damaged (its checksum does not match); {instead}.", file=sys.stderr, flush=True)
    return newest
