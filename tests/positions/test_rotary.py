"""Rotary position embedding is the mathematics of the paper, whatever the layout and the positions."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from posenc.model.attention import Attention, PositionContext
from posenc.positions import Bounded, NopeHybrid, Polar, PositionScheme, Rotary, Truncated, Xpos, permute_layout
from posenc.positions.apply_rotary import LAYOUTS

layouts = st.sampled_from(sorted(LAYOUTS))
offsets = st.integers(0, 900_000)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def turn(x: Tensor, position: int, **settings) -> Tensor:
    """One vector (Dh,) turned to one position."""
    scheme = Rotary(x.shape[-1], **settings)
    return scheme.rotate(x[None, None, None], x[None, None, None], torch.tensor([position]))[0].flatten()


def block_diagonal(position: int, size: int, base: float = 10_000.0) -> Tensor:
    """R of the paper's equation 15, written out: (size, size) float64."""
    angles = [position * base ** (-2 * i / size) for i in range(size // 2)]
    planes = [
        torch.tensor([[a.cos(), -a.sin()], [a.sin(), a.cos()]]) for a in torch.tensor(angles, dtype=torch.float64)
    ]
    return torch.block_diag(*planes)


@given(st.integers(0, 10**6))
def test_interleaved_is_the_block_diagonal_matrix_of_the_paper(position):
    x = randn(16)
    expected = block_diagonal(position, 16) @ x.double()
    assert (turn(x, position, layout="interleaved") - expected).abs().max() < 1e-6


@given(offsets)
def test_the_layouts_differ_by_a_permutation_of_the_channels(position):
    x = randn(16).double()  # so that nothing is left of rounding
    order = torch.arange(16).view(8, 2).T.flatten()  # 0 2 4 .. 1 3 5 ..
    half = turn(x[order], position, layout="half")
    torch.testing.assert_close(half, turn(x, position, layout="interleaved")[order], rtol=1e-14, atol=1e-15)


def test_a_fraction_turns_the_first_channels_only():
    x = randn(32)
    turned = turn(x, 5, fraction=0.25)
    assert torch.equal(turned[8:], x[8:])
    assert torch.allclose(turned[:8], turn(x[:8], 5))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_positions_may_be_gapped_and_in_any_order(layout):
    q = randn(2, 3, 4, 16)
    positions = torch.tensor([7, 0, 1_000_000, 7])
    together, _ = Rotary(16, layout=layout).rotate(q, q, positions)
    for at, position in enumerate(positions.tolist()):
        alone = turn(q[1, 2, at], position, layout=layout)
        assert torch.allclose(together[1, 2, at], alone, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"head_dim": 31}, "head_dim=31 .* even number"),
        ({"head_dim": 0}, "head_dim=0 .* even number"),
        ({"head_dim": 32, "fraction": 0.1}, "rotates 3 channels"),
        ({"head_dim": 32, "fraction": 1.5}, "fraction=1.5 must be above 0 and at most 1"),
        ({"head_dim": 32, "base": -1.0}, "base=-1.0 must be a positive number"),
        ({"head_dim": 32, "layout": "neox"}, "layout=neox must be one of half, interleaved"),
    ],
)
def test_impossible_settings_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Rotary(**settings)


@given(st.integers(0, 10**6), st.sampled_from([1, 256, 4096]))
def test_bounded_angles_are_pi_over_n_times_the_powers_of_the_base(position, longest):
    cos, sin = Bounded(16, longest).angles(torch.tensor([position]))
    angles = position * math.pi / longest * 10_000.0 ** (-torch.arange(8).double() / 8)
    assert (cos[0] - angles.cos()).abs().max() < 1e-6
    assert (sin[0] - angles.sin()).abs().max() < 1e-6


def test_in_the_longest_sequence_bounded_angles_grow_with_the_distance_and_those_of_rope_do_not():
    cos, _ = Bounded(16, longest=256).angles(torch.arange(256))
    assert (cos[1:, 0] < cos[:-1, 0]).all()
    assert (cos[1:] <= cos[:-1]).all()
    cos, _ = Rotary(16).angles(torch.arange(256))
    assert cos[6, 0] > cos[5, 0]


def test_the_angles_of_a_bounded_fraction_are_those_of_a_head_of_its_size():
    positions = torch.arange(256)
    whole, fraction = Bounded(4, 256).angles(positions), Bounded(16, 256, fraction=0.25).angles(positions)
    assert torch.equal(torch.stack(whole), torch.stack(fraction))


def test_bounded_angles_can_go_past_the_longest_sequence():
    assert Bounded(16, longest=256).max_length == Rotary(16).max_length
    cos, _ = Bounded(16, longest=256).angles(torch.tensor([512]))
    assert cos[0, 0].item() == pytest.approx(1.0)


def xpos_score(q: Tensor, k: Tensor, m: int, n: int, **settings: Any) -> float:
    """The score of one query at m and one key at n."""
    q, k = (x.expand(1, 1, 2, -1) for x in (q, k))
    turned_q, turned_k = Xpos(q.shape[-1], **settings).rotate(q, k, torch.tensor([m, n]))
    return (turned_q[0, 0, 0].double() @ turned_k[0, 0, 1].double()).item()


@given(offsets, st.integers(-2_000, 32_860), layouts)
def test_xpos_scores_are_those_of_rope_with_each_plane_s_decay_anywhere_within_its_span(n, offset, layout):
    m = max(0, n + offset)
    q, k = randn(16, seed=1), randn(16, seed=2)
    planes = torch.arange(8).double()
    split = LAYOUTS[layout].split
    complex_q, complex_k = (torch.complex(*(part.double() for part in split(x))) for x in (q, k))
    power = ((planes / 8 + 0.4) / 1.4).log() / 512 + 1j * 10_000.0 ** (-planes / 8)
    products = (complex_q * complex_k.conj() * torch.exp((m - n) * power)).real
    score = xpos_score(q, k, m, n, layout=layout)
    assert score == pytest.approx(products.sum().item(), abs=2e-5 * max(1, products.abs().max().item()))


@pytest.mark.parametrize("scale_base", [64.0, 512.0])
def test_xpos_stays_finite_up_to_its_longest_sequence_also_where_a_causal_model_does_not_look(scale_base):
    scheme = Xpos(16, scale_base=scale_base)
    assert scheme.max_length is not None
    ends = torch.tensor([0, scheme.max_length - 1]) + 1000
    x = 30 * torch.ones(1, 1, 2, 16)
    for dtype in (torch.float32, torch.bfloat16):
        turned_q, turned_k = scheme.rotate(x.to(dtype), x.to(dtype), ends)
        assert (turned_q @ turned_k.mT).isfinite().all()


def test_xpos_spans_at_most_131072_positions_however_slow_its_decay():
    assert Xpos(8, scale_base=1e9).max_length == 2**17


def test_the_decay_of_an_xpos_on_a_fraction_is_that_of_a_head_of_its_size():
    q, k = torch.randn(2, 1, 1, 5, 16, generator=torch.Generator().manual_seed(0))
    part = Xpos(16, fraction=0.5).rotate(q, k, torch.arange(5))
    whole = Xpos(8).rotate(q[..., :8], k[..., :8], torch.arange(5))
    for rotated, expected in zip(part, whole, strict=True):
        torch.testing.assert_close(rotated[..., :8], expected)


def test_by_default_xpos_spans_32861_positions():
    assert Xpos(64).max_length == 32_861


@pytest.mark.parametrize("offset", [1, 100, 1000])
def test_an_xpos_score_falls_with_the_distance_where_a_rope_score_turns_only(offset):
    x = torch.tensor([1.0, 0.0])
    turned = turn(x, offset) @ x
    assert xpos_score(x, x, offset, 0) == pytest.approx(turned.item() * (2 / 7) ** (offset / 512), rel=1e-4)


def test_of_a_nope_hybrid_s_layers_the_last_of_every_four_has_no_positions():
    scheme = NopeHybrid(16)
    x, positions = randn(1, 1, 5, 16), torch.arange(5)
    rotated, _ = Rotary(16).rotate(x, x, positions)
    for index in range(12):
        expected = x if index in (3, 7, 11) else rotated
        assert torch.equal(scheme.layer(index).rotate(x, x, positions)[0], expected)


HEADS, KEY_HEADS, SIZE = 4, 2, 8


def logits_of(attention: Attention, layout: str) -> Tensor:
    """What every head of an attention looks at, with RoPE in a layout."""
    x, positions = randn(3, 10, HEADS * SIZE), torch.arange(10)
    return attention.attention_probs(x, PositionContext(Rotary(SIZE, layout=layout), positions, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(("to", "before"), [("half", "interleaved"), ("interleaved", "half")])
def test_an_attention_with_permuted_weights_looks_where_it_looked_in_the_other_layout(to, before):
    width = HEADS * SIZE
    attention = Attention(width, HEADS, causal=True)
    attention.qkv.weight.data = randn(3 * width, width, seed=5)
    expected = logits_of(attention, before)
    assert not torch.allclose(logits_of(attention, to), expected, atol=1e-2)
    q, k, v = attention.qkv.weight.data.chunk(3)
    attention.qkv.weight.data = torch.cat([permute_layout(q, HEADS, to), permute_layout(k, HEADS, to), v])
    assert torch.allclose(logits_of(attention, to), expected, atol=1e-5)
    x, nowhere = randn(1, 10, width), PositionContext(PositionScheme(), torch.arange(10), None)
    without = attention.attention_probs(x, nowhere)
    attention.qkv.weight.data = torch.cat([q, k, v])
    assert torch.allclose(attention.attention_probs(x, nowhere), without)


@pytest.mark.parametrize("shape", [(KEY_HEADS * SIZE, 5), (KEY_HEADS * SIZE,)])
def test_a_permutation_and_its_inverse_leave_a_weight_or_a_bias_as_it_was(shape):
    weight = randn(*shape)
    there = permute_layout(weight, KEY_HEADS, "half")
    assert there.shape == weight.shape
    assert not torch.equal(there, weight)
    assert torch.equal(permute_layout(there, KEY_HEADS, "interleaved"), weight)


def test_a_permutation_gathers_the_first_channels_of_a_head_s_planes():
    rows = torch.arange(16)
    assert permute_layout(rows, 2, "half").tolist() == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]


@pytest.mark.parametrize(
    ("rows", "heads", "to", "sentence"),
    [
        (12, 4, "half", "heads=4 must divide the 12 rows of the weight into heads of an even size"),
        (16, 3, "half", "heads=3 must divide the 16 rows"),
        (16, 0, "half", "heads=0 must divide the 16 rows"),
        (16, 4, "neox", "to=neox must be one of half, interleaved"),
    ],
)
def test_impossible_permutations_are_refused(rows, heads, to, sentence):
    with pytest.raises(ValueError, match=sentence):
        permute_layout(torch.zeros(rows, 3), heads, to)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Bounded(16, longest=0), "longest=0 must be at least 1"),
        (lambda: Xpos(16, gamma=0.0), "gamma=0.0 must be a positive number"),
        (lambda: Xpos(16, scale_base=-1.0), "scale_base=-1.0 must be a positive number"),
        (lambda: Xpos(16, scale_base=float("inf")), "scale_base=inf must be a positive number"),
        (lambda: Truncated(16, kept=1.1), "kept=1.1 must be at least 0 and at most 1"),
        (lambda: Polar(0, 16), "heads=0 must be at least 1"),
        (lambda: Xpos(15), "head_dim=15 .* even number"),
        (lambda: NopeHybrid(16, every=1), "every=1 must be at least 2"),
    ],
)
def test_impossible_settings_of_the_variants_are_refused(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()


def test_a_fraction_is_rounded_to_the_nearest_number_of_channels():
    assert Rotary(32, fraction=0.3).rotated == 10  # of 9.6


@pytest.mark.parametrize("scheme", [Rotary(8), Xpos(8)])
def test_positions_that_would_broadcast_and_heads_of_another_size_are_refused(scheme):
    q = torch.zeros(2, 2, 4, 8)
    for positions, shape in ((torch.arange(4).expand(2, 4), r"\(2, 4\)"), (torch.tensor([7]), r"\(1,\)")):
        with pytest.raises(ValueError, match=rf"^positions must be \(4,\), the same for the whole batch, not {shape}$"):
            scheme.rotate(q, q, positions)
    for sizes in ((16, 8), (8, 16)):
        with pytest.raises(ValueError, match="^heads must have 8 channels, not {} and {}$".format(*sizes)):
            scheme.rotate(*(torch.zeros(2, 2, 4, size) for size in sizes), torch.arange(4))
