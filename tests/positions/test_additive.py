"""The additive schemes follow their formulas and start at the size of the token embeddings."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.positions import Learned, Sinusoidal


@given(st.integers(0, 10**6), st.sampled_from([2, 8, 64]), st.sampled_from([100.0, 10_000.0]))
def test_the_sinusoid_is_the_formula_of_vaswani(position, width, base):
    encoding = Sinusoidal(width, base=base, scale=1.0).encoding(torch.tensor([position]))[0]
    for i in range(width // 2):
        angle = position / base ** (2 * i / width)
        assert encoding[2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert encoding[2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_matched_additive_schemes_have_the_size_of_the_token_embeddings():
    learned = Learned(256, 128, scale="matched")
    learned.initialise(torch.Generator().manual_seed(0))
    assert learned.table.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for tokens, size in ((1.0, 0.02), (3.0, 0.06)):
        rms = Sinusoidal(128, scale="matched", tokens=tokens).encoding(torch.arange(256)).square().mean().sqrt()
        assert rms.item() == pytest.approx(size, rel=1e-4)


def test_the_learned_table_is_looked_up_by_position():
    scheme = Learned(10, 4)
    placed = scheme.embed(torch.zeros(1, 3, 4), torch.tensor([9, 0, 9]))
    assert torch.equal(placed[0], scheme.table.weight[[9, 0, 9]])


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), "raw"])
def test_a_scale_that_is_not_a_size_is_refused(scale):
    for build in (lambda: Sinusoidal(8, scale=scale), lambda: Learned(8, 8, scale=scale)):
        with pytest.raises(ValueError, match="scale=.* must be 'matched', 'learned' or a positive number"):
            build()


@pytest.mark.parametrize("build", [Sinusoidal, lambda width, scale: Learned(20, width, scale=scale)])
def test_a_learned_scale_is_one_trained_scalar_that_starts_at_one_over_the_root_of_the_width(build):
    scheme, unit = build(16, scale="learned"), build(16, scale=1.0)
    torch.nn.init.constant_(scheme.scale, 5.0)  # as after training
    for one in (scheme, unit):
        one.initialise(torch.Generator().manual_seed(0))
    assert scheme.scale.tolist() == [0.25]
    assert torch.equal(scheme.encoding(torch.arange(20)), 0.25 * unit.encoding(torch.arange(20)))
    scheme.embed(torch.zeros(2, 3, 16), torch.arange(3)).sum().backward()
    assert scheme.scale.grad.item() == pytest.approx(2 * unit.encoding(torch.arange(3)).sum().item(), rel=1e-4)


@pytest.mark.parametrize("tokens", [0.0, -1.0, float("nan"), "sqrt"])
def test_a_multiplier_of_the_tokens_that_is_not_positive_is_refused(tokens):
    with pytest.raises(ValueError, match="tokens=.* must be 'sqrt_width' or a positive number"):
        Sinusoidal(8, tokens=tokens)


@pytest.mark.parametrize(("context", "width"), [(0, 8), (8, 0)])
def test_a_table_without_rows_or_columns_is_refused(context, width):
    with pytest.raises(ValueError, match="=0 must be at least 1"):
        Learned(context, width)
