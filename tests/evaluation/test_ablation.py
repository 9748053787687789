"""What a trained model loses without one offset, or one head."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from posenc.data.tokens import Tokens
from posenc.errors import UserError
from posenc.evaluation import ablation
from posenc.evaluation.ablation import OFFSETS, copying_without_heads, losses_without, without_head
from posenc.evaluation.copying import copying
from posenc.evaluation.losses import own_validation_loss
from posenc.interventions import OffsetBias
from posenc.model.attention import PositionContext
from posenc.model.linear_attention import Linear
from posenc.objectives.objective import Masked
from posenc.positions import Alibi, PositionScheme, Rotary
from tests.evaluation.random_model import HEADS, trained

TOKENS = Tokens(np.random.default_rng(0).integers(0, 256, 3000).astype(np.uint8), "made up")


@pytest.mark.parametrize("scheme", [PositionScheme, lambda: Rotary(8), lambda: Alibi(HEADS)])
def test_each_offset_is_masked_alone_and_the_model_is_afterwards_what_it_was(scheme):
    one = trained(scheme())
    whole = own_validation_loss(one, TOKENS)
    losses = losses_without(one, TOKENS)
    assert losses.keys() == {0, *OFFSETS}
    assert losses[0] == whole == own_validation_loss(one, TOKENS)
    assert len({losses[0], losses[1], losses[2]}) == 3
    assert losses[17] == pytest.approx(losses[0], abs=1e-6)  # no window is as long


def test_a_model_whose_heads_look_at_the_previous_token_alone_needs_it_and_no_other():
    one = trained(OffsetBias(PositionScheme(), HEADS, [1], strength=200.0))
    losses = losses_without(one, TOKENS)
    assert losses[2] == pytest.approx(losses[0], abs=1e-5)
    assert abs(losses[1] - losses[0]) > 1e-2
    with torch.no_grad():
        (probs,) = one.model.attention_probs(torch.arange(8)[None])
    assert probs.diagonal(-1, 2, 3).min() > 0.999


def test_linear_attention_and_masked_models_are_refused():
    linear, masked = trained(PositionScheme()), trained(PositionScheme())
    block: Any = linear.model.blocks[0]
    block.attention.op = Linear(8)
    for one in (linear, replace(masked, objective=Masked(256))):
        with pytest.raises(UserError, match="only causal models with softmax attention"):
            losses_without(one, TOKENS)


def test_attention_is_the_sum_of_its_heads_of_which_one_at_a_time_is_removed():
    one = trained(Rotary(8))
    block: Any = one.model.blocks[0]
    x = torch.randn(2, 6, 16)
    context = PositionContext(Rotary(8), torch.arange(6), None)
    with torch.no_grad():
        whole = block.attention(x, context)
        with without_head(block.attention, 0):
            first = block.attention(x, context)
        with without_head(block.attention, 1):
            second = block.attention(x, context)
    assert not torch.allclose(first, second)
    assert torch.allclose(first + second, whole, rtol=1e-4, atol=1e-4)


def test_each_head_is_removed_alone_and_the_model_is_afterwards_what_it_was():
    few = Tokens(TOKENS.ids % 4, "few letters")  # so that some contexts are repeated
    one = trained(Rotary(8))
    whole = copying(one, few)
    found = {(layer, head): tuple(rest) for layer, head, *rest in copying_without_heads(one, few)}
    assert list(found) == [(0, 0), (1, 1), (1, 2)]
    assert found[0, 0] == (whole.first, whole.second, whole.new, whole.seen)
    assert copying(one, few) == whole
    assert len(set(found.values())) == 3


def test_heads_are_removed_on_so_many_windows_at_most(monkeypatch):
    one = trained(Rotary(8))
    four = replace(one, config={**one.config, "eval_windows": 4})
    monkeypatch.setattr(ablation, "WINDOWS", 4)
    few = Tokens(TOKENS.ids % 4, "few letters")  # so that some contexts are repeated
    assert copying_without_heads(one, few) == copying_without_heads(four, few)


def test_copying_without_heads_of_a_masked_model_is_refused():
    with pytest.raises(UserError, match="only causal models"):
        copying_without_heads(replace(trained(PositionScheme()), objective=Masked(256)), TOKENS)
