"""What the launchers make of their keys; tests/slurm has a real cluster."""

import os
from importlib import import_module

import pytest

from posenc.errors import UserError
from posenc.sweeps.slurm import signal_name

Slurm = import_module("hydra_plugins.posenc_slurm").Slurm  # a namespace that mypy would find twice
Processes = import_module("hydra_plugins.posenc_joblib").Processes


@pytest.mark.parametrize(
    ("option", "name"),
    [("USR1@60", "USR1"), ("R:10@60", "USR1"), ("10", "USR1"), ("SIGUSR2", "USR2"), ("b:usr2", "USR2")],
)
def test_a_signal_is_read_as_sbatch_reads_it(option, name):
    assert signal_name(option) == name


def test_runs_at_a_time_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [Processes(n_jobs=runs).threads(100) for runs in (1, 2, 3, -1, 16)] == [8, 4, 2, 1, 1]
    assert [Processes().threads(runs) for runs in (1, 2, 3, 8, 100)] == [8, 4, 2, 1, 1]


def test_a_sweep_without_jobs_ends_at_once():
    assert Slurm().launch([], 0) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"signal": "99@60"}, "hydra.launcher.additional_parameters.signal=99@60 is not a signal, like USR1@60"),
        ({"signal": "USR9"}, "hydra.launcher.additional_parameters.signal=USR9 is not a signal"),
        (5, "hydra.launcher.additional_parameters=5 must be a mapping"),
    ],
)
def test_options_that_sbatch_would_not_take_are_refused_in_a_sentence(options, sentence):
    with pytest.raises(UserError, match=sentence):
        Slurm(additional_parameters=options, setup=None).launch([["seed=0"]], 0)


@pytest.mark.parametrize("options", [None, {}, {"signal": 10}])
def test_options_may_be_null_and_a_signal_a_number(options, monkeypatch):
    """Without SLURM's commands these get as far as submitit."""
    monkeypatch.setenv("PATH", "")
    launcher = Slurm(additional_parameters=options, setup=None, submitit_folder="jobs", max_num_timeout=1)
    with pytest.raises(UserError, match=r"^hydra/launcher=slurm cannot submit: Could not detect"):
        launcher.launch([["seed=0"]], 0)
