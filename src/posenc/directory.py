"""One run on disk: runs/<experiment>/<pos>/seed<seed>-<identity>/."""

import csv
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

COLUMNS = (
    "step",
    "tokens",
    "seconds",
    "train_loss",
    "val_loss",
    "learning_rate",
    "gradient_norm",
    "tokens_per_s",
    "mfu",
    "previous_token",
    "induction",
)


FAILED_JOBS = "failed_jobs.jsonl"
"""In a sweep's folder: a line for each job that went wrong in its last sweep."""


def write_whole(file: Path, text: str) -> None:
    """Write a file by atomic rename: whole, or not at all."""
    partial = file.with_name(file.name + ".partial")
    with partial.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(partial, file)


@dataclass(frozen=True)
class RunDirectory:
    """Where one run keeps everything.

    config.yaml, metrics.csv, attention.csv, summary.json, checkpoints/, sample.txt, wandb/.

    Attributes:
        path: the directory.
        name: the experiment.
        scheme: the position scheme.
        seed: of the run.
    """

    path: Path
    name: str
    scheme: str
    seed: int

    @classmethod
    def of(cls, runs: Path, name: str, scheme: str, seed: int, identity: str, rerun: bool) -> "RunDirectory":
        """The directory of a run; with `rerun`, the first beside it that holds no finished run."""
        stem = runs / name / scheme / f"seed{seed}-{identity}"
        directory = cls(stem, name, scheme, seed)
        number = 2
        while rerun and directory.finished():
            directory = cls(stem.with_name(f"{stem.name}-{number}"), name, scheme, seed)
            number += 1
        return directory

    def finished(self) -> bool:
        """Whether the run came to its end: the summary is the last thing it writes."""
        return (self.path / "summary.json").exists()

    def summary(self) -> dict[str, Any]:
        return json.loads((self.path / "summary.json").read_text())

    def create(self, config: Mapping[str, Any]) -> None:
        """Make the directory and write down the configuration."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(config))))

    def run_id(self) -> str:
        """A name that no other run has, drawn once and kept, so that a resumed run goes on under it."""
        file = self.path / "run_id.txt"
        if not file.exists():
            write_whole(file, secrets.token_hex(6) + "\n")
        return file.read_text().strip()

    def last_checkpoint(self) -> Path | None:
        return max((self.path / "checkpoints").glob("step-*.ckpt"), default=None)

    def finish(self, summary: Mapping[str, Any]) -> None:
        write_whole(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")


class MetricsFile:
    """A table that grows while a run goes on, such as metrics.csv; its first column is the step.

    After a resume, rows past the checkpoint are dropped, since they will be written again.
    """

    def __init__(self, file: Path, columns: Sequence[str], resumed_at: int) -> None:
        self.file, self.columns = file, columns
        kept = [row for row in read_metrics(file) if int(row["step"]) <= resumed_at]
        write_whole(file, ",".join(columns) + "\n" + self._lines(kept))

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, at once and whole; a column without a value stays empty."""
        with self.file.open("a") as stream:
            stream.write(self._lines(rows))

    def _lines(self, rows: Iterable[Mapping[str, Any]]) -> str:
        return "".join(",".join(str(row.get(column, "")) for column in self.columns) + "\n" for row in rows)


def read_metrics(file: Path) -> list[dict[str, str]]:
    """The complete rows of a metrics.csv, none if there is no such file; a row cut short is left out."""
    if not file.exists():
        return []
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    return [row for row in csv.DictReader(whole.splitlines()) if None not in row.values()]


def failed_jobs(folder: Path) -> list[dict[str, str]]:
    """What went wrong in the last sweep: a job and an error each."""
    noted = folder / FAILED_JOBS
    return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []
