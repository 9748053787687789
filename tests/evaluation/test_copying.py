"""Whether a trained model copies from its context."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posenc.data.batches import validation_windows
from posenc.data.tokens import Tokens
from posenc.errors import UserError
from posenc.evaluation.copying import at_distances, copying, repeated
from posenc.evaluation.losses import own_validation_loss
from posenc.objectives.objective import Masked
from posenc.positions import PositionScheme, Rotary
from tests.evaluation.random_model import CONTEXT, ByPosition, trained

TOKENS = Tokens(np.random.default_rng(0).integers(0, 256, 3000).astype(np.uint8), "made up")


class Copier(torch.nn.Linear):
    """Predicts the token half a window back with probability 1/2, and every token alike where there is none."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, T) -> logits (B, T, 256)."""
        back = CONTEXT // 2 - 1
        probs = torch.full((*tokens.shape, 256), 1 / 256)
        probs[:, back:] = 0.5 * probs[:, back:] + 0.5 * F.one_hot(tokens[:, : CONTEXT - back].long(), 256)
        return probs.log()


@pytest.mark.parametrize("scheme", [PositionScheme, lambda: Rotary(8)])
def test_a_model_of_random_weights_gains_nothing_from_a_second_reading(scheme):
    found = copying(trained(scheme()), TOKENS)
    assert found.first > 5
    assert found.second == pytest.approx(found.first, rel=0.2)


def test_a_model_that_copies_has_a_lower_loss_at_the_second_reading():
    copier: Any = Copier(1, 1)
    found = copying(replace(trained(PositionScheme()), model=copier), TOKENS)
    assert found.first == pytest.approx(np.log(256))
    assert found.second == pytest.approx(-np.log(0.5 + 0.5 / 256))


def test_other_text_far_back_raises_the_loss_of_a_model_that_copies_and_of_no_bigram_model():
    patterns = np.random.default_rng(0).integers(0, 256, (10, CONTEXT // 2)).astype(np.uint8)
    periodic = Tokens(np.tile(patterns, 3)[:, : CONTEXT + 1].reshape(-1), "each window repeats its own pattern")
    copier: Any = Copier(1, 1)
    found = copying(replace(trained(PositionScheme()), model=copier), periodic)
    assert found.own == pytest.approx(-np.log(0.5 + 0.5 / 256))
    assert found.foreign > found.own + 3
    bigram: Any = torch.nn.Embedding(256, 256)
    found = copying(replace(trained(PositionScheme()), model=bigram), periodic)
    assert found.own == found.foreign


def test_a_model_that_copies_from_one_distance_gains_from_a_copy_there_alone():
    copier: Any = Copier(1, 1)
    losses = at_distances(replace(trained(PositionScheme()), model=copier), TOKENS)
    gained = {distance for distance, loss in losses.items() if loss < losses[0] - 1}
    assert list(losses) == [0, 2, 4, 8, 14]
    assert gained == {CONTEXT // 2}
    assert losses[CONTEXT // 2] == pytest.approx(-np.log(0.5 + 0.5 / 256))


def test_the_second_half_of_either_reading_counts_and_of_a_passage_its_second_half():
    zeros = Tokens(np.zeros(3000, np.uint8), "zeros")
    model: Any = ByPosition(10)
    one = replace(trained(PositionScheme()), model=model)
    found = copying(one, zeros)
    assert found.first == pytest.approx(np.mean([0.5, 0.6, 0.7]))  # of 16 positions 0 to 7 are the first reading
    assert found.second == pytest.approx(np.mean([1.3, 1.4, 1.5]))
    assert list(at_distances(one, zeros).values()) == [pytest.approx(1.6)] * 5


class Looking(torch.nn.Linear):
    """Predicts the token at one position with probability 1/2, and every token alike otherwise."""

    at: int

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, T) -> logits (B, T, 256)."""
        seen = F.one_hot(tokens[:, self.at].long(), 256)[:, None]
        return (0.5 / 256 + 0.5 * seen).log().expand(-1, tokens.shape[1], -1)


@pytest.mark.parametrize(("at", "replaced"), [(0, True), (9, True), (10, False), (11, False)])
def test_an_eighth_of_the_window_before_its_last_quarter_is_its_own_and_what_precedes_it_is_from_afar(at, replaced):
    """Of 16 positions 12 to 15 are the last quarter. The first half of the text has zeros, the second ones."""
    halves = Tokens(np.arange(10 * (CONTEXT + 1), dtype=np.uint8) // (5 * (CONTEXT + 1)), "two halves")
    model: Any = Looking(1, 1)
    model.at = at
    found = copying(replace(trained(PositionScheme()), model=model), halves)
    assert found.own == pytest.approx(-np.log(0.5 + 0.5 / 256))
    assert found.foreign == pytest.approx(-np.log(0.5 / 256) if replaced else found.own)


@pytest.mark.parametrize("measure", [copying, at_distances])
def test_a_context_without_room_for_a_copy_is_refused(measure):
    one = trained(PositionScheme())
    with pytest.raises(UserError, match="context=2 is too short"):
        measure(replace(one, config={**one.config, "context": 2}), TOKENS)


def test_a_single_window_has_no_other_to_take_text_from():
    one = trained(PositionScheme())
    with pytest.raises(UserError, match="has no second window"):
        copying(replace(one, config={**one.config, "eval_windows": 1}), TOKENS)


def test_a_masked_model_is_refused():
    with pytest.raises(UserError, match="only causal models"):
        copying(replace(trained(PositionScheme()), objective=Masked(256)), TOKENS)


def test_a_context_is_repeated_where_its_tokens_have_occurred_before():
    window = torch.tensor([[1, 2, 3, 1, 2, 3, 1], [5, 5, 5, 5, 4, 4, 4]])
    assert repeated(window, 2).tolist() == [
        [False, False, False, False, True, True, True],
        [False, False, True, True, False, False, True],
    ]
    assert repeated(window, 3)[0].tolist() == [False] * 5 + [True] * 2


def test_the_losses_on_new_and_repeated_contexts_make_up_the_validation_loss():
    few = Tokens(TOKENS.ids[:3000] % 4, "few letters")
    one = trained(Rotary(8))
    found = copying(one, few)
    assert found.share == repeated(validation_windows(few, 10, CONTEXT + 1)[:, :-1], 3).double().mean() > 0
    whole = found.share * found.seen + (1 - found.share) * found.new
    assert whole == pytest.approx(own_validation_loss(one, few), rel=1e-6)
