"""What is measured in the attention."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from posenc.model import Transformer
from posenc.model.attention import PositionContext
from posenc.positions import PositionScheme, Rotary, Sinusoidal
from posenc.training.attention_probe import BUCKETS, LONGEST, AttentionProbe, induction_score, shares_by_distance

T = 96


def looking_back(distance: int) -> torch.Tensor:
    """One head whose every token looks `distance` tokens back, (1, 1, T, T)."""
    place = (torch.arange(T) - distance).clamp(min=0)
    return F.one_hot(place, T).float()[None, None]


@pytest.mark.parametrize(
    ("distance", "bucket"),
    [
        (0, "0"),
        (1, "1"),
        (2, "2"),
        (3, "3-4"),
        (4, "3-4"),
        (5, "5-8"),
        (8, "5-8"),
        (9, "9-32"),
        (32, "9-32"),
        (33, "33+"),
    ],
)
def test_all_attention_at_one_distance_falls_in_its_bucket(distance, bucket):
    shares = dict(zip(BUCKETS, shares_by_distance(looking_back(distance))[0].tolist(), strict=True))
    assert shares.pop(bucket) == pytest.approx(1)
    assert all(share == 0 for share in shares.values())


def test_what_looks_ahead_is_in_no_bucket():
    weights = torch.full((1, 2, T, T), 1 / T)
    ahead = shares_by_distance(weights).sum(1)
    assert torch.allclose(ahead, torch.tensor(0.75), atol=0.01)  # the second half sees three quarters behind it


def test_the_shares_of_a_long_sequence_sum_to_one():
    weights = torch.ones(2048, 2048).tril()
    shares = shares_by_distance((weights / weights.sum(-1, keepdim=True))[None, None])
    assert shares.sum().item() == pytest.approx(1, abs=1e-5)


def test_even_attention_gives_the_previous_token_its_even_share():
    weights = torch.ones(T, T).tril()
    weights = (weights / weights.sum(-1, keepdim=True))[None, None]
    assert shares_by_distance(weights)[0, 1] == pytest.approx(sum(1 / n for n in range(T // 2 + 1, T + 1)) / (T / 2))


def test_a_head_that_copies_has_an_induction_score_of_one_and_others_of_none():
    """In a sequence of twice the same T/2 tokens, what followed the same token lies T/2 - 1 back."""
    assert induction_score(looking_back(T // 2 - 1)).item() == 1
    assert induction_score(looking_back(T // 2)).item() == 0
    assert induction_score(looking_back(1)).item() == 0


@pytest.mark.parametrize("scheme", [PositionScheme(), Rotary(16), Sinusoidal(32)], ids=["none", "rope", "sinusoidal"])
def test_attention_probs_are_those_the_model_attends_with(scheme):
    """Mixing the values with them by hand gives what the attention gives."""
    torch.manual_seed(0)
    model = Transformer(50, 24, 1, 32, 2, scheme)
    tokens = torch.randint(50, (3, 24))
    (weights,) = model.attention_probs(tokens)
    assert torch.allclose(weights.sum(-1), torch.ones(3, 2, 24))
    assert torch.equal(weights, weights.tril())
    positions = torch.arange(24)
    block: Any = model.blocks[0]
    attention = block.attention
    x = block.attention_norm(scheme.embed(model.embedding(tokens), positions))
    values = attention.qkv(x)[..., 64:].unflatten(-1, (2, 16)).transpose(1, 2)
    mixed = attention.out((weights @ values).transpose(1, 2).flatten(-2))
    assert torch.allclose(mixed, attention(x, PositionContext(scheme, positions, None)), atol=1e-6)


def test_the_sequences_are_drawn_from_the_text_s_own_tokens_and_repeat():
    windows = torch.randint(10, 20, (8, 33), generator=torch.Generator().manual_seed(1))
    heads = AttentionProbe(windows, 32)
    assert set(heads.repeated.unique().tolist()) <= set(range(10, 20))
    assert torch.equal(heads.repeated[:, :16], heads.repeated[:, 16:])
    assert torch.equal(heads.repeated, AttentionProbe(windows, 32).repeated)


def test_every_head_of_every_layer_has_a_row():
    windows = torch.randint(50, (8, 25))
    rows = AttentionProbe(windows, 24).measure(Transformer(50, 24, 3, 32, 2, Rotary(16)))
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in range(3) for head in range(2)]
    assert all(sum(row[bucket] for bucket in BUCKETS) == pytest.approx(1, abs=1e-3) for row in rows)


def test_measuring_changes_no_state():
    model = Transformer(50, 24, 2, 32, 2, Rotary(16))
    before = torch.get_rng_state()
    AttentionProbe(torch.randint(50, (8, 25), generator=torch.Generator()), 24).measure(model)
    assert torch.equal(before, torch.get_rng_state())
    assert all(weight.grad is None for weight in model.parameters())


def test_long_sequences_are_cut_before_their_attention_probabilities_fill_the_memory():
    windows = torch.arange(5 * 3000).reshape(5, 3000)
    probe = AttentionProbe(windows, 3000)
    assert probe.text.equal(windows[[0, 4], :LONGEST])
    assert probe.repeated.shape == (2, LONGEST)
