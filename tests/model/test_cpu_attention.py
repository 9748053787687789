"""Blockwise causal attention against torch's own."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from posenc.model.cpu_attention import BLOCK, causal_attention


def example(length: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    return [torch.randn(3, length, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


def with_gradients(function, parts):
    mixed = function(*parts)
    weights = torch.randn(mixed.shape, generator=torch.Generator().manual_seed(1)).to(mixed.dtype)
    return [mixed, *torch.autograd.grad(mixed, parts, weights)]


SCALE = 8**-0.5


def ours_of(q, k, v):
    return causal_attention(q, k, v, SCALE)


def torch_s_own(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@given(st.integers(1, 3 * BLOCK))
def test_values_and_gradients_are_those_of_torch_at_every_length(length):
    parts = example(length, torch.float64)
    for ours, theirs in zip(with_gradients(ours_of, parts), with_gradients(torch_s_own, parts), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def in_one_piece(q, k, v):
    """As it is written down: every product in full, the future masked."""
    logits = q @ k.mT * q.shape[-1] ** -0.5
    return logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("length", [BLOCK, 3 * BLOCK, 300])
def test_blocks_cost_no_precision_in_bfloat16(length):
    parts = example(length, torch.bfloat16)
    truth = with_gradients(torch_s_own, [part.detach().double().requires_grad_() for part in parts])
    ours, plain = with_gradients(ours_of, parts), with_gradients(in_one_piece, parts)
    for exact, one, other in zip(truth, ours, plain, strict=True):
        assert (one - exact).norm() < 1.1 * (other - exact).norm()


def test_what_lies_ahead_changes_nothing_not_even_by_rounding():
    q, k, v = example(150, torch.bfloat16)
    mixed = ours_of(q, k, v)
    with torch.no_grad():
        k[:, 100:] += 1
        v[:, 100:] -= 1
    assert torch.equal(ours_of(q, k, v)[:, :100], mixed[:, :100])
