"""A run that begins at another's checkpoint is, to the bit, the run that it would have been from the start."""

from pathlib import Path

import pytest

from posenc.errors import UserError
from posenc.storage.csv_files import read_csv
from tests.conftest import curve, train_here

STABLE = ("schedule=constant", "schedule.warmup=4", "steps=20")
COOLED = ("schedule=wsd", "schedule.warmup=4", "schedule.cooldown=10", "steps=30")


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


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"fork_from=\S+ is not a run directory: it has no config.yaml"):
        train_here(tmp_path / "refused", f"fork_from={tmp_path}")
