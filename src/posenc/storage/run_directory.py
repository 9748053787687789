"""One run on disk: runs/<name>/<pos>/seed<seed>-<identity>/."""

import glob
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Required

from annotated_types import Ge, Lt
from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf
from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from posenc.bounds import NonNegative, PositiveInt
from posenc.errors import UserError
from posenc.storage.atomic import atomic_write, clear_partial
from posenc.storage.reading import check_types, read_mapping, read_text

HOLDER = "holder.txt"
"""In a run directory during training: the process that holds the lock."""


@dataclass(frozen=True)
class RunDirectory:
    """A run directory: config.yaml, metrics.csv, attention.csv, checkpoints/, sample.txt, and at the end summary.json.

    Also tokenizer.json if one was trained, what a logger writes, such as run_id.txt and wandb/, and during training
    holder.txt.
    """

    path: Path
    name: str
    """The experiment."""
    scheme: str
    seed: int

    @classmethod
    def of(cls, runs: Path, name: str, scheme: str, seed: int, identity: str, rerun: bool) -> "RunDirectory":
        """The directory of a run; with `rerun`, the first numbered one without a finished run."""
        stem = runs / name / scheme / f"seed{seed}-{identity}"
        directory = cls(stem, name, scheme, seed)
        number = 2
        while rerun and directory.finished():
            directory = cls(stem.with_name(f"{stem.name}-{number}"), name, scheme, seed)
            number += 1
        return directory

    def finished(self) -> bool:
        """Whether the run is finished; the summary is written last."""
        return os.path.exists(self.path / "summary.json")  # false for invalid paths, too

    def summary(self) -> dict[str, Any]:
        """The result of a finished run, with the keys and types of `Summary`.

        Raises:
            UserError: if it cannot be read, or is invalid.
        """
        file = self.path / "summary.json"
        summary = read_mapping(file)
        check_types(file, summary, Summary)
        return summary

    def sample(self) -> str:
        """The sample of a finished run; empty if its file is missing."""
        file = self.path / "sample.txt"
        return read_text(file) if file.exists() else ""

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """Folder of the checkpoint with the lowest validation loss, which is saved if a logger needs it."""
        return self.checkpoints / "best"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other processes with the same command.

        Raises:
            UserError: if another process holds the lock; names that process.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        holder = self.path / HOLDER
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            who = "another process"
            with suppress(UserError):  # it may have ended
                who = read_text(holder).strip()
            raise UserError(f"{who} is training this run, in {self.path}") from error
        try:
            clear_partial(self.path)
            since = datetime.now(UTC).strftime("%F %T UTC")
            atomic_write(holder, f"process {os.getpid()} on {socket.gethostname()} (since {since})\n")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def create(self, config: Mapping[str, Any]) -> None:
        """Create the directory and write the configuration."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        for folder in (self.checkpoints, self.best):
            clear_partial(folder)
        atomic_write(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(config))))

    def run_id(self, given: str | None = None) -> str:
        """A unique id, generated once and stored, so that a resumed run keeps it; a given one replaces it."""
        file = self.path / "run_id.txt"
        if given or not file.exists():
            atomic_write(file, (given or secrets.token_hex(6)) + "\n")
        return read_text(file).strip()

    def finish(self, summary: Mapping[str, Any]) -> None:
        atomic_write(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")


def find_run(cfg: DictConfig) -> Path | None:
    """The run directory that a job of this configuration has used last; None if there is none."""
    wanted = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(wanted, dict)
    wanted.pop("hydra", None)
    found = []
    for file in Path(cfg.runs, cfg.name).glob(f"*/seed{glob.escape(str(cfg.seed))}-*/config.yaml"):
        try:
            config = read_mapping(file)
        except UserError:  # damaged, and so not the one that this job is writing
            continue
        if {**config, **wanted} == config:
            found.append(file)
    # Several after rerun=true, or if the text has changed; each session writes config.yaml anew.
    return max(found, key=lambda file: file.stat().st_mtime_ns).parent if found else None


def machine(summary: Mapping[str, Any]) -> str:
    """What a run's seconds depend on besides its configuration, in its last session."""
    devices = f"{summary['devices']} x " if summary.get("devices", 1) > 1 else ""
    return f"{devices}{summary['hardware']}{', compiled' if summary.get('compiled') else ''}"


class Summary(TypedDict, total=False):
    """The keys read from a summary; earlier versions wrote fewer, and all write more."""

    __pydantic_config__ = {"strict": True, "allow_inf_nan": False}  # type: ignore[misc]
    val_loss: Required[NonNegative]
    seconds: Required[NonNegative]
    tokens_per_s: Required[NonNegative]
    parameters: Required[Annotated[int, Ge(0), Lt(2**63)]]
    bits_per_byte: NonNegative
    bigram_loss: NonNegative | None
    unigram_loss: NonNegative | None
    val_loss_se: NonNegative
    mfu: NonNegative
    peak_memory: NonNegative
    time: dict[str, NonNegative]
    versions: dict[str, str]
    hardware: str
    devices: PositiveInt
    compiled: bool
    machines: list[str]
    precision: str
    commit: str | None
    fork_from: str | None
    date: str
