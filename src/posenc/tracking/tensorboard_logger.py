"""TensorBoard logging with torch's SummaryWriter."""

import re
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.loggers import Logger
from torch.utils.tensorboard import SummaryWriter

from posenc.storage.run_directory import RunDirectory
from posenc.tracking.client import to_wandb


class TensorBoard(Logger):
    """Logs one run. When it resumes, steps logged after the last checkpoint are purged."""

    wants_best = False

    def __init__(self, directory: RunDirectory) -> None:
        super().__init__()
        self.directory = directory
        self._writer: SummaryWriter | None = None

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def version(self) -> str:
        return self.directory.path.name

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Not logged; they are in config.yaml."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log a row of metrics.csv, under the same names as for W&B."""
        for name, value in to_wandb(metrics).items():
            if name != "step":
                self._from(step).add_scalar(name, value, step)

    def _from(self, step: int | None) -> SummaryWriter:
        """The writer, created by its first use, which purges what an earlier session has written from a step on."""
        if self._writer is None:
            self._writer = SummaryWriter(self.directory.path / "tensorboard", purge_step=step)
        return self._writer

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:
        """Log the sample."""
        text = re.sub("^", "    ", sample, flags=re.MULTILINE)
        self._from(summary["steps"] + 1).add_text("sample", text, summary["steps"])

    def close(self, failed: bool) -> None:  # noqa: ARG002
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
