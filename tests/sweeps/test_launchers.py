"""What the launchers make of their keys; tests/slurm has a real cluster."""

import json
import math
import os
import pickle
import re
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from posenc.errors import UserError
from posenc.storage.failed_jobs import FAILED_JOBS, failed_jobs
from posenc.sweeps import slurm
from posenc.sweeps.slurm import UNKNOWN, JobState, job_states
from tests.conftest import composed

# A namespace that mypy would find twice.
on_slurm, in_processes, sweeper = (
    import_module(f"hydra_plugins.posenc_{name}") for name in ("slurm", "joblib", "sweeper")
)
Slurm, Processes = on_slurm.Slurm, in_processes.Processes


def test_runs_at_a_time_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [Processes(n_jobs=runs).threads(100) for runs in (1, 2, 3, -1, 16)] == [8, 4, 2, 1, 1]
    assert [Processes().threads(runs) for runs in (1, 2, 3, 8, 100)] == [8, 4, 2, 1, 1]


def test_a_sweep_without_jobs_ends_at_once():
    assert Slurm().launch([], 0) == []


def test_without_slurm_a_sweep_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "")
    launcher = Slurm(submitit_folder="jobs", max_num_timeout=1)
    with pytest.raises(UserError, match=r"^hydra/launcher=slurm cannot submit: Could not detect"):
        launcher.launch([["seed=0"]], 0)


def test_the_losses_of_runs_at_a_time_are_in_the_order_of_their_jobs_not_of_their_ends(monkeypatch):
    def loss(job: bytes) -> float:
        _, (override,), number, _ = pickle.loads(job)
        time.sleep(0.1 * (3 - number))
        assert override == f"seed={number}"
        return float(number)

    threads: list[int] = []

    def new_process(count: int) -> ThreadPoolExecutor:
        threads.append(count)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(in_processes, "_new_process", new_process)
    monkeypatch.setattr(in_processes, "_train", loss)
    ended = Processes(n_jobs=3).launch([[f"seed={number}"] for number in (1, 2, 3)], 1)
    assert [job.return_value for job in ended] == [1.0, 2.0, 3.0]
    assert threads == [2, 2, 2]


def test_a_process_has_the_threads_that_it_is_given(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    process = in_processes._new_process(3)
    assert process.submit(os.getenv, "OMP_NUM_THREADS").result() == "3"
    process.shutdown()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"search_seed": 2**32}, "must be an integer at least 0 and below 2^32"),
        ({"params": None}, "hydra.sweeper.params=None must be a mapping"),
        ({"grid": {"optim.lr": "fast"}}, "must list one or more values for each key"),
        ({"grid": {"optim.lr": []}}, "must list one or more values for each key"),
        ({"grid": {"optim.lr": [math.inf]}}, "cannot have inf for optim.lr: only numbers"),
        *(
            ({"grid": {key: [1]}}, f"cannot vary {key}")
            for key in ("seed", "batch_size", "trainer.precision", "tokenizer.vocab_size")
        ),
    ],
)
def test_a_search_that_cannot_be_is_refused(changed, sentence):
    given = {"grid": {"optim.lr": [0.1]}, "search_seed": 9, "params": {}, **changed}
    values = {key: OmegaConf.create(value) if isinstance(value, dict) else value for key, value in given.items()}
    with pytest.raises(UserError, match=re.escape(sentence)):
        sweeper.BestAgainstBest(**values)


def test_the_best_trial_of_a_scheme_has_its_lowest_loss_and_diverged_ones_are_none():
    trials = [{"pos": pos, "optim.lr": lr} for pos in ("rope", "none", "fox") for lr in (1, 2, 3)]
    losses = [math.nan, 2.5, 2.0, math.nan, 3.0, 3.5, math.nan, math.nan, math.nan]
    assert sweeper._best(trials, losses) == {"rope": trials[2], "none": trials[4]}


def test_of_earlier_searches_the_trials_of_other_schemes_with_the_same_overrides_are_kept(tmp_path):
    file = tmp_path / "search.json"
    common = {"best": True, "val_loss": 2.0}
    kept = {**common, "pos": "none", "overrides": "steps=10"}
    file.write_text(json.dumps([kept, {**kept, "pos": "rope"}, {**common, "pos": "fox", "overrides": "steps=20"}]))
    assert sweeper._of_other_schemes(file, {"rope"}, "steps=10") == [kept]


def test_a_trial_is_at_the_edge_of_a_grid_that_has_more_than_two_values():
    grid = {"optim.lr": [1, 2, 3], "pos.scale": [0.1, "matched"], "pos.base": [10, 20, 30]}
    for lr, edges in ((1, ["optim.lr"]), (2, []), (3, ["optim.lr"])):
        assert sweeper._edges({"pos": "rope", "optim.lr": lr, "pos.scale": 0.1, "pos.base": 20}, grid) == edges


def test_a_job_that_slurm_has_forgotten_is_over_and_a_silent_controller_says_nothing_of_any(monkeypatch):
    def squeue(code: int, printed: str, errors: str = "") -> None:
        monkeypatch.setattr(slurm, "_run", lambda *command: CompletedProcess(command, code, printed, errors))

    squeue(0, "12_0|RUNNING|n1\n12_1|PENDING|\n")
    expected = {"12_0": JobState("RUNNING", "n1"), "12_1": JobState("PENDING"), "9": JobState(UNKNOWN)}
    assert job_states(["12_0", "12_1", "9"]) == expected
    squeue(1, "", "slurm_load_jobs error: Invalid job id specified")
    assert job_states(["9"]) == {"9": JobState(UNKNOWN)}
    squeue(1, "", "slurm_load_jobs error: Unable to contact slurm controller")
    assert job_states(["9"]) is None


def test_a_job_that_is_queued_again_before_its_result_is_missed_is_not_lost(tmp_path, monkeypatch):
    configuration = OmegaConf.create(composed("experiment=smoke", f"runs={tmp_path}"))
    monkeypatch.setattr(on_slurm, "RESULT_DELAY", -1)
    paths = SimpleNamespace(folder=tmp_path / "jobs", stderr="log")
    job = on_slurm.SubmittedJob(SimpleNamespace(job_id="7", paths=paths), "pos=rope", configuration)
    for state in ("PREEMPTED", "PENDING", "RUNNING", "PREEMPTED"):
        job.update({"7": JobState(state, "n1")})
    assert (job.outcome, job.lost_on, job._over_since is None) == (None, [], False)


@pytest.mark.parametrize(
    ("state", "requeued", "sentence"),
    [("CANCELLED", 0, "job 7 was cancelled"), ("PREEMPTED", 3, ""), ("NODE_FAIL", 1, "lost on n1 and again on n1 (N")],
)
def test_a_cancelled_job_stays_cancelled_and_a_preempted_one_is_not_its_node_s_fault(
    state, requeued, sentence, tmp_path, monkeypatch
):
    configuration = OmegaConf.create(composed("experiment=smoke", f"runs={tmp_path}"))  # Hydra loads its plugins again
    monkeypatch.setenv("POSENC_FAILED_JOBS", str(tmp_path / FAILED_JOBS))
    monkeypatch.setattr(on_slurm, "RESULT_DELAY", -1)
    again: list[str] = []
    monkeypatch.setattr(slurm, "requeue", lambda job: not again.append(job))  # type: ignore[func-returns-value]
    paths = SimpleNamespace(folder=tmp_path / "jobs", stderr="log")
    job = on_slurm.SubmittedJob(SimpleNamespace(job_id="7", paths=paths), "pos=rope", configuration)
    for _ in range(6):  # a loss is one if it is seen twice
        if job.outcome is None:
            job.update({"7": JobState(state, "n1")})
    assert again == ["7"] * requeued
    assert [sentence in failure["error"] for failure in failed_jobs(tmp_path)] == [True] * bool(sentence)
