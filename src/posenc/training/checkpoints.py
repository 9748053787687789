"""Checkpoints: when they are written, and how they are written and read."""

import hashlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, Trainer

from posenc.config.schema import NOT_THE_CURVE
from posenc.errors import UserError
from posenc.storage import checkpoint_files
from posenc.storage.atomic import atomic_open
from posenc.storage.reading import leaves
from posenc.storage.run_directory import RunDirectory
from posenc.training.loop import Curve, largest
from posenc.training.signals import Signals
from posenc.training.timing import CHECKPOINTS, Phases

MADE_OF = ("choices", "precision")
"""What `run` adds to a configuration; the text, added too, is compared."""


class CheckpointFiles(TorchCheckpointIO):
    """Writes checkpoints whole and under their checksum; reads tensors and plain data, and nothing that could act."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:  # noqa: ARG002
        """Write `path`, a name without digits, with its digits.

        Raises:
            RunError: if the disk is full.
        """
        file = Path(path)
        with atomic_open(file.with_suffix(".ckpt"), lambda: _size(checkpoint)) as writing:
            stream = _Checksum(writing.stream)
            try:
                torch.save(checkpoint, stream)  # type: ignore[arg-type]  # it asks for `write` and `flush` only
            except RuntimeError:
                if stream.error is None:
                    raise
                raise stream.error from None
            writing.file = file.with_name(f"{file.name}-{checkpoint_files.digits(stream.checksum)}.ckpt")

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:  # noqa: ARG002
        """
        Raises:
            UserError: if there is anything in it but tensors and plain data.
        """
        return checkpoint_files.load(Path(path))


def refuse_foreign(checkpoint: Mapping[str, Any], configuration: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that another configuration has made.

    Raises:
        UserError: naming what differs.
    """
    theirs, ours = (_compared(one) for one in (checkpoint["configuration"], configuration))
    differing = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    if differing:
        told = [f"{key}={theirs.get(key)} (here {ours.get(key)})" for key in differing[:3]]
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise UserError(f"the checkpoint is of another configuration: {', '.join(told)}{more}")


def _compared(configuration: Mapping[str, Any]) -> dict[str, Any]:
    apart = {*NOT_THE_CURVE, *MADE_OF}
    return dict(leaves({key: value for key, value in configuration.items() if key not in apart}))


class _Checksum:
    """Passes bytes on to a stream and adds them to a checksum.

    Attributes:
        error: why the stream did not take them; torch tells only that it failed.
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
    """A stream that keeps nothing but how much it was given."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        self.bytes += memoryview(data).nbytes
        return memoryview(data).nbytes

    def flush(self) -> None:
        pass


def _size(checkpoint: Mapping[str, Any]) -> int:
    length = _Length()
    torch.save(checkpoint, length)  # type: ignore[arg-type]  # it asks for `write` and `flush` only
    return length.bytes


def usable(directory: RunDirectory) -> Path | None:
    """The checkpoint to go on from, None if there is none; newer ones that are damaged are set aside and named."""
    newest, damaged = checkpoint_files.newest(directory.checkpoints)
    for aside in checkpoint_files.set_aside(damaged):
        instead = f"the one before it, {newest.name}, is used" if newest else "the run begins anew"
        print(f"{aside} is damaged (its checksum does not match); {instead}.", file=sys.stderr, flush=True)
    return newest


class Checkpoints(Callback):
    """Saves when enough time has passed, at the end, and when a signal asks the run to stop; keeps the last two.

    It is what ends a run that is to stop. This must come after `Curve` in the list of callbacks: what is due at a
    step is then on disk, or pending in the checkpoint.

    Args:
        directory: the run's.
        seconds: least time between two checkpoints.
        phases: told what the run is doing.
        curve: whose rows go with the checkpoint.
        signals: what may stop the run.
    """

    def __init__(self, directory: RunDirectory, seconds: float, phases: Phases, curve: Curve, signals: Signals) -> None:
        self.folder, self.seconds, self.phases = directory.checkpoints, seconds, phases
        self.curve, self.signals = curve, signals
        self._saved = time.monotonic()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        step = trainer.global_step
        stopping = self.signals.asked is not None
        if stopping or step == pl_module.steps or (self.curve.just_validated(step) and self._due(trainer)):
            self.curve.refuse_lost(pl_module, step)
            with self.phases.within(CHECKPOINTS):
                self._save(trainer, step)
        if stopping:
            # Other ranks may see it a moment later.
            place = next(iter(checkpoint_files.newest_first(self.folder)), self.folder)
            self.signals.stop(
                f"step {step} of {pl_module.steps} is saved in {place}; the same command goes on from there"
            )

    def _due(self, trainer: Trainer) -> bool:
        """Whether enough time has passed; with several processes, for the first."""
        return trainer.strategy.broadcast(time.monotonic() - self._saved >= self.seconds)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:  # noqa: ARG002
        self.signals.agree(lambda signum: largest(signum, trainer))
        self.signals.trained()

    def _save(self, trainer: Trainer, step: int) -> None:
        self.signals.saving()
        if trainer.is_global_zero:
            self.curve.sync()
        trainer.save_checkpoint(self.folder / checkpoint_files.stem(step), weights_only=False)
        self._saved = time.monotonic()
        if trainer.is_global_zero:
            for old in checkpoint_files.newest_first(self.folder)[checkpoint_files.KEPT :]:
                old.unlink()
        self.signals.saved()
