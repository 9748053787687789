"""A shorter form of `python -m tests.faults`: each fault once or twice, on the real command line."""

import functools
import importlib
import os
import random
import shutil
import signal
import time

import pytest

from posenc.storage.checkpoint_files import newest_first
from posenc.storage.csv_files import read_csv
from posenc.storage.run_directory import HOLDER
from tests.faults import damage, kills, limits, stops
from tests.faults.kill_at import MOMENTS
from tests.faults.toy import Toy, same_curve


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Toy:
    """A run that nothing befell, in a Python of its own."""
    toy = Toy(tmp_path_factory.mktemp("whole"))
    with toy.start_fresh() as process:
        assert process.communicate(timeout=300)[1] == ""
    assert process.returncode == 0
    return toy


def test_a_run_killed_at_chosen_and_random_moments_has_the_curve_of_one_never_killed(whole, tmp_path):
    victim = Toy(tmp_path)
    moments = [("a cache's building", 1), ("a validation", 5), ("a checkpoint's writing", 15), ("a row", 9)]
    assert list(kills.at_moments(victim, moments)) == [moment for moment, _ in moments]
    assert len(list(kills.at_random(victim, 2, longest=0.8))) == 2  # too short for the run to end
    assert list(kills.at_moments(victim, [("the summary", 1)])) == ["the summary"]
    assert victim.finish().returncode == 0
    assert same_curve(whole, victim)


def test_every_moment_that_is_aimed_at_is_known():
    assert kills.AIMED.keys() == MOMENTS.keys()
    for module, path, _ in MOMENTS.values():
        assert functools.reduce(getattr, path.split("."), importlib.import_module(module))


def test_a_signal_saves_the_very_step_says_where_and_the_run_goes_on_from_there(whole, tmp_path):
    victim = Toy(tmp_path)
    for signum, delay in ((signal.SIGTERM, 0.03), (signal.SIGINT, 0.07)):
        code, seconds, said = stops.stopped(victim, signum, after_rows=1, delay=delay)
        assert code == 128 + signum
        assert seconds < stops.PROMISED
        assert "is saved in" in said
        assert said.count("\n") == 1
    code, said = stops.twice(victim, between=0.0)
    assert code == 130
    assert "Traceback" not in said
    assert victim.finish().returncode == 0
    assert same_curve(whole, victim)


@pytest.mark.parametrize("harm", [damage.cut_short, damage.flip_a_bit])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(harm, whole, tmp_path):
    assert damage.resumes_from_the_one_before(whole, tmp_path / "victim", harm, random.Random(1))


def test_a_pickle_with_code_in_the_place_of_a_checkpoint_is_not_run(whole, tmp_path):
    assert damage.is_not_run(whole, tmp_path / "victim", protocol=4)


def test_a_checkpoint_of_another_configuration_is_refused_naming_what_differs(whole, tmp_path):
    assert damage.foreign(whole, tmp_path / "victim", "pos.base=500")


@pytest.mark.skipif(not limits.can_mount(), reason="needs the right to mount a small file system")
def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_goes_on_when_there_is_space(whole, tmp_path):
    assert limits.survives_a_full_disk(whole, tmp_path / "victim", "900k")


def test_a_loss_that_is_nan_stops_the_run_and_reaches_no_checkpoint(tmp_path):
    assert limits.stops_at_a_nan_loss(tmp_path, 1e4)


@pytest.mark.parametrize(
    ("file", "harm"), [("metrics.csv", "remove"), ("attention.csv", "a row"), ("metrics.csv", "\xff")]
)
def test_a_run_whose_rows_are_not_all_there_does_not_go_on_with_a_hole(file, harm, whole, tmp_path):
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    victim = Toy(tmp_path, whole.steps)
    damage.unfinish(victim.run())
    table = victim.run() / file
    data = table.read_bytes()
    lines = data.splitlines(keepends=True)
    harmed = {"remove": None, "a row": b"".join(lines[:3] + lines[20:]), "\xff": data[:300] + b"\xff" + data[301:]}[
        harm
    ]
    table.unlink() if harmed is None else table.write_bytes(harmed)
    told = victim.finish()
    assert told.returncode == 2
    assert f"{file} lacks rows up to step {whole.steps}" in told.stderr
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize("damaged", [b"\0" * 4096 + b"\n", b"\xff\xfe,1\n", b"51,2\n", b"51,x\n" * 9 + b"52"])
def test_a_run_resumes_if_rows_after_its_checkpoint_are_damaged(damaged, whole, tmp_path):
    """A power failure may damage what has not been flushed to disk yet."""
    shutil.copytree(whole.folder, tmp_path, dirs_exist_ok=True)
    victim = Toy(tmp_path, whole.steps)
    run = victim.run()
    damage.unfinish(run)
    newest_first(run / "checkpoints")[0].unlink()  # rows after the one before it are written again
    for name in ("metrics.csv", "attention.csv"):
        with (run / name).open("ab") as stream:
            stream.write(damaged)
    told = victim.finish()
    assert told.returncode == 0, told.stderr
    assert same_curve(whole, victim)


def test_ctrl_c_in_a_sweep_saves_the_run_and_ends_the_sweep(tmp_path):
    toy = Toy(tmp_path, steps=20000)
    with toy.start("-m", "seed=0,1") as process:
        toy.wait_for_rows(2, process)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - begun < stops.PROMISED
    assert "is saved in" in said
    assert len(list(tmp_path.rglob("config.yaml"))) == 1


def test_a_killed_process_of_a_sweep_loses_its_own_run_only(tmp_path):
    assert kills.in_a_sweep(Toy(tmp_path, steps=200))


def test_a_sweep_whose_output_nobody_reads_any_more_ends_and_no_job_has_failed(tmp_path):
    toy = Toy(tmp_path, steps=20)
    with toy.start_fresh("-m", "seed=0,1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 128 + signal.SIGPIPE
    assert said == "train.py: stdout was closed (broken pipe)\n"
    assert not list(tmp_path.rglob("failed_jobs.jsonl"))
    assert len(list(tmp_path.rglob("config.yaml"))) <= 1


def test_a_sweep_of_compiled_runs_trains_all_of_them(tmp_path):
    if shutil.which("c++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    toy = Toy(tmp_path, steps=20)
    told = toy.finish("-m", "seed=0,1", "trainer.compile=true")  # what test_run.py compiles too, from the same cache
    assert told.returncode == 0, told.stderr
    assert len(list(tmp_path.rglob("summary.json"))) == 2


def test_too_little_memory_is_told_with_what_to_lower(tmp_path):
    assert limits.says_what_to_lower(tmp_path, "batch_size=2000000")


@pytest.mark.parametrize(
    ("signum", "send"), [(signal.SIGKILL, os.kill), (signal.SIGINT, os.killpg), (signal.SIGINT, os.kill)]
)
def test_the_processes_of_a_sweep_save_their_runs_and_end_with_it(signum, send, tmp_path):
    """Ctrl-C on a terminal reaches all of them, the stop button of an editor only the sweep's own."""
    toy = Toy(tmp_path, steps=20000, more=("checkpoint_seconds=1000",))
    both = ("-m", "seed=0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    with toy.start(*both) as process:
        tables = "runs/smoke/rope/*/metrics.csv"  # a cache beside it is being built
        while sum(bool(read_csv(file)) for file in tmp_path.glob(tables)) < 2 and process.poll() is None:
            time.sleep(0.05)
        send(process.pid, signum)
        process.communicate(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}[signum]
    deadline = time.monotonic() + 20
    while list(tmp_path.rglob(HOLDER)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not list(tmp_path.rglob(HOLDER))
    assert len(list(tmp_path.rglob("step-*.ckpt"))) == 2
