"""One run on disk: runs/<experiment>/<pos>/seed<seed>-<identity>/."""

import csv
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from posenc.errors import UserError
from posenc.storage.atomic import clear_partial, full_disk_told, whole

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
    "position_share",
)


HOLDER = "holder.txt"
"""In a run's directory while it is trained: by whom."""

FAILED_JOBS = "failed_jobs.jsonl"
"""In a sweep's folder: a line for each job that went wrong in its last sweep."""


def write_whole(file: Path, text: str) -> None:
    """Write a text file whole, or not at all.

    Raises:
        RunError: if the disk is full.
    """
    data = text.encode()
    with whole(file, lambda: len(data)) as writing:
        writing.stream.write(data)


def check_writable(what: str, folder: Path) -> None:
    """Check that a folder can be written to, or made; nothing is left of the attempt.

    Args:
        what: names it on the command line, like runs=here.
        folder: need not be there.

    Raises:
        UserError: if not.
    """
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if _exists(place))
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise UserError(f"{what} cannot be written to: {error.strerror}") from error


def _exists(place: Path) -> bool:
    """Whether a path is there; unlike Path.exists, raises OSError where it can never be."""
    try:
        place.stat()
    except FileNotFoundError:
        return False
    return True


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
        return os.path.exists(self.path / "summary.json")  # false, too, where a path can never be

    def summary(self) -> dict[str, Any]:
        return json.loads((self.path / "summary.json").read_text())

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep a second process with the same command out of the directory, and tell it who is in.

        Raises:
            UserError: if another process holds it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        holder = self.path / HOLDER
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            who = holder.read_text().strip() if holder.exists() else "another process"
            raise UserError(f"{who} is training this run, in {self.path}") from error
        try:
            clear_partial(self.path)
            since = datetime.now(UTC).strftime("%F %T UTC")
            write_whole(holder, f"process {os.getpid()} on {socket.gethostname()} (since {since})\n")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def create(self, config: Mapping[str, Any]) -> None:
        """Make the directory and write down the configuration."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        clear_partial(self.checkpoints)
        write_whole(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(config))))

    def run_id(self, given: str | None = None) -> str:
        """A name that no other run has, drawn once and kept, so that a resumed run goes on under it.

        Args:
            given: by who has begun the run; it counts more than what was drawn before.
        """
        file = self.path / "run_id.txt"
        if given or not file.exists():
            write_whole(file, (given or secrets.token_hex(6)) + "\n")
        return file.read_text().strip()

    def finish(self, summary: Mapping[str, Any]) -> None:
        write_whole(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")


def begun(cfg: DictConfig) -> Path | None:
    """The directory in which a configuration is being trained, or was; None if it has none.

    Args:
        cfg: as composed for a job, with Hydra's part.
    """
    wanted = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(wanted, dict)
    wanted.pop("hydra")
    for file in Path(cfg.runs, cfg.name).glob(f"*/seed{cfg.seed}-*/config.yaml"):
        made = OmegaConf.to_container(OmegaConf.load(file))
        if isinstance(made, dict) and {**made, **wanted} == made:
            return file.parent
    return None


class MetricsFile:
    """A table that grows while a run goes on, such as metrics.csv; its first column is the step.

    After a resume, rows past the checkpoint are dropped, since they will be written again.
    """

    def __init__(self, file: Path, columns: Sequence[str], resumed_at: int) -> None:
        self.file, self.columns = file, columns
        kept = [row for row in read_metrics(file) if int(row["step"]) <= resumed_at]
        write_whole(file, ",".join(columns) + "\n" + self._lines(kept))

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, at once and whole; a column without a value stays empty.

        Raises:
            RunError: if the disk is full.
        """
        lines = self._lines(rows)
        with full_disk_told(self.file, lambda: f"{len(lines):,} bytes more"), self.file.open("a") as stream:
            stream.write(lines)

    def sync(self) -> None:
        """Have every row on disk: a checkpoint must not outlive, in a power cut, the rows that came before it."""
        with self.file.open("r+") as stream:
            os.fsync(stream.fileno())

    def _lines(self, rows: Iterable[Mapping[str, Any]]) -> str:
        return "".join(",".join(str(row.get(column, "")) for column in self.columns) + "\n" for row in rows)


def read_metrics(file: Path) -> list[dict[str, str]]:
    """The complete rows of a metrics.csv, none if there is no such file; a row cut short is left out."""
    if not file.exists():
        return []
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    return [row for row in csv.DictReader(whole.splitlines()) if None not in row.values()]


def steps_in(file: Path) -> list[int]:
    """The steps that a table has rows of, each once; none if it cannot be read."""
    try:
        return list(dict.fromkeys(int(row["step"]) for row in read_metrics(file)))
    except (KeyError, ValueError):
        return []


def failed_jobs(folder: Path) -> list[dict[str, str]]:
    """What went wrong in the last sweep: a job and an error each."""
    noted = folder / FAILED_JOBS
    return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []
