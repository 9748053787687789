"""Runs as W&B's server gives them, and those of one group alone."""

from types import SimpleNamespace
from typing import Any

import pytest

from posenc.analysis.runs import Run, flat
from posenc.analysis.wandb_runs import _read_run, parse_source, read_group
from posenc.errors import UserError
from tests.conftest import composed

SUMMARY = {"val_loss": 3.0, "seconds": 2.0, "tokens_per_s": 100, "parameters": 5}


def kept(rows: list[tuple[int, float | None]], summary: dict[str, Any], seed: int = 0) -> Any:
    """A run on the server: the steps and validation losses of its rows."""
    history = [{"step": step, "tokens": 10 * step, "seconds": step / 10, "val/loss": loss} for step, loss in rows]
    config = {"choices": {"pos": "rope"}, "seed": seed, "steps": 20}
    return SimpleNamespace(name="rope", url="url", config=config, summary_metrics=summary, scan_history=lambda: history)


def read(rows: list[tuple[int, float | None]], summary: dict[str, Any]) -> Run:
    run = _read_run(kept(rows, summary))
    assert isinstance(run, Run)
    return run


def test_of_a_step_that_a_resumed_run_has_logged_twice_the_last_row_counts():
    run = read([(5, None), (20, 3.5), (10, 4.0), (20, 3.0)], SUMMARY)
    assert (run.curve["step"].tolist(), run.curve["val_loss"].tolist()) == ([10, 20], [4.0, 3.0])
    assert run.finished


def test_a_run_that_has_only_w_and_b_s_own_summary_is_not_finished():
    run = read([(10, 4.0)], {"step": 10, "seconds": 1.0, "val/loss": 4.0, "_runtime": 3})
    assert (run.finished, run.last_loss) == (False, 4.0)


def test_only_the_runs_of_the_group_are_read(monkeypatch):
    groups = {"mine": [kept([(20, 3.0)], SUMMARY, seed=1)], "other": [kept([(20, 3.0)], SUMMARY, seed=2)]}

    def runs(path: str, filters: dict[str, str]) -> list[Any]:
        assert path == "team/posenc"
        return [run for group, inside in groups.items() for run in inside if filters.get("group", group) == group]

    monkeypatch.setattr("posenc.analysis.wandb_runs.public_api", lambda _: SimpleNamespace(runs=runs))
    assert [run.seed for run in read_group("team", "posenc", "mine").runs] == [1]


@pytest.mark.parametrize("source", ["wandb://team/posenc/", "wandb://team//smoke", "wandb:///posenc/smoke", "a/b/c"])
def test_a_source_without_one_of_its_parts_is_refused(source):
    assert parse_source("wandb://team/posenc/smoke") == ("team", "posenc", "smoke")
    with pytest.raises(UserError, match="must look like wandb://entity/project/group"):
        parse_source(source)


def test_what_the_agent_of_a_sweep_varies_does_not_keep_its_runs_from_being_compared():
    """W&B keeps the value of a swept key as the agent was given it: the choice, in place of the group."""
    configuration = {**composed("experiment=smoke", "pos=rope"), "choices": {"pos": "rope", "schedule": "cosine"}}
    swept = dict(flat({**configuration, "pos": "rope"}))
    assert "pos" not in swept
    assert swept == {key: value for key, value in flat(configuration) if not key.startswith("pos.")}
