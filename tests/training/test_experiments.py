"""The paper's own experiments and the families, at toy length, through the real command line."""

import json
import subprocess

import pytest
import torch

from tests.conftest import only, python

SHORT = (
    "logger=csv", "trainer=cpu", "steps=20", "eval_every=5", "log_every=5", "eval_windows=8", "batch_size=4",
    "context=32", "model.layers=1", "model.width=32",
)  # fmt: skip


@pytest.mark.parametrize(
    ("experiment", "figure"), [("roformer_mlm_tiny", "figure 3, left"), ("roformer_performer_tiny", "figure 3, right")]
)
def test_a_paper_s_experiment_prints_our_ratio_beside_the_paper_s(experiment, figure, train, tmp_path):
    result = train("-m", f"experiment={experiment}", *SHORT, "pos=sinusoidal,rope", "seed=0")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"Comparison with the paper (Su et al. 2021, {figure})" in result.stdout
    page = (tmp_path / "runs" / experiment / "report.html").read_text()
    assert "Comparison with the paper" in page


def test_an_encoder_fills_blanks_and_claims_no_bits_per_byte(train, tmp_path):
    result = train("experiment=roformer_mlm_tiny", *SHORT, "pos=t5")
    assert (result.returncode, result.stderr) == (0, "")
    assert "bits per byte" not in result.stdout
    run = only(tmp_path / "runs" / "roformer_mlm_tiny" / "t5", "seed0-*")
    summary = json.loads((run / "summary.json").read_text())
    assert 2 < summary["unigram_loss"] < 4
    assert not {"bits_per_byte", "bigram_loss"} & summary.keys()
    sample = (run / "sample.txt").read_bytes()
    assert sample.startswith(b"In the beg")
    assert b"_nning" not in sample

    def answer(prompt: str) -> subprocess.CompletedProcess[str]:
        return python("-m", "posenc.sample", run, "--prompt", prompt)

    filled = answer("the L_RD said")
    assert filled.returncode == 0, filled.stderr
    assert filled.stdout.startswith("the L")
    refused = answer("no blank")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "must contain a _" in refused.stderr


def test_a_linear_model_comes_back_from_its_checkpoint_with_its_random_directions(train, tmp_path):
    assert train("experiment=roformer_performer_tiny", *SHORT, "pos=rope").returncode == 0
    from posenc.evaluation.load import load

    run = only(tmp_path / "runs" / "roformer_performer_tiny" / "rope", "seed0-*")
    file = only(run / "checkpoints", "step-000000020-*.ckpt")
    stored = torch.load(file, weights_only=True)["state_dict"]
    loaded = load(run).model.state_dict()
    directions = [name for name in loaded if name.endswith("directions")]
    assert directions
    assert all(torch.equal(loaded[name], stored[f"model.{name}"]) for name in loaded)


def test_the_families_are_a_panel_each_with_the_whole_in_one_table(train):
    result = train("-m", "experiment=families", *SHORT, "model/family=olmo,llama2,palm", "seed=0")
    assert (result.returncode, result.stderr) == (0, "")
    for family in ("olmo", "llama2", "palm"):
        assert f"After 20 steps, model/family={family}" in result.stdout
    assert "All settings: speed-up in steps over sinusoidal" in result.stdout
