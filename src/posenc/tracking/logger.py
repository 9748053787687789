"""The interface of loggers."""

from collections.abc import Mapping
from typing import Any


class Logger:
    """What a run tells a logger, on rank 0. This one ignores it: metrics.csv is always written.

    Attributes:
        wants_best: whether the checkpoint of the lowest validation loss is kept for it.
    """

    wants_best = False

    def log_metrics(self, row: Mapping[str, float]) -> None:
        """A row of metrics.csv."""

    def finish(self, sample: str, summary: Mapping[str, Any]) -> None:
        """The result of the finished run, before `close`."""

    def close(self, failed: bool) -> None:
        """The end of this session: finished, or stopped or failed."""
