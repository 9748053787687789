"""Starting a run from another run's checkpoint, such as a cool-down after a constant learning rate."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc.config.instantiate import build
from posenc.config.schema import check_groups, check_settings
from posenc.errors import UserError
from posenc.storage import checkpoint_files
from posenc.storage.atomic import atomic_write
from posenc.storage.csv_files import MAX_BYTES
from posenc.storage.reading import read_mapping, read_text
from posenc.storage.run_directory import RunDirectory
from posenc.training.checkpoint_io import CheckpointIO, check_configuration
from posenc.training.experiment import Experiment

MAY_DIFFER = ("steps", "schedule")
"""Keys that may differ in a fork, as long as the learning rate is the same up to the checkpoint. So may
attention_every, as long as neither run has measured its heads by then."""


@dataclass(frozen=True)
class Fork:
    """The latest checkpoint of another run that is bitwise equal to the new run's state at that step."""

    file: Path
    checkpoint: dict[str, Any]
    rows: dict[str, str]

    @classmethod
    def of(cls, source: Path, experiment: Experiment) -> "Fork":
        """The latest checkpoint of `source` from which the new run can start.

        Raises:
            UserError: if the other run differs in more than its length, has another vocabulary, or no checkpoint that
                early.
        """
        if not (source / "config.yaml").exists():
            raise UserError(f"fork_from={source} is not a run directory: it has no config.yaml")
        theirs = read_mapping(source / "config.yaml")
        try:
            file = _latest(source / "checkpoints", _shared_updates(theirs, experiment))
            checkpoint, step = checkpoint_files.load(file), checkpoint_files.step(file)
            measured = step >= min(theirs["attention_every"], experiment.config["attention_every"])
            free = MAY_DIFFER if measured else (*MAY_DIFFER, "attention_every")
            check_configuration(checkpoint, {**experiment.config, **{key: theirs[key] for key in free}})
            experiment.tokenizer.check(source)
            rows = _rows(source)
        except UserError as error:
            raise UserError(f"fork_from={source}: {error}") from error
        _set_learning_rate(checkpoint, experiment, step)
        return cls(file, {**checkpoint, "configuration": dict(experiment.config)}, rows)

    def into(self, directory: RunDirectory) -> None:
        """Copy the checkpoint and the rows, so that the run can be resumed from there."""
        for name, rows in self.rows.items():
            atomic_write(directory.path / name, rows)
        stem = checkpoint_files.stem(checkpoint_files.step(self.file))
        CheckpointIO().save_checkpoint(self.checkpoint, directory.checkpoints / stem)


def _rows(source: Path) -> dict[str, str]:
    """The rows of a run, by file."""
    return {name: read_text(source / name, MAX_BYTES) for name in ("metrics.csv", "attention.csv")}


def _latest(folder: Path, shared: int) -> Path:
    """The latest intact checkpoint of the first `shared` updates."""
    every = checkpoint_files.newest_first(folder)
    for file in every:
        if checkpoint_files.step(file) <= shared and checkpoint_files.intact(file):
            return file
    steps = " and ".join(str(checkpoint_files.step(file)) for file in reversed(every)) or "none"
    raise UserError(
        f"the learning rates agree up to step {shared}, and it has no checkpoint that early (steps: {steps})"
    )


def _set_learning_rate(checkpoint: dict[str, Any], experiment: Experiment, step: int) -> None:
    """Set the learning rate of the next update, which the other run's schedule has already set."""
    factor = experiment.schedule.lr_factor(step, experiment.config["steps"])
    for optimizer in checkpoint["optimizer_states"]:
        for group in optimizer["param_groups"]:
            group["lr"] = group["initial_lr"] * factor


def _shared_updates(theirs: dict[str, Any], experiment: Experiment) -> int:
    """The number of updates with the same learning rate in both runs, at most all but our last."""
    check_settings(theirs, ("steps", "attention_every"))
    check_groups(theirs, ["schedule"])
    schedule, ours = build(theirs, "schedule"), experiment.config
    length = min(theirs["steps"], ours["steps"] - 1)
    factors = (
        (schedule.lr_factor(step, theirs["steps"]), experiment.schedule.lr_factor(step, ours["steps"]))
        for step in range(length)
    )
    return next((step for step, (one, other) in enumerate(factors) if one != other), length)
