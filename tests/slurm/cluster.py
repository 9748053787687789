"""A real SLURM of one node, and sweeps on it whose runs can be caught in mid-training."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from posenc.storage.checkpoint_files import newest_first, step
from posenc.storage.run_directory import HOLDER
from tests.conftest import ROOT, clean_environment, curve, only

START = Path(__file__).parent / "start.sh"
MISSING = [
    tool
    for tool in ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scontrol", "srun")
    if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
]
SLOW_SCONTROL = f"""#!/bin/sh
{shutil.which("scontrol")} "$@"
code=$?
sleep 1
exit $code
"""
"""A requeued job receives SIGTERM before the command that requeues it has ended, as on a busy machine."""
RUNS = (
    "experiment=smoke", "logger=csv", "trainer=cpu", "steps=100", "eval_every=20", "checkpoint_seconds=0",
)  # fmt: skip
ON_SLURM = (
    "hydra/launcher=slurm", "hydra.launcher.gpus_per_node=null", "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.partition=preemptible", "hydra.launcher.signal_delay_s=60",
)  # fmt: skip


class Cluster:
    """A SLURM of one node with two CPUs, and sweeps on it.

    Args:
        folder: takes everything: SLURM's own files, and the runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        commands = folder / "commands"
        commands.mkdir(parents=True)
        (commands / "scontrol").write_text(SLOW_SCONTROL)
        (commands / "scontrol").chmod(0o755)
        path = f"{commands}:{os.environ['PATH']}"
        self.environment = {**clean_environment(), "SLURM_CONF": str(folder / "slurm" / "slurm.conf"), "PATH": path}

    def tell(self, *command: str) -> str:
        """Run a command of SLURM's; returns what it prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __enter__(self) -> "Cluster":
        self.tell(str(START), "start", str(self.folder / "slurm"))
        return self

    def __exit__(self, *_: object) -> None:
        self.tell(str(START), "stop", str(self.folder / "slurm"))

    def preempt(self) -> None:
        """Have a job in the other partition take both CPUs for a moment."""
        self.tell("sbatch", "--partition=urgent", "--ntasks=2", "--output=/dev/null", "--wrap=true")

    def signal(self, job: str, name: str) -> None:
        """Signal a job's processes, as SLURM does ahead of a time limit."""
        self.tell("scancel", f"--signal={name}", f"{job}.0")

    def sweep(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a sweep in a folder of its name, as a user would."""
        return subprocess.Popen(
            [sys.executable, "train.py", "-m", f"runs={self.folder}", *RUNS, f"name={name}", *arguments],
            cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Where the tests run in the background of a shell, SIGINT is ignored, and processes inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def held_still(self, name: str, scheme: str, seed: int, after: int = 0) -> "Held":
        """Wait until a run has saved a checkpoint of a later step, and stop its clock."""

        def saved() -> Path | None:
            runs = list((self.folder / name / scheme).glob(f"seed{seed}-*"))
            files = newest_first(runs[0] / "checkpoints") if runs else []
            return runs[0] if files and step(files[0]) > after else None

        return Held(wait_for(saved))

    def log(self, name: str, number: int) -> str:
        """Everything that a job of a sweep printed."""
        files = sorted((self.folder / name / ".submitit").glob(f"*_{number}/*_log.*"))
        return "".join(file.read_text() for file in files)

    def curve(self, name: str, scheme: str, seed: int) -> list[dict[str, str]]:
        """The rows of a run's metrics.csv without what clocks say."""
        return curve(only(self.folder / name / scheme, f"seed{seed}-*"))


def jobs_of(sweep: "subprocess.Popen[str]") -> list[str]:
    """The ids that a sweep prints when it has submitted."""
    assert sweep.stdout is not None
    return sweep.stdout.readline().partition(": ")[2].split()


class Held:
    """A run in the middle of its training, whose process is stopped so that it stays there.

    Attributes:
        step: of its newest checkpoint.
    """

    def __init__(self, run: Path) -> None:
        self.process = int((run / HOLDER).read_text().split()[1])
        os.kill(self.process, signal.SIGSTOP)
        self.step = step(newest_first(run / "checkpoints")[0])

    def go_on(self) -> None:
        os.kill(self.process, signal.SIGCONT)

    def preempted(self) -> None:
        """Wait for SLURM's SIGTERM, before which it sends SIGCONT: the run could end in between on a busy machine."""
        with suppress(ProcessLookupError, FileNotFoundError, TimeoutError):  # it may have received it already
            wait_for(lambda: self._status("State") != "T")
            os.kill(self.process, signal.SIGSTOP)
            wait_for(lambda: int(self._status("ShdPnd"), 16) >> (signal.SIGTERM - 1) & 1, seconds=3)
        with suppress(ProcessLookupError):
            self.go_on()

    def _status(self, field: str) -> str:
        text = Path("/proc", str(self.process), "status").read_text()
        return text.partition(f"\n{field}:")[2].split()[0]

    def kill(self) -> None:
        """As it is killed by what gives no warning."""
        os.kill(self.process, signal.SIGKILL)


def wait_for(found: Callable[[], Any], seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise TimeoutError
