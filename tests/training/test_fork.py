"""A run that begins at another's checkpoint is, to the bit, the run that it would have been from the start."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posenc.errors import UserError
from posenc.storage.checkpoint_files import newest_first, stem, step
from posenc.storage.csv_files import read_csv
from posenc.storage.reading import MAX_BYTES, read_mapping
from posenc.storage.run_directory import RunDirectory
from posenc.training.checkpoint_io import CheckpointIO
from posenc.training.experiment import Experiment
from posenc.training.fork import Fork, _latest, _rows
from tests.conftest import composed, curve, train_here

STABLE = ("schedule=constant", "schedule.warmup=4", "steps=20")
COOLED = ("schedule=wsd", "schedule.warmup=4", "schedule.cooldown=10", "steps=30")


def saved(folder: Path, step: int) -> Path:
    """The file of an empty checkpoint."""
    CheckpointIO().save_checkpoint({"configuration": {}}, folder / stem(step))
    return newest_first(folder)[0]


@pytest.fixture(scope="module")
def stable(tmp_path_factory) -> Path:
    """A finished run whose learning rate stays at its peak."""
    return train_here(tmp_path_factory.mktemp("stable"), *STABLE)


def test_a_cool_down_from_a_checkpoint_is_the_run_with_that_cool_down(stable, tmp_path):
    scratch = train_here(tmp_path / "scratch", *COOLED)
    forked = train_here(tmp_path / "forked", *COOLED, f"fork_from={stable}")
    assert len(curve(scratch)) == 6
    assert curve(forked) == curve(scratch)
    assert (forked / "attention.csv").read_text() == (scratch / "attention.csv").read_text()
    assert forked.name == scratch.name


def test_a_finished_run_says_that_it_did_not_begin_at_another_checkpoint(stable, tmp_path, capsys):
    """Its curve is the same, but the other run is not even read."""
    train_here(tmp_path, *COOLED)
    for overrides, told in (((), False), ((f"fork_from={stable}",), True)):
        capsys.readouterr()
        train_here(tmp_path, *COOLED, *overrides)
        printed = capsys.readouterr().out
        assert "This run is finished" in printed
        assert (f"ignored          fork_from={stable}: it began from scratch" in printed) == told


def test_a_finished_fork_knows_its_source_by_another_name(stable, tmp_path, capsys):
    train_here(tmp_path, *COOLED, f"fork_from={stable}")
    train_here(tmp_path, *COOLED, f"fork_from={stable.parent}/./{stable.name}/")
    assert "ignored" not in capsys.readouterr().out


def test_a_fork_that_is_resumed_without_fork_from_still_says_where_it_began(stable, tmp_path, capsys):
    forked = train_here(tmp_path, *COOLED, f"fork_from={stable}")
    (forked / "summary.json").unlink()  # as if it had been killed just before the end
    train_here(tmp_path, *COOLED)
    train_here(tmp_path, *COOLED, "fork_from=elsewhere")
    assert f"ignored          fork_from=elsewhere: it began from {stable}\n" in capsys.readouterr().out


def test_a_fork_whose_own_checkpoints_are_all_damaged_begins_again_where_it_did(stable, tmp_path, capsys):
    forked = train_here(tmp_path, *COOLED, f"fork_from={stable}")
    before = curve(forked)
    (forked / "summary.json").unlink()
    for file in newest_first(forked / "checkpoints"):
        file.write_bytes(b"damaged")
    train_here(tmp_path, *COOLED, f"fork_from={stable}")
    assert "Resuming from step-000000020" in capsys.readouterr().out
    assert curve(forked) == before


def test_heads_that_no_run_has_measured_yet_are_measured_as_the_fork_says(tmp_path):
    stable = train_here(tmp_path / "stable", *STABLE, "attention_every=40")
    forked = train_here(tmp_path / "forked", *COOLED, "attention_every=30", f"fork_from={stable}")
    assert [int(row["step"]) for row in read_csv(forked / "attention.csv")] == [30] * 4  # layers times heads
    with pytest.raises(UserError, match=r"attention_every=40 \(here 20\)"):  # due at the checkpoint, of step 20
        train_here(tmp_path / "refused", *COOLED, "attention_every=20", f"fork_from={stable}")


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ((*COOLED, "seed=1"), "the checkpoint is from another configuration: seed=0 (here 1)"),
        ((*COOLED, "trainer.precision=bf16-mixed"), "the checkpoint is from another configuration: precision=32-true"),
        (
            (*COOLED, "attention_every=30"),
            "the checkpoint is from another configuration: attention_every=10 (here 30)",
        ),
        ((*COOLED, "optim.lr=0.004"), "the checkpoint is from another configuration: optim.lr=0.003 (here 0.004)"),
        (
            ("steps=30",),
            "the learning rates agree up to step 0, and it has no checkpoint that early",
        ),
        (  # the run would be over before its first step
            STABLE,
            "the learning rates agree up to step 19, and it has no checkpoint that early",
        ),
    ],
)
def test_a_run_that_would_not_have_come_to_the_checkpoint_is_refused(stable, tmp_path, overrides, sentence):
    with pytest.raises(UserError) as refusal:
        train_here(tmp_path / "refused", *overrides, f"fork_from={stable}")
    assert f"fork_from={stable}: {sentence}" in str(refusal.value)
    assert not (tmp_path / "refused").exists()


def test_a_run_with_another_vocabulary_is_refused(stable):
    def refuse(folder: Path) -> None:
        raise UserError(f"{folder.name} has another vocabulary")

    tokenizer: Any = SimpleNamespace(check=refuse)
    experiment = Experiment.of({**read_mapping(stable / "config.yaml"), "steps": 40})
    with pytest.raises(UserError, match=f"^fork_from={stable}: {stable.name} has another vocabulary"):
        Fork.of(stable, replace(experiment, tokenizer=tokenizer))


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"fork_from=\S+ is not a run directory: it has no config.yaml"):
        train_here(tmp_path / "refused", f"fork_from={tmp_path}")


def test_a_fork_begins_at_the_latest_checkpoint_that_is_early_enough_and_whole(tmp_path):
    files = {step: saved(tmp_path, step) for step in (10, 20, 30)}
    assert _latest(tmp_path, 20) == files[20]
    files[20].write_bytes(b"damaged")
    assert _latest(tmp_path, 20) == files[10]
    with pytest.raises(UserError, match=r"agree up to step 9, .* that early \(steps: 10 and 20 and 30\)"):
        _latest(tmp_path, 9)


def test_a_fork_takes_over_the_rows_of_a_run_of_any_length(tmp_path):
    (tmp_path / "long" / "checkpoints").mkdir(parents=True)
    file, rows = saved(tmp_path / "long" / "checkpoints", 10), "step\n" + "1\n" * MAX_BYTES
    for name in ("metrics.csv", "attention.csv"):
        (file.parents[1] / name).write_text(rows)
    directory = RunDirectory(tmp_path / "fork", "smoke", "rope", 0)
    directory.create({})
    Fork(file, {"configuration": {}}, _rows(tmp_path / "long")).into(directory)
    assert (directory.path / "metrics.csv").read_text() == (directory.path / "attention.csv").read_text() == rows
    assert step(newest_first(directory.checkpoints)[0]) == 10


def test_a_run_without_rows_to_take_over_is_refused_before_anything_is_written(stable, tmp_path):
    source = shutil.copytree(stable, tmp_path / "other" / stable.name)
    (source / "metrics.csv").unlink()
    with pytest.raises(UserError, match=f"^fork_from={source}: {source}/metrics.csv cannot be read: No such file"):
        train_here(tmp_path / "runs", *COOLED, f"fork_from={source}")
    assert not (tmp_path / "runs").exists()


def test_a_run_that_has_a_checkpoint_goes_on_although_the_run_it_began_from_is_gone(stable, tmp_path, capsys):
    shutil.copytree(stable, tmp_path / "smoke" / "rope" / stable.name)
    (tmp_path / "smoke" / "rope" / stable.name / "summary.json").unlink()
    assert train_here(tmp_path, *STABLE, f"fork_from={tmp_path / 'gone'}").name == stable.name
    assert "Resuming from step-000000020" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("config", "sentence"),
    [("steps: many\nattention_every: 10\n", "steps=many must be an integer"), ("steps: 20\n", "attention_every is mi")],
)
def test_a_run_of_a_stranger_is_refused_in_a_sentence(config, sentence, tmp_path):
    (tmp_path / "config.yaml").write_text(config)
    with pytest.raises(UserError, match=f"^fork_from={tmp_path}: {sentence}"):
        Fork.of(tmp_path, Experiment.of(composed("experiment=smoke")))
