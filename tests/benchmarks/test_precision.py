"""The comparison of bf16 with fp32 notices an error of attention, and calls nothing else one."""

from pathlib import Path

import pytest
import torch

from posenc.model.attention import Softmax
from posenc.model.linear_attention import Linear
from posenc.training.accelerator import Hardware
from tests.benchmarks.scripts import module
from tests.conftest import train_here

ERRORS = {
    "none": lambda attend, causal: attend(causal),
    "zero": lambda attend, causal: attend(causal) * 0,
    "not causal": lambda attend, causal: attend(not causal),
}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("op", "case"), [(Softmax, "pos=rope"), (Linear, "attention=linear")])
def test_attention_that_is_wrong_in_bf16_is_out_of_tolerance(error, op, case, monkeypatch):
    right = op.forward

    def forward(self, q, k, v, context, causal):
        chosen = error if torch.is_autocast_enabled("cpu") else "none"
        return ERRORS[chosen](lambda causal: right(self, q, k, v, context, causal), causal)

    monkeypatch.setattr(op, "forward", forward)
    _, failed = module("precision").compare([case], [64], Hardware("cpu", "bf16-mixed", compile=False))
    assert failed == [case] * (error != "none")


def test_a_finished_run_is_compared_at_its_own_weights(tmp_path):
    train_here(tmp_path / "runs", "objective=masked")
    cache = Path("data/cache")
    for hardware, exact in ((module("precision").EXACT, True), (Hardware("cpu", "bf16-mixed", compile=False), False)):
        ((run, loss, gradient),) = module("precision").compare_runs([tmp_path / "runs"], cache, hardware)
        assert (run / "config.yaml").exists()
        assert (loss == gradient == 0) == exact
        assert 0 <= loss <= module("precision").LOSS


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("pos=fox objective=masked", "needs a causal model: use objective=causal, or another pos or intervention"),
        ("pos=roope", "pos=roope is not a choice"),
    ],
)
def test_an_invalid_case_is_an_error_and_not_within_tolerance(case, sentence, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["precision", "--device", "cpu", "--lengths", "8", "--only", "pos=none", case])
    with pytest.raises(SystemExit, match="2"):
        module("precision").main()
    output, error = capsys.readouterr()
    assert sentence in error
    assert "within tolerance" not in output
