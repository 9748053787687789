"""The end of a sweep: what failed is told, stored without secrets, and never lost."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from posenc.storage.failed_jobs import FAILED_JOBS, failed_job, failed_jobs
from posenc.sweeps.callback import SweepCallback, _publish
from posenc.sweeps.failures import diverged, failures_recorded, record_failure, unfinished_run
from posenc.sweeps.jobs import job_name
from tests.conftest import composed


def sweep(folder, monkeypatch, rerun=False):
    """Start a sweep in this process; returns how to end it, and the file of its jobs' failures."""
    hydra = {"sweep": {"dir": str(folder)}, "sweeper": {}, "overrides": {"task": []}}
    config = OmegaConf.create({"hydra": hydra, "rerun": rerun})
    callback = SweepCallback()
    callback.on_multirun_start(config)
    own = Path(os.environ["POSENC_FAILED_JOBS"])

    def end():
        monkeypatch.setenv("POSENC_FAILED_JOBS", str(own))
        with pytest.raises(SystemExit) as ended:
            callback.on_multirun_end(config)
        return ended.value.code

    return end, own


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("POSENC_FAILED_JOBS", "POSENC_SWEEP_JOBS", "POSENC_SWEPT_KEYS"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize("content", [b"\xff", b'{"job": "seed=1", "error": "it failed"}\n'])
def test_a_sweep_with_failed_jobs_exits_with_1_also_if_their_file_cannot_be_read(
    content, tmp_path, capsys, monkeypatch
):
    end, own = sweep(tmp_path, monkeypatch)
    own.write_bytes(content)
    assert end() == 1
    damaged = "failed: a job: its line in failed_jobs.jsonl is damaged\n"
    assert (damaged if content == b"\xff" else "failed: seed=1: it failed\n") in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == [FAILED_JOBS]


def test_of_two_sweeps_at_once_in_a_folder_each_tells_its_own_failures_and_none_is_lost(tmp_path, capsys, monkeypatch):
    ends = []
    for job in ("seed=1", "seed=2"):
        end, _ = sweep(tmp_path, monkeypatch)
        record_failure(job, "it failed")
        ends.append(end)
    capsys.readouterr()
    for end, own, other in zip(ends, ("seed=1", "seed=2"), ("seed=2", "seed=1"), strict=True):
        assert end() == 1
        told = capsys.readouterr().err
        assert f"failed: {own}: it failed" in told
        assert f"failed: {other}" not in told
    assert [failure["job"] for failure in failed_jobs(tmp_path)] == ["seed=1", "seed=2"]
    end, _ = sweep(tmp_path, monkeypatch)
    end()
    assert failed_jobs(tmp_path) == []  # these jobs have been tried again


@pytest.mark.parametrize(("started", "rerun"), [(True, False), (False, False), (True, True)])
def test_only_of_runs_that_have_started_it_is_said_that_the_same_command_trains_them(
    started, rerun, tmp_path, capsys, monkeypatch
):
    end, _ = sweep(tmp_path, monkeypatch, rerun)  # with rerun=true it would train the finished ones again, too
    record_failure("seed=1", "it failed", tmp_path / "seed1" if started else None)
    assert end() == 1
    assert ("The same command tries the missing runs again." in capsys.readouterr().err) == (started and not rerun)


def test_a_sweep_that_is_stopped_keeps_the_failures_of_jobs_that_it_has_not_tried(tmp_path):
    lines = {seed: failed_job(f"seed={seed}", "it failed", None, tmp_path) for seed in (1, 9)}
    (tmp_path / FAILED_JOBS).write_text("".join(lines.values()))
    os.utime(tmp_path / FAILED_JOBS, (1, 1))
    own = tmp_path / "own"
    own.write_text(failed_job("seed=1", "it failed again", None, tmp_path))
    _publish(own, start=2)
    assert [(failure["job"], failure["error"]) for failure in failed_jobs(tmp_path)] == [
        ("seed=9", "it failed"),
        ("seed=1", "it failed again"),
    ]


def test_a_sweep_that_is_refused_keeps_the_failures_of_the_last_one(tmp_path, monkeypatch):
    (tmp_path / FAILED_JOBS).write_text('{"job": "seed=1", "error": "it failed"}\n')
    sweep(tmp_path, monkeypatch)
    assert [failure["job"] for failure in failed_jobs(tmp_path)] == ["seed=1"]


def test_a_failure_is_told_and_stored_in_one_line_without_secrets(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "nobody-must-see-it")
    monkeypatch.setenv("POSENC_FAILED_JOBS", str(tmp_path / FAILED_JOBS))
    record_failure("name=a\nb", "\x1b[2Jno access\nwith nobody-must-see-it")
    assert capsys.readouterr().err == "name=a b failed:  [2Jno access with ***\n"
    assert failed_jobs(tmp_path) == [{"job": "name=a b", "error": " [2Jno access with ***", "run": ""}]


def test_a_failed_job_s_run_is_the_one_that_it_has_not_finished(tmp_path):
    config = OmegaConf.create(composed("experiment=smoke", f"runs={tmp_path}"))
    assert unfinished_run(config) is None
    run = tmp_path / "smoke" / "rope" / "seed0-01234567"
    run.mkdir(parents=True)
    OmegaConf.save(config, run / "config.yaml")
    assert unfinished_run(config) == run
    (run / "summary.json").touch()  # trained before `rerun=true`, or on another text
    assert unfinished_run(config) is None


def test_a_run_has_diverged_whatever_its_rows_before_the_last_say(tmp_path):
    config = OmegaConf.create(composed("experiment=smoke", f"runs={tmp_path}"))
    assert not diverged(config)
    run = tmp_path / "smoke" / "rope" / "seed0-01234567"
    run.mkdir(parents=True)
    OmegaConf.save(config, run / "config.yaml")
    rows = "step,val_loss\n1,\n2,2.5\n"
    for last, expected in (("", False), ("3,nan\n", True)):
        (run / "metrics.csv").write_text(rows + last)
        assert diverged(config) == expected


def test_a_swept_seed_that_is_a_glob_has_no_run(tmp_path):
    config = OmegaConf.create({"runs": str(tmp_path), "name": "smoke", "seed": "**"})
    assert unfinished_run(config) is None


def test_a_job_that_fails_is_not_taken_for_the_finished_run_of_another_text(tmp_path, train):
    text = tmp_path / "text.txt"
    sweep = ("-m", "experiment=smoke", "logger=csv", "data=text", f"data.path={text}", "steps=2", "eval_every=2")
    for lines, code in ((4000, 0), (3, 1)):
        text.write_text("".join(f"Line {number} of a text.\n" for number in range(lines)))
        ended = train(*sweep, "log_every=1", "seed=0")
        assert ended.returncode == code, ended.stderr
    assert "context=64 is too long for this corpus" in ended.stderr


def test_a_sweep_whose_jobs_fail_before_they_train_tells_only_why(tmp_path, capsys, monkeypatch):
    end, _ = sweep(tmp_path, monkeypatch)
    record_failure("seed=1", "it failed")
    capsys.readouterr()
    assert end() == 1
    assert capsys.readouterr() == ("", "failed: seed=1: it failed\n")


def test_a_sweep_with_nothing_to_compare_exits_with_2(tmp_path, capsys, monkeypatch):
    end, _ = sweep(tmp_path, monkeypatch)
    assert end() == 2
    assert "no runs in" in capsys.readouterr().err


@pytest.mark.parametrize(("began", "left"), [(600, "20 min"), (46, "2 min"), (30, "60 s")])
def test_the_time_left_is_that_at_the_pace_of_the_runs_that_this_sweep_has_trained(
    began, left, tmp_path, capsys, monkeypatch
):
    callback = SweepCallback()
    callback.start = time.time() - began
    for seed, age in ((0, 3600), (1, 6), (2, 6)):  # the first was finished before
        file = tmp_path / "rope" / f"seed{seed}-0f1e2d3c" / "summary.json"
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (time.time() - age,) * 2)
    monkeypatch.setenv("POSENC_SWEEP_JOBS", "7")
    callback.on_job_start(OmegaConf.create({"hydra": {"job": {"num": 3}, "sweep": {"dir": str(tmp_path)}}}))
    assert capsys.readouterr().out == f"Run 4 of 7, about {left} left\n"


def test_the_command_line_says_what_a_sweep_varies_before_its_file_does(tmp_path):
    swept = {"sweeper": {"params": {"pos": "none,rope", "seed": "0,1,2"}}, "overrides": {"task": ["seed=5", "steps=9"]}}
    SweepCallback().on_multirun_start(OmegaConf.create({"hydra": {"sweep": {"dir": str(tmp_path)}, **swept}}))
    assert os.environ["POSENC_SWEEP_JOBS"] == "2"
    assert job_name(["pos=none", "seed=5", "steps=9"]) == "pos=none"


def test_a_job_is_named_by_what_distinguishes_it_in_its_sweep(monkeypatch):
    monkeypatch.setenv("POSENC_SWEPT_KEYS", "pos,optim.lr,tag")
    assert job_name(["steps=9", "pos=none", "optim.lr=0.1", "+tag=a,b", "seed=0"]) == "pos=none,optim.lr=0.1,+tag=a,b"
    monkeypatch.setenv("POSENC_SWEPT_KEYS", "")
    assert job_name(["steps=9", "seed=0"]) == "the only job"


def test_a_failed_job_s_run_is_noted_so_that_it_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSENC_FAILED_JOBS", str(tmp_path / FAILED_JOBS))
    record_failure("seed=1", "it failed", Path("runs/seed1"))
    assert [failure["run"] for failure in failed_jobs(tmp_path)] == [str(tmp_path / "runs" / "seed1")]


def test_a_bug_in_one_job_is_noted_with_its_kind_and_shown_with_its_place(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("POSENC_FAILED_JOBS", str(tmp_path / FAILED_JOBS))
    monkeypatch.setenv("POSENC_SWEPT_KEYS", "seed")
    job = SimpleNamespace(overrides=SimpleNamespace(task=["seed=1", "steps=9"]))
    monkeypatch.setattr("posenc.sweeps.failures.HydraConfig", SimpleNamespace(get=lambda: job))
    with failures_recorded(OmegaConf.create({"runs": "${nothing}"})):
        raise TypeError("unsupported")
    assert failed_jobs(tmp_path) == [{"job": "seed=1", "error": "TypeError: unsupported", "run": ""}]
    assert "Traceback" in capsys.readouterr().err
