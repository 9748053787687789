"""TensorBoard logging with torch's SummaryWriter."""

import textwrap
from collections.abc import Mapping
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from posenc.storage.csv_files import read_numbers
from posenc.storage.metrics import as_logged
from posenc.storage.resource_errors import disk_errors
from posenc.storage.run_directory import RunDirectory
from posenc.tracking.logger import Logger


class TensorBoard(Logger):
    """Logs one run. When it resumes, steps logged after the last checkpoint are purged."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory, self.folder = directory, directory.path / "tensorboard"
        self._writer: SummaryWriter | None = None

    def log_metrics(self, row: Mapping[str, float]) -> None:
        """Log a row of metrics.csv, under the same names as for W&B; in a new folder all rows, as after a fork."""
        new = [] if self.folder.exists() else read_numbers(self.directory.path / "metrics.csv")
        with disk_errors(self.folder):
            for one in new or [dict(row)]:
                step = int(one["step"])
                for name, value in as_logged(one).items():
                    if name != "step":
                        self._from(step).add_scalar(name, value, step)

    def _from(self, step: int) -> SummaryWriter:
        """The writer, created by its first use, which purges what an earlier session has written from a step on."""
        if self._writer is None:
            self._writer = SummaryWriter(self.folder, purge_step=step)
        return self._writer

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:
        """Log the sample."""
        self._from(summary["steps"] + 1).add_text("sample", textwrap.indent(sample, "    "), summary["steps"])

    def close(self, failed: bool) -> None:  # noqa: ARG002
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
