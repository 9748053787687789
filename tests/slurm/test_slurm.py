"""Sweeps on a real SLURM of one node: what is signalled, preempted or killed there ends as if nothing had happened."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from posenc.storage.checkpoint_files import newest_first, step
from posenc.storage.failed_jobs import failed_jobs
from tests.conftest import only
from tests.slurm.cluster import MISSING, ON_SLURM, Cluster, jobs_of

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)}: not here (apt-get install slurmctld slurmd slurm-client munge)"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> None:
    """The runs of the sweep of six, one after the other in one process without SLURM, under the name undisturbed."""
    assert cluster.sweep("undisturbed", "pos=rope,none", "seed=0,1,2").communicate()[1] == ""


@pytest.fixture(scope="module")
def six(cluster: Cluster) -> tuple[int, str, str]:
    """A sweep of six, five of whose runs are disturbed; its exit code, and what it printed.

    A job in another partition takes the place of rope's seeds 0 and 1; seed 2 is signalled. Of none, seed 0 is asked to
    leave, and seed 1 is killed.
    """
    sweep = cluster.sweep("six", "pos=rope,none", "seed=0,1,2", *ON_SLURM)
    jobs = jobs_of(sweep)
    preempted = [cluster.held_still("six", "rope", seed) for seed in (0, 1)]
    cluster.preempt()

    def signalled(scheme: str, seed: int, job: str, name: str) -> None:
        run = cluster.held_still("six", scheme, seed)
        cluster.signal(job, name)
        run.go_on()

    with ThreadPoolExecutor() as pool:
        faults = [
            *(pool.submit(run.preempted) for run in preempted),
            pool.submit(signalled, "rope", 2, jobs[2], "USR2"),
            pool.submit(lambda: cluster.held_still("six", "none", 1).kill()),
            pool.submit(signalled, "none", 0, jobs[3], "TERM"),
        ]
        for fault in faults:
            fault.result()
    printed, errors = sweep.communicate()
    return sweep.returncode, printed, errors


def test_a_sweep_of_six_finishes_with_its_report(six, cluster):
    code, printed, errors = six
    assert (code, errors) == (0, "")
    assert len(list((cluster.folder / "six").glob("*/*/summary.json"))) == 6
    assert "After 100 steps" in printed
    assert (cluster.folder / "six" / "report.html").exists()


@pytest.mark.usefixtures("six", "undisturbed")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scheme", ["rope", "none"])
def test_every_run_ends_with_the_curve_of_a_run_that_was_never_disturbed(scheme, seed, cluster):
    curve = cluster.curve("six", scheme, seed)
    assert len(curve) == 20
    assert curve == cluster.curve("undisturbed", scheme, seed)


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_preempted_job_saves_and_goes_on(seed, cluster):
    log = cluster.log("six", seed)
    assert "stopped by SIGTERM: step " in log
    assert "DUE TO PREEMPTION" in log
    assert "Resuming from step-" in log


@pytest.mark.usefixtures("six")
def test_a_job_signalled_ahead_of_its_limit_saves_and_queues_again(cluster):
    log = cluster.log("six", 2)
    assert "stopped by SIGUSR2: step " in log
    assert "Requeued job" in log
    assert "Resuming from step-" in log


def test_a_job_killed_outright_is_queued_again_and_goes_on_from_its_last_checkpoint(six, cluster):
    (told,) = [line for line in six[1].splitlines() if "ended without a result" in line]
    assert told.startswith("pos=none,seed=1: job ")
    assert "(FAILED) and was requeued" in told
    step_saved = int(told.rpartition(" ")[2])
    assert f"Resuming from step-{step_saved:09d}" in cluster.log("six", 4)


@pytest.mark.usefixtures("six")
def test_a_job_asked_to_leave_while_it_may_stay_queues_again(cluster):
    """So are jobs in a partition with a GraceTime, before they are preempted; an end within it would be the last."""
    log = cluster.log("six", 3)
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
    assert f"was lost on {node} and again on {node} (FAILED) and is not retried" in failure["error"]
    assert f"{run} is saved up to step {step(newest_first(run / 'checkpoints')[0])}" in failure["error"]
    assert failure["error"] in errors
    assert "Traceback" not in errors
    assert "The same command tries the missing runs again." in errors
    assert only(cluster.folder / "lost" / "none", "*/summary.json").exists()
    assert "Report: " in printed


def test_ctrl_c_leaves_the_jobs_in_the_queue_and_says_how_to_cancel_them(cluster):
    sweep = cluster.sweep("left", "pos=rope", "seed=0,1", *ON_SLURM, "steps=100000")  # no job ends by itself
    jobs = jobs_of(sweep)
    sweep.send_signal(signal.SIGINT)
    errors = sweep.communicate()[1]
    assert sweep.returncode == 130
    assert errors.count("\n") == 1
    assert f"the jobs continue: {' '.join(jobs)}; cancel them with: scancel {' '.join(jobs)}" in errors
    assert set(jobs) <= set(cluster.tell("squeue", "--noheader", "--array", "--format=%i").split())
    cluster.tell("scancel", *jobs)


def test_the_tasks_of_a_job_are_the_ranks_of_its_run(cluster):
    sweep = cluster.sweep("ranks", "pos=rope", *ON_SLURM, "trainer=ddp", "hydra.launcher.tasks_per_node=2")
    _, errors = sweep.communicate()
    assert (sweep.returncode, errors) == (0, "")
    summary = only(cluster.folder / "ranks" / "rope", "*/summary.json")
    assert json.loads(summary.read_text())["devices"] == 2


def test_what_slurm_does_not_take_is_one_sentence(cluster):
    sweep = cluster.sweep("refused", "pos=rope,none", *ON_SLURM, "hydra.launcher.partition=nowhere")
    errors = sweep.communicate()[1]
    assert sweep.returncode == 2
    assert (
        errors == "train.py: hydra/launcher=slurm cannot submit: sbatch: error: invalid partition specified: nowhere\n"
    )
