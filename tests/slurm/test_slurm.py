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
    "experiment=smoke", "logger=csv", "trainer=cpu", "steps=100", "eval_every=20", "checkpoint_seconds=0",
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
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

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


def wait_for(found: Callable[[], Any], seconds: float = 240) -> Any:
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


def jobs_of(sweep: "subprocess.Popen[str]") -> list[str]:
    """The ids that a sweep prints when it has submitted."""
    assert sweep.stdout is not None
    return sweep.stdout.readline().partition(": ")[2].split()


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> None:
    """The runs of the sweep of eight, one after the other in one process without SLURM, under the name undisturbed."""
    assert cluster.sweep("undisturbed", "pos=rope,none", "seed=0,1,2,3").communicate()[1] == ""


@pytest.fixture(scope="module")
def eight(cluster: Cluster) -> tuple[int, str, str]:
    """A sweep of eight, five of whose runs are disturbed; its exit code, and what it printed.

    A job in another partition takes the place of rope's seeds 0 and 1; seed 2 is signalled, seed 3 is killed, and the
    first run of none is asked to leave.
    """
    sweep = cluster.sweep("eight", "pos=rope,none", "seed=0,1,2,3", *ON_SLURM)
    jobs = jobs_of(sweep)
    for seed in (0, 1):
        cluster.held_still("eight", "rope", seed)  # until SLURM sends SIGCONT, before its SIGTERM
    cluster.tell("sbatch", "--partition=urgent", "--ntasks=2", "--output=/dev/null", "--wrap=true")

    def signalled(scheme: str, seed: int, job: str, name: str) -> None:
        run = cluster.held_still("eight", scheme, seed)
        cluster.tell("scancel", f"--signal={name}", f"{job}.0")
        run.go_on()

    with ThreadPoolExecutor() as pool:
        faults = [
            pool.submit(signalled, "rope", 2, jobs[2], "USR1"),
            pool.submit(lambda: cluster.held_still("eight", "rope", 3).kill()),
            pool.submit(signalled, "none", 0, jobs[4], "TERM"),
        ]
        for fault in faults:
            fault.result()
    printed, errors = sweep.communicate()
    return sweep.returncode, printed, errors


def test_a_sweep_of_eight_finishes_with_its_report(eight, cluster):
    code, printed, errors = eight
    assert (code, errors) == (0, "")
    assert len(list((cluster.folder / "eight").glob("*/*/summary.json"))) == 8
    assert "After 100 steps" in printed
    assert (cluster.folder / "eight" / "report.html").exists()


@pytest.mark.usefixtures("eight", "undisturbed")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scheme", ["rope", "none"])
def test_every_run_ends_with_the_curve_of_a_run_that_was_never_disturbed(scheme, seed, cluster):
    curve = cluster.curve("eight", scheme, seed)
    assert len(curve) == 20
    assert curve == cluster.curve("undisturbed", scheme, seed)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_preempted_job_saves_and_goes_on(seed, cluster):
    log = cluster.log("eight", seed)
    assert "stopped by SIGTERM: step " in log
    assert "DUE TO PREEMPTION" in log
    assert "Resuming from step-" in log


@pytest.mark.usefixtures("eight")
def test_a_job_signalled_ahead_of_its_limit_saves_and_queues_again(cluster):
    log = cluster.log("eight", 2)
    assert "stopped by SIGUSR1: step " in log
    assert "Requeued job" in log
    assert "Resuming from step-" in log


def test_a_job_killed_outright_is_queued_again_and_goes_on_from_its_last_checkpoint(eight, cluster):
    (told,) = [line for line in eight[1].splitlines() if "ended without a result" in line]
    assert told.startswith("pos=rope,seed=3: job ")
    assert "(FAILED) and is in the queue again" in told
    step_saved = int(told.rpartition(" ")[2])
    assert f"Resuming from step-{step_saved:09d}" in cluster.log("eight", 3)


@pytest.mark.usefixtures("eight")
def test_a_job_asked_to_leave_while_it_may_stay_queues_again(cluster):
    """So are jobs in a partition with a GraceTime, before they are preempted; an end within it would be the last."""
    log = cluster.log("eight", 4)
    assert "stopped by SIGTERM: step " in log
    assert "DUE TO PREEMPTION" not in log
    assert "Resuming from step-" in log


def test_a_node_that_loses_its_job_twice_gives_up_and_says_what_was_lost_where(cluster):
    sweep = cluster.sweep("lost", "pos=rope,none", *ON_SLURM)
    first = cluster.held_still("lost", "rope", 0)
    first.kill()
    cluster.held_still("lost", "rope", 0, after=first.step).kill()
    printed, errors = sweep.communicate()
    assert sweep.returncode == 1
    (failure,) = failed_jobs(cluster.folder / "lost")
    assert failure["job"] == "pos=rope"
    run = only(cluster.folder / "lost" / "rope", "seed0-*")
    node = os.uname().nodename.partition(".")[0]
    assert f"was lost on {node} and again on {node} (FAILED) and is given up" in failure["error"]
    assert f"{run} is saved up to step {step(newest_first(run / 'checkpoints')[0])}" in failure["error"]
    assert failure["error"] in errors
    assert "Traceback" not in errors
    assert "The same command trains what is missing." in errors
    assert only(cluster.folder / "lost" / "none", "*/summary.json").exists()
    assert "Report: " in printed


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
