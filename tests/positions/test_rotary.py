"""Rotary position embedding is the mathematics of the paper, whatever the layout and the positions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from posenc.positions import Rotary

LAYOUTS = ("half", "interleaved")
layouts = st.sampled_from(LAYOUTS)
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


@given(offsets, layouts, st.sampled_from([0.25, 0.5, 1.0]))
def test_rotation_preserves_norms(position, layout, fraction):
    x = randn(32)
    assert turn(x, position, layout=layout, fraction=fraction).norm() == pytest.approx(x.norm().item(), abs=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_position_zero_is_the_identity(layout):
    assert torch.equal(turn(randn(32), 0, layout=layout), randn(32))


@given(offsets, offsets, st.integers(0, 100_000), layouts)
def test_scores_depend_on_the_offset_alone(m, n, shift, layout):
    q, k = randn(32, seed=1), randn(32, seed=2)
    here = turn(q, m, layout=layout) @ turn(k, n, layout=layout)
    there = turn(q, m + shift, layout=layout) @ turn(k, n + shift, layout=layout)
    assert here.item() == pytest.approx(there.item(), abs=1e-4)


@given(st.integers(0, 10**6))
def test_interleaved_is_the_block_diagonal_matrix_of_the_paper(position):
    x = randn(16)
    expected = block_diagonal(position, 16) @ x.double()
    assert (turn(x, position, layout="interleaved") - expected).abs().max() < 1e-6


@given(st.integers(0, 10**6))
def test_interleaved_is_the_complex_product_of_the_paper(position):
    x = randn(16)
    theta = 10_000.0 ** (-torch.arange(8).double() / 8)
    product = torch.view_as_complex(x.double().view(8, 2)) * torch.polar(torch.ones_like(theta), position * theta)
    assert (turn(x, position, layout="interleaved") - torch.view_as_real(product).flatten()).abs().max() < 1e-6


@given(offsets, offsets)
def test_scores_are_the_real_part_of_the_complex_form(m, n):
    q, k = randn(16, seed=3), randn(16, seed=4)
    theta = 10_000.0 ** (-torch.arange(8).double() / 8)
    complex_q, complex_k = (torch.view_as_complex(x.double().view(8, 2)) for x in (q, k))
    expected = (complex_q * complex_k.conj() * torch.exp(1j * (m - n) * theta)).sum().real
    score = turn(q, m, layout="interleaved") @ turn(k, n, layout="interleaved")
    assert score.item() == pytest.approx(expected.item(), abs=2e-5)


@given(offsets)
def test_the_layouts_differ_by_a_permutation_of_the_channels(position):
    x = randn(16)
    order = torch.arange(16).view(8, 2).T.flatten()  # 0 2 4 .. 1 3 5 ..
    half = turn(x[order], position, layout="half")
    assert torch.equal(half, turn(x, position, layout="interleaved")[order])


def test_rotations_compose():
    once = block_diagonal(3, 8).T @ block_diagonal(10, 8)
    assert torch.allclose(once, block_diagonal(7, 8))
    x = randn(8)
    assert torch.allclose(turn(turn(x, 3), 4), turn(x, 7), atol=1e-6)


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


def test_half_precision_vectors_are_turned_in_float32():
    x = randn(1, 1, 8, 16).bfloat16()
    turned, _ = Rotary(16).rotate(x, x, torch.arange(8))
    exact, _ = Rotary(16).rotate(x.float(), x.float(), torch.arange(8))
    assert torch.equal(turned, exact.bfloat16())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"head_dim": 31}, "head_dim=31 .* even number"),
        ({"head_dim": 0}, "head_dim=0 .* even number"),
        ({"head_dim": 32, "fraction": 0.1}, "turns 3 channels"),
        ({"head_dim": 32, "fraction": 1.5}, "fraction=1.5 must be above 0 and at most 1"),
        ({"head_dim": 32, "base": -1.0}, "base=-1.0 must be a positive number"),
        ({"head_dim": 32, "layout": "neox"}, "layout=neox must be one of half, interleaved"),
    ],
)
def test_impossible_settings_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Rotary(**settings)
