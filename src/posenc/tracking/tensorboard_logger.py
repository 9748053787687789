"""A run's curve for TensorBoard, by torch's own writer."""

import re
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.loggers import Logger

from posenc.storage.run_directory import RunDirectory
from posenc.tracking.client import to_wandb


class TensorBoard(Logger):
    """One run there. What an earlier session logged past its last checkpoint is hidden by the first row of this one.

    Args:
        writer: torch's SummaryWriter, the class.
        directory: the run's.
    """

    wants_best = False

    def __init__(self, writer: Any, directory: RunDirectory) -> None:
        super().__init__()
        self.directory, self._class = directory, writer
        self._writer: Any = None

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def version(self) -> str:
        return self.directory.path.name

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """They are in config.yaml."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """A row of metrics.csv, its columns in the groups that W&B has them in."""
        if self._writer is None:
            self._writer = self._class(self.directory.path / "tensorboard", purge_step=step)
        for name, value in to_wandb(metrics).items():
            if name != "step":
                self._writer.add_scalar(name, value, step)

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:
        """Hand over the sample."""
        if self._writer is not None:
            self._writer.add_text("sample", re.sub("^", "    ", sample, flags=re.MULTILINE), summary["steps"])

    def close(self, failed: bool) -> None:  # noqa: ARG002
        """Have everything on disk."""
        if self._writer is not None:
            self._writer.close()


def begin(directory: RunDirectory) -> list[TensorBoard]:
    """The logger; none where TensorBoard is not installed, after saying so in a line."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print(
            "TensorBoard is not installed (`pip install tensorboard`): the curve goes to metrics.csv alone.", flush=True
        )
        return []
    return [TensorBoard(SummaryWriter, directory)]
