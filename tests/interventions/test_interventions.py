import json
import math

import pytest
import torch

from posenc.interventions import (
    EncodingInQK,
    FollowingAmplitude,
    Intervention,
    KeyShift,
    OffsetBias,
    OffsetMask,
    OnlyLayers,
    Smear,
)
from posenc.model import Transformer
from posenc.positions import T5, Alibi, Forgetting, Learned, NopeHybrid, PositionScheme, Rotary, Sinusoidal
from tests.conftest import train_here

HEADS, WIDTH, T = 2, 16, 12
TOKENS = torch.randint(0, 50, (2, T), generator=torch.Generator().manual_seed(3))

EVERY = {
    "bias": lambda scheme: OffsetBias(scheme, HEADS, [1], 6.0, in_heads=1),
    "mask": lambda scheme: OffsetMask(scheme, HEADS, [1]),
    "smear": Smear,
    "key shift": KeyShift,
    "layers": lambda scheme: OnlyLayers(scheme, [0]),
    "in q and k": lambda scheme: EncodingInQK(scheme, WIDTH // HEADS),
}


def model(scheme, layers=2):
    made = Transformer(50, T, layers, WIDTH, HEADS, scheme)
    with torch.no_grad():  # at 0.02 no logit differs by much
        for name, weight in made.named_parameters():
            if name.endswith("qkv.weight"):
                weight.mul_(20)
    return made


def probs(scheme):
    """Attention probabilities of every layer, (B, H, T, T) each."""
    with torch.no_grad():
        return list(model(scheme).attention_probs(TOKENS))


def previous(of):
    """The mean probability of the token before, by head."""
    return of.diagonal(offset=-1, dim1=-2, dim2=-1).mean((0, -1))


@pytest.mark.parametrize("scheme", [Rotary(8), Sinusoidal(WIDTH), Alibi(HEADS), PositionScheme()], ids=type)
def test_an_intervention_that_does_nothing_changes_nothing(scheme):
    assert torch.equal(model(Intervention(scheme))(TOKENS), model(scheme)(TOKENS))


@pytest.mark.parametrize("around", EVERY.values(), ids=EVERY)
def test_the_trunk_is_bit_equal_with_and_without_it(around):
    trunk = {name: value for name, value in model(Rotary(8)).named_parameters() if not name.startswith("scheme.")}
    intervened = dict(model(around(Rotary(8))).named_parameters())
    assert all(torch.equal(value, intervened[name]) for name, value in trunk.items())


@pytest.mark.parametrize("around", EVERY.values(), ids=EVERY)
def test_no_token_sees_what_comes_after_it(around):
    later = TOKENS.clone()
    later[:, -1] = (later[:, -1] + 1) % 50
    changed = model(around(Rotary(8)))
    torch.testing.assert_close(changed(TOKENS)[:, :-1], changed(later)[:, :-1])


def test_a_bias_on_the_token_before_makes_a_previous_token_head_of_the_first_head_only():
    plain, biased = (
        previous(probs(PositionScheme())[0]),
        previous(probs(OffsetBias(PositionScheme(), HEADS, [1], 6.0, in_heads=1))[0]),
    )
    assert plain[0] < 0.2
    assert biased[0] > 0.6
    assert biased[1] == plain[1]


def test_the_bias_multiplies_the_odds_by_its_exponential():
    plain, biased = (
        next(iter(of)) for of in (probs(PositionScheme()), probs(OffsetBias(PositionScheme(), HEADS, [3], 2.0)))
    )
    odds = [p[0, 0, 7, 4] / p[0, 0, 7, 5] for p in (plain, biased)]
    assert odds[1] / odds[0] == pytest.approx(math.exp(2.0), rel=1e-4)


def test_a_masked_offset_is_never_attended_to_and_the_others_share_it():
    for masked in probs(OffsetMask(Rotary(8), HEADS, [1, 2])):
        assert previous(masked).max() == 0
        torch.testing.assert_close(masked.sum(-1), torch.ones(masked.shape[:-1]))


def test_an_offset_is_masked_beside_a_bias_that_depends_on_the_tokens():
    masked = probs(OffsetMask(Forgetting(WIDTH, HEADS, 2), HEADS, [1]))[0]
    assert previous(masked).eq(0).all()
    torch.testing.assert_close(masked.sum(-1), torch.ones(2, HEADS, T))


def test_an_intervention_acts_from_its_first_step_to_its_last():
    scheme = OffsetMask(PositionScheme(), HEADS, [1], start=100, stop=200)
    acts = []
    for step in (0, 99, 100, 199, 200):
        scheme.at_step(step)
        acts.append(previous(probs(scheme)[0]).max().item() == 0)
    assert acts == [False, False, True, True, False]


def test_an_intervention_on_some_layers_leaves_the_others():
    first, second = probs(OffsetMask(PositionScheme(), HEADS, [1], in_layers=[1]))
    assert previous(first).min() > 0
    assert previous(second).max() == 0


def test_only_layers_is_rope_where_it_stays_and_none_elsewhere():
    all_layers, none = model(OnlyLayers(Rotary(8), [0, 1])), model(OnlyLayers(Rotary(8), [7]))
    torch.testing.assert_close(all_layers(TOKENS), model(Rotary(8))(TOKENS))
    torch.testing.assert_close(none(TOKENS), model(PositionScheme())(TOKENS))


def test_what_only_other_layers_use_is_not_trained():
    """DDP waits for the gradient of every parameter that is."""
    made = model(OnlyLayers(Forgetting(WIDTH, HEADS, 3), [0, 2]), layers=3)
    made(TOKENS).sum().backward()
    trained = {name for name, weight in made.scheme.named_parameters() if weight.requires_grad}
    assert trained == {name for name, weight in made.scheme.named_parameters() if weight.grad is not None}
    assert {name.split(".")[-2] for name in trained} == {"0", "2"}
    assert all(weight.requires_grad for weight in OnlyLayers(T5(HEADS), [0]).parameters())


def test_layers_with_the_same_intervention_share_one_bias():
    calls = []

    class Counted(Alibi):
        def bias(self, positions):
            calls.append(positions)
            return super().bias(positions)

    made = model(OffsetMask(Counted(HEADS), HEADS, [1]), layers=3)
    calls.clear()  # the constructor tries it on one token
    made(TOKENS)
    assert len(calls) == 1


def test_a_shifted_key_has_its_last_channels_from_the_token_before():
    q = k = torch.randn(2, HEADS, 5, 8)
    placed_q, placed_k = KeyShift(PositionScheme(), 0.25).layer(0).rotate(q, k, torch.arange(5))
    assert torch.equal(placed_q, q)
    assert torch.equal(placed_k[..., :6], k[..., :6])
    assert torch.equal(placed_k[..., 1:, 6:], k[..., :-1, 6:])
    assert placed_k[..., 0, 6:].abs().max() == 0


@pytest.mark.parametrize("size", [0.02, 0.07, 1.0])
def test_the_amplitude_follows_the_tokens(size):
    x = size * torch.randn(2, 5, WIDTH)
    added = FollowingAmplitude(Sinusoidal(WIDTH), 1.5).embed(x, torch.arange(5)) - x
    torch.testing.assert_close(added.square().mean(-1), 1.5**2 * x.square().mean(-1))


def test_the_amplitude_follows_the_tokens_as_the_wrapped_scheme_multiplies_and_smears_them():
    x, positions = 0.02 * torch.randn(2, 5, WIDTH), torch.arange(5)
    times_4 = FollowingAmplitude(Sinusoidal(WIDTH, tokens="sqrt_width")).embed(x, positions)
    torch.testing.assert_close(times_4, FollowingAmplitude(Sinusoidal(WIDTH)).embed(4 * x, positions))
    smeared = FollowingAmplitude(Smear(Sinusoidal(WIDTH))).embed(x, positions)
    shifted = Smear(PositionScheme()).embed(x, positions)
    torch.testing.assert_close(smeared, FollowingAmplitude(Sinusoidal(WIDTH)).embed(shifted, positions))


def test_two_interventions_go_together():
    both = OffsetMask(OffsetBias(PositionScheme(), HEADS, [1], 3.0), HEADS, [2])
    first = probs(both)[0]
    assert first.diagonal(offset=-2, dim1=-2, dim2=-1).max() == 0
    assert previous(first)[0] > previous(probs(PositionScheme())[0])[0]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: OffsetBias(PositionScheme(), 2, [], 1.0), r"offsets=\[\] must be"),
        (lambda: OffsetBias(PositionScheme(), 2, [0], 1.0), r"offsets=\[0\] must be"),
        (
            lambda: OffsetBias(PositionScheme(), 2, [1], 1.0, in_heads=3),
            "in_heads=3 must be at most the model's 2 heads",
        ),
        (lambda: OffsetMask(PositionScheme(), 2, [1], start=5, stop=4), "start=5 must not be after stop=4"),
        (lambda: OnlyLayers(PositionScheme(), []), r"in_layers=\[\] must be"),
        (lambda: OnlyLayers(Sinusoidal(WIDTH), [0]), "such as pos=rope: Sinusoidal adds to the embeddings"),
        (lambda: OnlyLayers(Learned(1, WIDTH), [0]), "Learned adds to the embeddings"),
        (lambda: OnlyLayers(FollowingAmplitude(Sinusoidal(WIDTH)), [0]), "FollowingAmplitude adds to the embeddings"),
        (lambda: OnlyLayers(Smear(Rotary(8)), [0]), "Smear adds to the embeddings"),
        (lambda: OnlyLayers(PositionScheme(), [0]), r"in_layers=\[0\] must be layers with positions"),
        (lambda: OnlyLayers(NopeHybrid(8), [2, 3]), r"in_layers=\[2, 3\] must be layers with positions: \[3\] has"),
        (lambda: OnlyLayers(Forgetting(WIDTH, HEADS, 2), [2]), r"in_layers=\[2\] must be layers of the model"),
        (lambda: FollowingAmplitude(Rotary(8)), "additive scheme, such as pos=sinusoidal: Rotary is not"),
        (lambda: FollowingAmplitude(Smear(Learned(8, WIDTH, "learned"))), "use another pos.scale than learned"),
    ],
)
def test_impossible_values_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_run_begins_and_ends_an_intervention_at_its_steps(tmp_path):
    def loss(name, *given):
        run = train_here(tmp_path / name, "steps=10", "pos=none", "intervention=offset_bias", *given)
        return json.loads((run / "summary.json").read_text())["val_loss"]

    always = loss("always")
    never, half = (loss(f"until-{step}", f"intervention.stop={step}") for step in (0, 5))
    assert len({always, never, half}) == 3


def test_an_encoding_in_queries_and_keys_reaches_as_far_as_both_tables():
    assert EncodingInQK(PositionScheme(), 8).max_length == 2**20
    assert EncodingInQK(Learned(T, WIDTH), 8).max_length == T
