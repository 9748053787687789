"""Sweeps on a real SLURM of one node: what is signalled, preempted or killed there ends as if nothing had happened."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from posenc.checkpoints import newest_first, step
from posenc.directory import failed_jobs, read_metrics
from tests.conftest import ROOT, clean_environment, only

START = Path(__file__).parent / "start.sh"
MISSING = [
    tool
    for tool in ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scontrol", "srun")
    if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)}: not here (apt-get install slurmctld slurmd slurm-client munge)"
)

RUNS = (
    "experiment=smoke", "logger=csv", "trainer=cpu", "steps=200", "checkpoint_seconds=0",
)  # fmt: skip
ON_SLURM = (
    "hydra/launcher=slurm", "hydra.launcher.gpus_per_node=null", "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.partition=preemptible", "+hydra.launcher.additional_parameters.signal=USR1@60",
)  # fmt: skip
CLOCKS = ("seconds", "tokens_per_s")


class Cluster:
    """A SLURM of one node with two CPUs, and sweeps on it.

    Args:
        folder: takes everything: SLURM's own files, and the runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**clean_environment(), "SLURM_CONF": str(folder / "slurm" / "slurm.conf")}

    def tell(self, *command: str) -> str:
        """Run a command of SLURM's; returns what it prints."""
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def start(self) -> None:
        self.tell(str(START), "start", str(self.folder / "slurm"))

    def stop(self) -> None:
        self.tell(str(START), "stop", str(self.folder / "slurm"))

    def sweep(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a sweep in a folder of its name, as a user would."""
        return subprocess.Popen(
            [sys.executable, "train.py", "-m", f"runs={self.folder}", *RUNS, f"name={name}", *arguments],
            cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Where the tests run in the background of a shell, SIGINT is ignored, and processes inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    def running(self) -> list[str]:
        """The ids of the jobs that run."""
        return self.tell("squeue", "--noheader", "--states=running", "--format=%i").split()

    def held_still(self, name: str, seed: int, after: int = 0) -> "Held":
        """Wait until a run of rope has saved a checkpoint of a later step, and stop its clock."""

        def saved() -> Path | None:
            runs = list((self.folder / name / "rope").glob(f"seed{seed}-*"))
            files = newest_first(runs[0] / "checkpoints") if runs else []
            return runs[0] if files and step(files[0]) > after else None

        return Held(wait_for(saved))

    def logs(self, name: str) -> str:
        """Everything that the jobs of a sweep printed."""
        return "".join(file.read_text() for file in sorted((self.folder / name / ".submitit").glob("*/*_log.*")))

    def curve(self, name: str, scheme: str, seed: int) -> list[dict[str, str]]:
        """The rows of a run's metrics.csv without what clocks say."""
        run = only(self.folder / name / scheme, f"seed{seed}-*")
        rows = read_metrics(run / "metrics.csv")
        return [{key: value for key, value in row.items() if key not in CLOCKS} for row in rows]


class Held:
    """A run in the middle of its training, whose process is stopped so that it stays there.

    Attributes:
        step: of its newest checkpoint.
    """

    def __init__(self, run: Path) -> None:
        self.process = int((run / "holder.txt").read_text().split()[1])
        os.kill(self.process, signal.SIGSTOP)
        self.step = step(newest_first(run / "checkpoints")[0])

    def go_on(self) -> None:
        os.kill(self.process, signal.SIGCONT)

    def kill(self) -> None:
        """As it is killed by what gives no warning."""
        os.kill(self.process, signal.SIGKILL)


def wait_for(found: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise TimeoutError


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> None:
    """The runs that are disturbed below, trained in one process without SLURM, under the name of undisturbed."""
    errors = cluster.sweep("undisturbed", "pos=rope", "seed=0,1,2,3").communicate()[1]
    assert errors == ""


def jobs_of(sweep: "subprocess.Popen[str]") -> list[str]:
    """The ids that a sweep prints when it has submitted."""
    assert sweep.stdout is not None
    return sweep.stdout.readline().partition(": ")[2].split()


@pytest.fixture(scope="module")
def eight(cluster: Cluster) -> tuple[int, str, str]:
    """A sweep of eight whose first two runs, rope's with seeds 0 and 1, are preempted by a job in another partition."""
    sweep = cluster.sweep("eight", "pos=rope,none", "seed=0,1,2,3", *ON_SLURM)
    for seed in (0, 1):
        cluster.held_still("eight", seed)  # SLURM sends SIGCONT before the SIGTERM
    cluster.tell("sbatch", "--partition=urgent", "--ntasks=2", "--output=/dev/null", "--wrap=true")
    printed, errors = sweep.communicate()
    return sweep.returncode, printed, errors


@pytest.fixture(scope="module")
def faults(cluster: Cluster) -> tuple[int, str, str]:
    """A sweep of four: seed 0 is signalled, seed 1 is killed once, seed 2 twice, and seed 3 is asked to leave."""
    sweep = cluster.sweep("faults", "pos=rope", "seed=0,1,2,3", *ON_SLURM)
    jobs = jobs_of(sweep)

    def signalled() -> None:
        run = cluster.held_still("faults", 0)
        cluster.tell("scancel", "--signal=USR1", jobs[0])
        run.go_on()

    def killed() -> None:
        cluster.held_still("faults", 1).kill()

    def killed_twice() -> None:
        first = cluster.held_still("faults", 2)
        first.kill()
        cluster.held_still("faults", 2, after=first.step).kill()

    def asked_to_leave() -> None:
        run = cluster.held_still("faults", 3)
        cluster.tell("scancel", "--signal=TERM", jobs[3])
        run.go_on()

    with ThreadPoolExecutor() as pool:
        for fault in [pool.submit(act) for act in (signalled, killed, killed_twice, asked_to_leave)]:
            fault.result()
    printed, errors = sweep.communicate()
    return sweep.returncode, printed, errors


def test_a_sweep_of_eight_finishes_with_its_report(eight, cluster):
    code, printed, errors = eight
    assert (code, errors) == (0, "")
    assert len(list((cluster.folder / "eight").glob("*/*/summary.json"))) == 8
    assert "After 200 steps" in printed
    assert (cluster.folder / "eight" / "report.html").exists()


@pytest.mark.usefixtures("eight", "undisturbed")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_preempted_job_goes_back_into_the_queue_and_ends_with_the_uninterrupted_curve(seed, cluster):
    logs = cluster.logs("eight")
    assert logs.count("stopped by SIGTERM: step ") == 2
    assert logs.count("Resuming from step-") == 2
    assert cluster.curve("eight", "rope", seed) == cluster.curve("undisturbed", "rope", seed)


@pytest.mark.usefixtures("faults", "undisturbed")
def test_a_job_signalled_ahead_of_its_limit_saves_and_goes_on_to_the_uninterrupted_curve(cluster):
    logs = cluster.logs("faults")
    assert "stopped by SIGUSR1: step " in logs
    assert "Requeued job" in logs
    assert cluster.curve("faults", "rope", 0) == cluster.curve("undisturbed", "rope", 0)


@pytest.mark.usefixtures("undisturbed")
def test_a_job_killed_outright_goes_on_from_its_last_checkpoint_to_the_uninterrupted_curve(faults, cluster):
    assert "seed=1: job" in faults[1]
    assert "_1 ended without a result (FAILED) and is in the queue again" in faults[1]
    assert cluster.curve("faults", "rope", 1) == cluster.curve("undisturbed", "rope", 1)


@pytest.mark.usefixtures("undisturbed")
def test_a_job_given_time_to_leave_before_it_is_preempted_puts_itself_back_into_the_queue(faults, cluster):
    """As a partition with a GraceTime does: SLURM would take the end of a job within it for the last."""
    assert "stopped by SIGTERM: step " in cluster.logs("faults")
    assert "seed=3: job" not in faults[1]  # it was not lost
    assert cluster.curve("faults", "rope", 3) == cluster.curve("undisturbed", "rope", 3)


def test_a_node_that_loses_its_job_twice_gives_up_and_says_what_was_lost_where(faults, cluster):
    code, printed, errors = faults
    assert code == 1
    (failure,) = failed_jobs(cluster.folder / "faults")
    run = only(cluster.folder / "faults" / "rope", "seed2-*")
    node = os.uname().nodename.partition(".")[0]
    last = step(newest_first(run / "checkpoints")[0])
    assert failure["job"] == "seed=2"
    assert f"was lost on {node} and again on {node} (FAILED) and is given up" in failure["error"]
    assert f"{run} is saved up to step {last}" in failure["error"]
    assert failure["error"] in errors
    assert "Traceback" not in errors
    assert "The same command trains what is missing." in errors
    assert "After " in printed  # the others are compared


def test_ctrl_c_leaves_the_jobs_in_the_queue_and_says_how_to_cancel_them(cluster):
    sweep = cluster.sweep("left", "pos=rope", "seed=0,1", *ON_SLURM)
    jobs = jobs_of(sweep)
    sweep.send_signal(signal.SIGINT)
    errors = sweep.communicate()[1]
    assert sweep.returncode == 130
    assert errors.count("\n") == 1
    assert f"the jobs go on: {' '.join(jobs)}; cancel them with: scancel {' '.join(jobs)}" in errors
    assert set(jobs) <= set(cluster.tell("squeue", "--noheader", "--array", "--format=%i").split())
    cluster.tell("scancel", *jobs)


def test_what_slurm_does_not_take_is_one_sentence(cluster):
    sweep = cluster.sweep("refused", "pos=rope,none", *ON_SLURM, "hydra.launcher.partition=nowhere")
    errors = sweep.communicate()[1]
    assert sweep.returncode == 2
    assert (
        errors == "train.py: hydra/launcher=slurm cannot submit: sbatch: error: invalid partition specified: nowhere\n"
    )
