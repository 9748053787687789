"""Where a run is written."""

import pytest

from posenc.errors import UserError
from posenc.storage.run_directory import HOLDER, RunDirectory


def directory(runs, rerun: bool) -> RunDirectory:
    return RunDirectory.of(runs, "smoke", "rope", 0, "0f1e2d3c", rerun)


def test_a_run_trained_again_has_the_first_number_that_is_not_finished(tmp_path):
    for name in ("", "-2", "-3"):
        assert directory(tmp_path, rerun=True).path.name == f"seed0-0f1e2d3c{name}"
        directory(tmp_path, rerun=True).path.mkdir(parents=True)
        directory(tmp_path, rerun=True).finish({})
    assert directory(tmp_path, rerun=False).path.name == "seed0-0f1e2d3c"


def test_a_process_that_ends_while_it_is_named_is_another_process(tmp_path):
    one = directory(tmp_path, rerun=False)
    with one.locked():
        (one.path / HOLDER).unlink()
        with pytest.raises(UserError, match="^another process is training this run, in "), one.locked():
            pass


def test_what_a_killed_process_left_of_a_table_is_cleared_away(tmp_path):
    run = directory(tmp_path, rerun=False)
    run.path.mkdir(parents=True)
    (run.path / "metrics.csv.0f1e2d3c.partial").touch()
    with run.locked():
        assert not list(run.path.glob("*.partial"))
    assert not (run.path / HOLDER).exists()


def test_the_id_of_an_agent_replaces_that_of_an_earlier_session(tmp_path):
    run = RunDirectory(tmp_path, "smoke", "rope", 0)
    assert run.run_id() == run.run_id()
    assert run.run_id("agent0") == run.run_id() == "agent0"


def test_what_a_killed_process_left_of_its_best_checkpoint_is_cleared_away(tmp_path):
    run = directory(tmp_path, rerun=False)
    run.best.mkdir(parents=True)
    (run.best / "step-000000010.0f1e2d3c.partial").touch()
    run.create({"seed": 0})
    assert not list(run.best.iterdir())
