import subprocess
import sys

import pytest
import torch

from posenc.config.instantiate import build, build_model
from posenc.model import Transformer
from posenc.positions import Rotary
from posenc.training.efficiency import DENSE_BF16, flops_per_token, peak_flops
from tests.conftest import composed

CPU = torch.device("cpu")


def test_the_products_of_a_step_are_those_of_the_usual_formula():
    """6 N + 12 L D T (Chowdhery et al. 2022, appendix B), N without what is not a matrix."""
    layers, width, context = 3, 64, 48
    model = Transformer(256, context, layers, width, 4, Rotary(16))
    matrices = sum(weight.numel() for weight in model.parameters() if weight.ndim == 2)
    expected = 6 * matrices + 12 * layers * width * context
    assert flops_per_token(model, context) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        *(f"pos={scheme}" for scheme in ("learned", "rope", "xpos", "pope", "t5", "fire", "fox", "cope")),
        "pos.layout=interleaved",
        "attention=linear",
        "objective=masked",
        "model/family=llama2",
        "model/family=palm",
    ],
)
def test_every_kind_of_model_can_be_counted(changed):
    config = composed("experiment=smoke", changed)
    model = build_model(config, build(config, "objective", vocab_size=256))
    assert flops_per_token(model, config["context"]) > 6 * sum(weight.numel() for weight in model.blocks.parameters())


def test_counting_leaves_the_model_as_it_was():
    model = Transformer(256, 8, 1, 16, 2, Rotary(8))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    flops_per_token(model, 8)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_where_the_peak_is_not_known_there_is_none():
    assert peak_flops(CPU, "bf16-mixed") is None


def test_no_chip_stands_with_the_rate_for_sparse_matrices():
    """Data sheets print both, the sparse one in larger type: 1,979 TFLOP/s for the H100 and H200."""
    assert max(DENSE_BF16.values()) < 1000e12
    assert DENSE_BF16["NVIDIA H200"] == DENSE_BF16["NVIDIA H100 80GB HBM3"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget the peak of a process")
def test_the_peak_is_that_since_it_was_last_forgotten():
    """In a process of its own: what others have freed may still be held by this one."""
    code = """if True:
        import torch
        from posenc.training.efficiency import reset_peak_memory, peak_memory

        cpu, large, small = torch.device("cpu"), 400 * 2**20, 50 * 2**20
        block = torch.ones(large, dtype=torch.uint8)
        del block
        before = peak_memory(cpu)
        reset_peak_memory(cpu)
        kept = torch.ones(small, dtype=torch.uint8)
        assert large < before
        assert small < peak_memory(cpu) < before - large / 2
    """
    subprocess.run([sys.executable, "-c", code], check=True)
