"""The step of profiles and benchmarks is the one that a run takes."""

import pytest
import torch

from posenc.config.instantiate import build
from posenc.storage.csv_files import read_csv
from posenc.training.experiment import Experiment
from tests.conftest import composed, only


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_the_step_without_lightning_gives_the_curve_of_a_run_to_the_bit(schedule, train, tmp_path):
    arguments = ("experiment=smoke", "logger=csv", "trainer=cpu", "log_every=1", f"schedule={schedule}")
    result = train(*arguments)
    assert result.returncode == 0, result.stderr
    rows = read_csv(only(tmp_path / "runs" / "smoke" / "rope") / "metrics.csv")
    config = composed(*arguments)
    experiment = Experiment.of(config)
    update = experiment.training_step(build(config, "trainer"), torch.device("cpu"))
    batches = experiment.batches(experiment.prepare(build(config, "data"), "kjv"))
    losses = [
        update(*experiment.objective.inputs_and_targets(*batch)).item() for batch in batches.stream(0, config["steps"])
    ]
    assert losses == [float(row["train_loss"]) for row in rows]
