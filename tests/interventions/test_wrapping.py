"""What an intervention passes on to the scheme that it wraps, and where it acts."""

import pytest
import torch
from torch import Tensor

from posenc.interventions import EncodingInQK, FollowingAmplitude, Intervention, KeyShift, OffsetBias, OffsetMask, Smear
from posenc.positions import Alibi, Forgetting, Learned, NopeHybrid, Polar, PositionScheme, Rotary, Sinusoidal, Xpos

HEADS, WIDTH, DIM, T = 2, 16, 8, 6
POSITIONS = torch.arange(T)
Q, K = torch.randn(2, 1, HEADS, T, DIM, generator=torch.Generator().manual_seed(0))
X = torch.randn(1, T, WIDTH, generator=torch.Generator().manual_seed(1))


def shifted(k: Tensor, kept: int) -> Tensor:
    """Keys whose channels from `kept` on are those of the token before, 0 for the first."""
    moved = k.clone()
    moved[..., 1:, kept:], moved[..., 0, kept:] = k[..., :-1, kept:], 0
    return moved


def test_a_limit_of_the_scheme_is_one_of_the_intervention():
    assert OffsetMask(Learned(T, WIDTH), HEADS, [1]).max_length == T
    assert OffsetMask(Forgetting(WIDTH, HEADS, 1), HEADS, [1]).causal_only
    assert not OffsetMask(Rotary(DIM), HEADS, [1]).causal_only


def test_linear_attention_is_refused_by_what_is_no_rotation_whether_scheme_or_intervention():
    assert OffsetMask(Rotary(DIM), HEADS, [1]).rotates
    assert not OffsetMask(Xpos(DIM), HEADS, [1]).rotates
    assert not OffsetMask(Polar(HEADS, DIM), HEADS, [1]).rotates
    assert not KeyShift(Rotary(DIM)).rotates
    assert not EncodingInQK(Rotary(DIM), DIM).rotates


def test_a_step_reaches_every_intervention_of_a_chain():
    inner = OffsetBias(PositionScheme(), HEADS, [1], 6.0, stop=3)
    outer = OffsetMask(Smear(inner), HEADS, [2], start=2)
    assert (bool(inner.active), bool(outer.active)) == (True, False)
    outer.at_step(3)
    assert (bool(inner.active), bool(outer.active)) == (False, True)


def test_an_intervention_may_stop_at_the_step_at_which_it_starts():
    never = OffsetBias(PositionScheme(), HEADS, [1], 6.0, start=2, stop=2)
    never.at_step(2)
    assert not never.active


def test_a_seed_determines_the_weights_of_the_wrapped_scheme():
    schemes = [Intervention(Learned(T, WIDTH)) for _ in range(2)]
    for scheme in schemes:
        scheme.initialise(torch.Generator().manual_seed(5))
    first, second = (next(scheme.parameters()) for scheme in schemes)
    assert torch.equal(first, second)


def test_a_bias_that_depends_on_the_tokens_is_passed_on():
    scheme = Forgetting(WIDTH, HEADS, 1)
    wrapped = Intervention(scheme).layer(0).content_bias(X, Q, K, POSITIONS)
    assert wrapped is not None
    assert torch.equal(wrapped, scheme.layer(0).content_bias(X, Q, K, POSITIONS))


def test_the_parameters_of_a_layer_are_those_that_the_scheme_has_there():
    scheme = Forgetting(WIDTH, HEADS, 2)
    assert [*map(id, Intervention(scheme).layer(1).parameters())] == [*map(id, scheme.layer(1).parameters())]
    assert [*Intervention(NopeHybrid(DIM)).layer(3).parameters()] == []


def test_a_bias_at_an_offset_is_added_to_that_of_the_scheme():
    alibi = Alibi(HEADS).bias(POSITIONS)
    biased = OffsetBias(Alibi(HEADS), HEADS, [2], 5.0).layer(0).bias(POSITIONS)
    assert biased is not None
    assert torch.equal(biased - alibi, 5.0 * torch.eye(T).roll(2, 0).tril().expand(HEADS, T, T))


def test_keys_are_shifted_before_they_are_rotated():
    _, k = KeyShift(Rotary(DIM)).layer(0).rotate(Q, K, POSITIONS)
    torch.testing.assert_close(k, Rotary(DIM).rotate(Q, shifted(K, DIM // 2), POSITIONS)[1])


def test_a_fraction_of_the_channels_is_rounded_to_the_nearest_number():
    for fraction, channels in ((0.7, 6), (0.3, 2)):  # of 5.6 and of 2.4
        _, k = KeyShift(PositionScheme(), fraction).layer(0).rotate(Q, K, POSITIONS)
        assert torch.equal(k, shifted(K, DIM - channels))


def test_at_least_one_channel_of_a_key_is_shifted():
    _, k = KeyShift(PositionScheme(), fraction=0.01).layer(0).rotate(Q, K, POSITIONS)
    assert torch.equal(k, shifted(K, DIM - 1))


@pytest.mark.parametrize("base", [100.0, 10_000.0])
def test_sines_of_the_given_base_are_added_to_queries_and_keys_before_the_rotation(base):
    added = Sinusoidal(DIM, base, 0.5).encoding(POSITIONS)
    q, k = EncodingInQK(PositionScheme(), DIM, scale=0.5, base=base).layer(0).rotate(Q, K, POSITIONS)
    torch.testing.assert_close((q, k), (Q + added, K + added))
    rotated = EncodingInQK(Rotary(DIM), DIM, scale=0.5, base=base).layer(0).rotate(Q, K, POSITIONS)
    torch.testing.assert_close(rotated, Rotary(DIM).rotate(Q + added, K + added, POSITIONS))


def test_an_amplitude_that_follows_the_tokens_has_no_gradient_of_its_own():
    x = X.clone().requires_grad_()
    FollowingAmplitude(Sinusoidal(WIDTH)).embed(x, POSITIONS).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.ones_like(X))


def test_what_an_amplitude_that_follows_the_tokens_adds_is_no_encoding_of_positions_alone():
    scheme: PositionScheme = FollowingAmplitude(Sinusoidal(WIDTH))
    assert scheme.encoding(POSITIONS) is None


def test_smeared_embeddings_are_multiplied_as_the_scheme_multiplies_tokens():
    smeared = Smear(Sinusoidal(WIDTH, tokens=3.0), share=0.5).embed(X, POSITIONS)
    before = torch.cat([torch.zeros(1, 1, WIDTH), X[:, :-1]], dim=1)
    torch.testing.assert_close(smeared, 3 * (X + 0.5 * before) + Sinusoidal(WIDTH).encoding(POSITIONS))


@pytest.mark.parametrize("hook", ["rotate", "bias", "content_bias", "rotate_around", "bias_around"])
def test_a_hook_of_attention_that_an_intervention_would_override_in_vain_is_refused(hook):
    with pytest.raises(TypeError, match=f"^Mine.{hook} would never be called: override layer_rotate, layer_bias or"):
        type("Mine", (Intervention,), {hook: lambda *_: None})
