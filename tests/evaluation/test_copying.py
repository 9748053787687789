"""Whether a trained model copies from its context."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from posenc.data.cache import Tokens
from posenc.errors import UserError
from posenc.evaluation.copying import losses_on_repeats
from posenc.objectives.objective import Masked
from posenc.positions import PositionScheme, Rotary
from tests.evaluation.random_model import CONTEXT, trained

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
    first, second = losses_on_repeats(trained(scheme()), TOKENS)
    assert first > 5
    assert second == pytest.approx(first, rel=0.2)


def test_a_model_that_copies_has_a_lower_loss_at_the_second_reading():
    copier: Any = Copier(1, 1)
    first, second = losses_on_repeats(replace(trained(PositionScheme()), model=copier), TOKENS)
    assert first == pytest.approx(np.log(256))
    assert second == pytest.approx(-np.log(0.5 + 0.5 / 256))


def test_a_masked_model_is_refused():
    with pytest.raises(UserError, match="only causal models"):
        losses_on_repeats(replace(trained(PositionScheme()), objective=Masked(256)), TOKENS)
