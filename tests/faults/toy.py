"""The toy run that faults befall, through the real command line."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc.storage.checkpoint_files import load, newest_first
from posenc.storage.csv_files import read_csv
from tests import warm
from tests.conftest import ROOT, clean_environment, curve
from tests.warm import Started

ARGUMENTS = ("experiment=smoke", "logger=csv", "trainer=cpu", "eval_every=20", "checkpoint_seconds=0")


@dataclass(frozen=True)
class Toy:
    """A run of a few seconds, fp32 on the CPU.

    Attributes:
        folder: where it, and its cache, are written.
        steps: its length; some 200 a second.
        more: further arguments.
    """

    folder: Path
    steps: int = 400
    more: tuple[str, ...] = ()

    def command(self, *arguments: str, program: Sequence[str] = ("train.py",)) -> list[str]:
        places = (f"runs={self.folder}/runs", f"cache={self.folder}/cache", f"steps={self.steps}")
        return [*program, *ARGUMENTS, *places, *self.more, *arguments]

    def start(self, *arguments: str, program: Sequence[str] = ("train.py",)) -> Started:
        """The same command, once more, in a copy of a warm Python."""
        environment = {**clean_environment(), "OMP_NUM_THREADS": "1"}
        return warm.python().start(*self.command(*arguments, program=program), cwd=ROOT, env=environment)

    def start_fresh(self, *arguments: str) -> "subprocess.Popen[str]":
        """The same command in a Python of its own, with pipes that are read while it writes."""
        return subprocess.Popen(
            [sys.executable, *self.command(*arguments)],
            cwd=ROOT,
            env={**clean_environment(), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_as_from_a_terminal,
        )

    def finish(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same command, to its end."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run(self) -> Path:
        """The directory of the one run."""
        (path,) = (self.folder / "runs" / "smoke" / "rope").iterdir()
        return path

    def weights(self) -> dict[str, Any]:
        """By name, of the last checkpoint."""
        return load(newest_first(self.run() / "checkpoints")[0])["state_dict"]

    def written(self) -> int:
        """Rows so far; none while there is no run."""
        files = list((self.folder / "runs").glob("smoke/rope/*/metrics.csv"))
        return len(read_csv(files[0])) if files else 0

    def wait_for_rows(self, count: int, process: "Started | subprocess.Popen[str]") -> None:
        """Until so many rows are on disk, or the process has ended."""
        while self.written() < count and process.poll() is None:
            time.sleep(0.005)

    def leftovers(self) -> list[Path]:
        """Files that nobody should find after a finished run."""
        return [file for file in self.folder.rglob("*") if ".partial" in file.name or file.name == "holder.txt"]


def same_curve(toy: Toy, other: Toy) -> bool:
    """Whether two finished runs have the same rows and the same weights, to the bit, and nothing is left over."""
    heads = [(one.run() / "attention.csv").read_text() for one in (toy, other)]
    ours, theirs = (one.weights() for one in (toy, other))
    same_weights = ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)
    return curve(toy.run()) == curve(other.run()) and heads[0] == heads[1] and same_weights and not other.leftovers()


def _as_from_a_terminal() -> None:
    """Where the tests run in the background of a shell, SIGINT is ignored, and processes inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setpgid(0, 0)
