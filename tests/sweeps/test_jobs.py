"""What the check of a sweep lets pass; tests/config/bad_sweeps.py has what it refuses."""

import functools
import shutil

import pytest
import torch

from posenc.positions import Rotary
from posenc.sweeps import jobs
from posenc.sweeps.jobs import check_jobs, jobs_of
from tests.conftest import CONF


def test_a_swept_experiment_s_own_sweep_is_not_part_of_it():
    """Linear attention, of the second experiment, does not support all schemes over which the first one sweeps."""
    check_jobs(*jobs_of(["-m", "experiment=schemes,roformer_performer_tiny", "name=both"], CONF))


def test_a_single_value_of_a_sweep_s_file_is_that_of_its_jobs(tmp_path):
    conf = shutil.copytree(CONF, tmp_path / "conf")
    values = "{pos: sinusoidal, pos.scale: '0.1,0.2', model.width: 96, model.heads: '4,6'}"
    (conf / "sweep" / "mine.yaml").write_text(f"# @package _global_\nhydra: {{sweeper: {{params: {values}}}}}\n")
    configurations, _ = jobs_of(["-m", "+sweep=mine"], conf)
    assert {(one.pos.scale, one.model.width) for one in configurations} == {(0.1, 96), (0.2, 96)}


def test_a_scheme_that_reads_its_tensors_is_checked_by_its_job(monkeypatch):
    initialise = Rotary.__init__

    @functools.wraps(initialise)
    def reading(self, *arguments, **values):
        initialise(self, *arguments, **values)
        torch.arange(4).numpy()  # has no values where the check builds the scheme

    monkeypatch.setattr(Rotary, "__init__", reading)
    check_jobs(*jobs_of(["-m", "pos=none,rope"], CONF))


@pytest.mark.parametrize(
    ("swept", "built"), [("seed=0,1,2", 1), ("seed=0,1 pos=none,rope", 2), ("optim.lr=1,2 seed=3", 2)]
)
def test_jobs_that_differ_in_their_seed_are_built_once(swept, built, monkeypatch):
    models: list[object] = []
    monkeypatch.setattr(jobs, "_build", models.append)
    check_jobs(*jobs_of(["-m", *swept.split()], CONF))
    assert len(models) == built
