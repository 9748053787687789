"""Schemes of the last years against the formulas of their papers, term by term, in float64."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from posenc.positions import Contextual, Fire, Kerple, Polar, Rotary, TrainedFrequencies, Truncated

HEADS, DIM, LENGTH = 4, 8, 7
POSITIONS = torch.tensor([0, 1, 2, 3, 5, 9, 600])


def vectors(seed: int = 0) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, 1, HEADS, LENGTH, DIM, generator=torch.Generator().manual_seed(seed))
    return q, k


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


@pytest.mark.parametrize("kept", [0.0, 0.45, 0.5, 1.0])  # 0.45 of 4 planes are rounded to 2
def test_a_truncated_rope_turns_the_fastest_planes_as_rope_does_and_leaves_the_others(kept):
    q, _ = vectors()
    turned, _ = Truncated(DIM, layout="interleaved", kept=kept).rotate(q, q, POSITIONS)
    whole, _ = Rotary(DIM, layout="interleaved").rotate(q, q, POSITIONS)
    fast = 2 * round(kept * DIM / 2)
    assert torch.equal(turned[..., :fast], whole[..., :fast])
    assert torch.equal(turned[..., fast:], q[..., fast:])


def test_trained_frequencies_begin_as_rope_s_and_turn_by_what_they_have_become():
    scheme, (q, k) = TrainedFrequencies(DIM, layout="interleaved"), vectors()
    rope = Rotary(DIM, layout="interleaved").rotate(q, k, POSITIONS)
    for ours, ropes in zip(scheme.rotate(q, k, POSITIONS), rope, strict=True):
        torch.testing.assert_close(ours, ropes, rtol=0, atol=1e-5)
    log_ratio = next(scheme.parameters())
    log_ratio.data = torch.tensor([0.1, -0.3, 0.0, 0.7])
    theta = [10_000 ** (-2 * i / DIM) * math.exp(log_ratio[i].item()) for i in range(DIM // 2)]
    planes = torch.view_as_complex(q.double().unflatten(-1, (-1, 2)))
    turns = torch.polar(torch.ones(LENGTH, 4).double(), POSITIONS[:, None] * torch.tensor(theta, dtype=torch.float64))
    expected = torch.view_as_real(planes * turns).flatten(-2)
    torch.testing.assert_close(scheme.rotate(q, k, POSITIONS)[0].double(), expected, rtol=0, atol=1e-5)


def test_the_frequencies_are_trained_by_the_gradient_of_the_logits():
    scheme, (q, k) = TrainedFrequencies(DIM), vectors()
    log_ratio = next(scheme.parameters())

    def logit(value: Tensor) -> Tensor:
        log_ratio.data = value.float()
        turned_q, turned_k = scheme.rotate(q, k, POSITIONS[:6])
        return (turned_q @ turned_k.mT)[..., 5, 1].sum()

    q, k = q[..., :6, :], k[..., :6, :]
    logit(torch.zeros(4)).backward()
    step = 1e-2 * torch.eye(4)
    with torch.no_grad():
        differences = torch.stack([(logit(one) - logit(-one)) / 2e-2 for one in step])
    assert log_ratio.grad is not None
    torch.testing.assert_close(log_ratio.grad, differences, rtol=0.02, atol=1e-3)


def test_the_rates_of_kerple_below_their_minimum_can_rise_again():
    scheme = Kerple(HEADS)
    with torch.no_grad():
        scheme.r1[0], scheme.r2[0] = 0.005, 0.005
    bias = scheme.bias(torch.arange(4))
    assert bias[0, 3, 0].item() == pytest.approx(-0.01 * math.log1p(3 * 0.01), rel=1e-5)
    bias.sum().backward()
    for rate in (scheme.r1, scheme.r2):
        assert rate.grad is not None
        assert rate.grad.ne(0).all()


def test_the_rates_of_kerple_start_uniformly_in_0_to_2_and_0_to_1():
    scheme = Kerple(4000)
    for rate, high in ((scheme.r1, 2.0), (scheme.r2, 1.0)):
        assert 0 <= rate.min() < 0.02 * high
        assert 0.98 * high < rate.max() <= high


def test_a_negative_c_of_fire_has_the_bias_of_its_size():
    scheme = Fire(HEADS)
    bias = scheme.bias(POSITIONS)
    scheme.c.data.neg_()
    assert torch.equal(scheme.bias(POSITIONS), bias)


def test_the_weights_of_fire_start_within_the_root_of_their_inputs():
    scheme = Fire(heads=256, hidden=1024)
    for linear in (scheme.inner, scheme.outer):
        bound = linear.in_features**-0.5
        assert 0.95 * bound < linear.weight.abs().max() <= bound


def test_kerple_falls_with_the_logarithm_of_the_distance():
    scheme = Kerple(HEADS)
    bias = scheme.bias(POSITIONS)
    for h, i, j in product(range(HEADS), range(LENGTH), range(LENGTH)):
        r1, r2 = (max(0.01, rate[h].item()) for rate in (scheme.r1, scheme.r2))
        distance = abs(int(POSITIONS[i]) - int(POSITIONS[j]))
        assert bias[h, i, j].item() == pytest.approx(-r1 * math.log(1 + r2 * distance), abs=1e-4)


def test_fire_is_a_function_of_the_distance_over_that_to_the_beginning():
    scheme = Fire(HEADS, hidden=3, c=0.2, threshold=4)
    inner, outer = ([w.double() for w in linear.parameters()] for linear in (scheme.inner, scheme.outer))
    bias = scheme.bias(POSITIONS)
    for i in range(LENGTH):
        for j in range(i + 1):
            m, n = int(POSITIONS[i]), int(POSITIONS[j])
            x = math.log(1 + 0.2 * (m - n)) / math.log(1 + 0.2 * max(4, m))
            hidden = (inner[0][:, 0] * x + inner[1]).clamp(min=0)
            torch.testing.assert_close(bias[:, i, j].double(), outer[0] @ hidden + outer[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("longest", [3, 64])
@pytest.mark.parametrize("kv_heads", [1, 2, HEADS])
def test_cope_counts_the_tokens_that_matter_to_the_query(kv_heads, longest):
    scheme, (q, k) = Contextual(DIM, layers=2, longest=longest), vectors()
    table = scheme.layer(1).table
    table.data = torch.randn(longest, DIM, generator=torch.Generator().manual_seed(1))
    bias = scheme.layer(1).content_bias(q, q, k[:, :kv_heads], POSITIONS)
    for h in range(HEADS):
        keys = k[0, h * kv_heads // HEADS].double()
        for i in range(LENGTH):
            query = q[0, h, i].double()
            gates = [sigmoid((query @ key).item() / math.sqrt(DIM)) for key in keys]
            for j in range(i + 1):
                count = min(sum(gates[j : i + 1]), longest - 1)
                below, above = (query @ table[at].double() for at in (math.floor(count), math.ceil(count)))
                expected = below + (count - math.floor(count)) * (above - below)
                assert bias[0, h, i, j].item() == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize("kv_heads", [1, 2, HEADS])
def test_pope_has_contents_in_lengths_and_positions_in_angles(kv_heads):
    scheme, (q, k) = Polar(HEADS, DIM, base=100), vectors()
    scheme.delta.data = torch.randn(HEADS, 1, DIM, generator=torch.Generator().manual_seed(1))
    turned_q, turned_k = scheme.rotate(q, k[:, :kv_heads], POSITIONS)
    logits = turned_q @ turned_k.repeat_interleave(HEADS // turned_k.shape[1], dim=1).mT
    for h, i, j in product(range(HEADS), range(LENGTH), range(LENGTH)):
        offset = int(POSITIONS[i]) - int(POSITIONS[j])
        expected = sum(
            softplus(q[0, h, i, c].item())
            * softplus(k[0, h * kv_heads // HEADS, j, c].item())
            * math.cos(offset * 100 ** (-c / DIM) - scheme.delta[h, 0, c].item())
            for c in range(DIM)
        )
        assert logits[0, h, i, j].item() == pytest.approx(expected, abs=1e-3)


def test_autocast_does_not_round_the_bias_of_fire():
    scheme = Fire(HEADS)
    with torch.autocast("cpu", torch.bfloat16):
        bias = scheme.bias(POSITIONS)
    assert torch.equal(bias, scheme.bias(POSITIONS))


def test_the_vectors_of_pope_in_bfloat16_are_rounded_once_at_the_end():
    scheme, (q, k) = Polar(HEADS, DIM), (x.bfloat16() for x in vectors())
    exact = scheme.rotate(q.float(), k.float(), POSITIONS)
    for ours, truth in zip(scheme.rotate(q, k, POSITIONS), exact, strict=True):
        assert torch.equal(ours, truth.bfloat16())
