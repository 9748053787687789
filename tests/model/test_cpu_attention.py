"""Blockwise attention against torch's own."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from posenc.model.attention import MAX_LENGTH, PositionContext, Softmax, mask_future
from posenc.model.cpu_attention import BLOCK, attention
from posenc.positions import PositionScheme
from tests.model.dispatched import Dispatched

HEADS, HEAD_DIM = 3, 8
SCALE = HEAD_DIM**-0.5
BIASES = {"no bias": 0, "a bias for all windows": 1, "a bias of each window": 2}
"""The number of windows that the bias has; the batch has 2."""


def example(length: int, dtype: torch.dtype, causal: bool = True, biases: int = 0, factor: float = 1) -> list:
    """Queries, keys, values and perhaps a bias; logits are larger by the factor."""
    generator = torch.Generator().manual_seed(length)
    parts = [torch.randn(2, HEADS, length, HEAD_DIM, generator=generator) for _ in range(3)]
    if biases:
        parts.append(mask_future(torch.randn(biases, HEADS, length, length, generator=generator), causal))
    parts[0] *= factor
    return [part.to(dtype).requires_grad_() for part in parts]


def with_gradients(function, parts, causal=True):
    mixed = function(*parts, causal=causal)
    weights = torch.randn(mixed.shape, generator=torch.Generator().manual_seed(1)).to(mixed.dtype)
    return [mixed, *torch.autograd.grad(mixed, parts, weights)]


def ours(q, k, v, bias=None, *, causal):
    return attention(q, k, v, bias, causal, SCALE)


def torch_s_own(q, k, v, bias=None, *, causal):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal and bias is None)


@given(st.integers(1, 3 * BLOCK), st.booleans(), st.sampled_from([*BIASES.values()]))
def test_values_and_gradients_are_those_of_torch_at_every_length(length, causal, biases):
    parts = example(length, torch.float64, causal, biases)
    for one, other in zip(with_gradients(ours, parts, causal), with_gradients(torch_s_own, parts, causal), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("biases", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("factor", [1, 8, 32, 128])
def test_in_bfloat16_large_logits_cost_no_more_precision_than_in_torch_s_kernel(factor, causal, biases):
    """The schemes differ in the size of their logits. Autocast is on, as in training."""
    parts = example(300, torch.bfloat16, causal, biases, factor)
    truth = with_gradients(torch_s_own, [part.detach().double().requires_grad_() for part in parts], causal)
    with torch.autocast("cpu", torch.bfloat16):
        found = with_gradients(ours, parts, causal)
    frozen = parts[3].detach() if biases else None  # torch's fused kernel has no gradient of a bias
    fused = with_gradients(lambda q, k, v, *, causal: torch_s_own(q, k, v, frozen, causal=causal), parts[:3], causal)
    errors, of_fused = (
        [(approximate - exact).norm() / exact.norm() for approximate, exact in zip(of, truth, strict=False)]
        for of in (found, fused)
    )
    of_fused += of_fused[1:2] * (len(errors) - len(of_fused))  # a bias's gradient is as precise as that of the queries
    assert all(error < 1.5 * other + 0.001 for error, other in zip(errors, of_fused, strict=True))


def in_one_piece(q, k, v, *, causal):
    """As it is written down: every product in full, the future masked."""
    logits = q @ k.mT * q.shape[-1] ** -0.5
    return mask_future(logits, causal).softmax(-1) @ v


@pytest.mark.parametrize("length", [BLOCK, 3 * BLOCK, 300])
def test_blocks_cost_no_precision_in_bfloat16(length):
    parts = example(length, torch.bfloat16)
    truth = with_gradients(torch_s_own, [part.detach().double().requires_grad_() for part in parts])
    for exact, one, other in zip(truth, with_gradients(ours, parts), with_gradients(in_one_piece, parts), strict=True):
        assert (one - exact).norm() < 1.1 * (other - exact).norm()


@pytest.mark.parametrize("biases", BIASES.values(), ids=BIASES)
def test_what_lies_ahead_changes_nothing_not_even_by_rounding(biases):
    q, k, v, *bias = example(150, torch.bfloat16, biases=biases)
    mixed = ours(q, k, v, *bias, causal=True)
    with torch.no_grad():
        k[..., 100:, :] += 1
        v[..., 100:, :] -= 1
    assert torch.equal(ours(q, k, v, *bias, causal=True)[..., :100, :], mixed[..., :100, :])


@pytest.mark.parametrize(
    ("heads", "length", "dtype", "expected"),
    [
        (2, MAX_LENGTH, torch.bfloat16, True),
        (2, MAX_LENGTH + 1, torch.bfloat16, False),
        (2, 64, torch.float32, False),
        (257, MAX_LENGTH, torch.bfloat16, False),  # it stores the probabilities
    ],
)
def test_blockwise_attention_is_used_in_bfloat16_up_to_a_length_and_a_size(heads, length, dtype, expected):
    q = torch.zeros(1, heads, length, 8, dtype=dtype)
    with Dispatched() as seen, torch.no_grad():
        Softmax()(q, q, q, PositionContext(PositionScheme(), torch.arange(length), None), True)
    assert any("posenc.cpu_attention" in operation for operation in seen.operations) is expected
