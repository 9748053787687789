import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions.apply_rotary import LAYOUTS, Layout, apply_rotary, rotate_planes

layouts = st.sampled_from(sorted(LAYOUTS))


def example(length: int, size: int, rotated: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """x (2, 3, T, Dh) as attention has it, not contiguous, with cos and sin (T, rotated / 2)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, length, 3, size, generator=generator, dtype=torch.float64).to(dtype).transpose(1, 2)
    angles = 100 * torch.rand(length, rotated // 2, generator=generator, dtype=torch.float64)
    kind = torch.promote_types(dtype, torch.float32)
    return x, angles.cos().to(kind), angles.sin().to(kind)


def plainly(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: Layout) -> torch.Tensor:
    rotated = 2 * cos.shape[-1]
    return torch.cat([rotate_planes(x[..., :rotated], cos, sin, layout), x[..., rotated:]], dim=-1)


@given(layouts, st.integers(1, 70), st.integers(1, 8), st.integers(0, 4))
def test_fused_it_gives_what_the_formula_gives(layout, length, planes, rest):
    x, cos, sin = example(length, 2 * (planes + rest), 2 * planes, torch.float64)
    torch.testing.assert_close(apply_rotary(x, cos, sin, layout), plainly(x, cos, sin, layout), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rotation_in_bfloat16_is_rounded_once_at_its_end(layout):
    x, cos, sin = example(50, 16, 12, torch.bfloat16)
    exact = plainly(x.float(), cos, sin, layout)
    assert apply_rotary(x, cos, sin, layout).dtype == torch.bfloat16
    torch.testing.assert_close(apply_rotary(x, cos, sin, layout).float(), exact, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_may_lie_in_any_order(layout, dtype):
    """Queries as they come out of the projection, gradients as a kernel leaves them, heads of an odd size."""
    x, cos, sin = example(6, 9, 8, dtype)
    for strange in (x, x.mT.contiguous().mT, x.expand(2, 3, 6, 9)[:, :1].expand(2, 3, 6, 9)):
        torch.testing.assert_close(
            apply_rotary(strange, cos, sin, layout), apply_rotary(strange.contiguous(), cos, sin, layout)
        )


@pytest.mark.parametrize("rotated", [16, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_on_an_accelerator_queries_stay_in_the_order_of_the_projection_s_output(layout, rotated):
    """Attention kernels write their output in it; in another it would be copied before the next projection."""
    x, cos, sin = (part.to("meta") for part in example(6, 16, rotated, torch.bfloat16))
    result = apply_rotary(x, cos, sin, layout)
    assert result.shape == x.shape
    assert result.transpose(1, 2).is_contiguous()
    other = apply_rotary(x.contiguous(), cos, sin, layout)
    assert other.is_contiguous()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_order_in_memory_changes_neither_the_result_nor_a_gradient(layout, monkeypatch):
    found = []
    for inside in (False, True):
        monkeypatch.setattr("posenc.positions.apply_rotary.heads_inside_tokens", lambda _, inside=inside: inside)
        x, cos, sin = (part.requires_grad_() for part in example(5, 8, 6, torch.float64))
        result = apply_rotary(x, cos, sin, layout)
        weights = torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape)
        found.append([result, *torch.autograd.grad((weights * result).sum(), (x, cos, sin))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradients_of_x_cos_and_sin_are_those_of_the_formula_and_have_one_themselves(layout):
    inputs = [part.requires_grad_() for part in example(5, 8, 6, torch.float64)]
    assert torch.autograd.gradcheck(lambda x, cos, sin: apply_rotary(x, cos, sin, layout), inputs)
    assert torch.autograd.gradgradcheck(lambda x, cos, sin: apply_rotary(x, cos, sin, layout), inputs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_trained_frequencies_learn_the_same_with_and_without_a_compiler(layout):
    torch.compiler.reset()
    x, _, _ = example(20, 16, 16, torch.bfloat16)

    def rotated(frequencies: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(20)[:, None] * frequencies
        return apply_rotary(x, angles.cos(), angles.sin(), layout)

    gradients = []
    for function in (rotated, torch.compile(rotated, fullgraph=True, backend="aot_eager")):
        frequencies = torch.linspace(1, 0.1, 6).requires_grad_()
        (torch.arange(16) * function(frequencies).float().square()).sum().backward()
        assert frequencies.grad is not None
        gradients.append(frequencies.grad)
    torch.testing.assert_close(*gradients, rtol=0.02, atol=0.02 * gradients[1].abs().max().item())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_it_is_one_graph_with_the_same_result(layout):
    x, cos, sin = example(20, 16, 12, torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(apply_rotary, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, cos, sin, layout), apply_rotary(x, cos, sin, layout))


def test_no_copy_of_queries_or_keys_is_kept_for_the_gradient():
    x, cos, sin = example(50, 16, 16, torch.bfloat16)
    kept = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        apply_rotary(x.requires_grad_(), cos, sin, "half")
    assert kept == [cos.numel(), sin.numel()]
