"""The losses on the blocks of a validation split."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from posenc.data.tokens import Tokens
from posenc.errors import UserError
from posenc.evaluation.blocks import BLOCKS, block_losses
from posenc.evaluation.losses import token_losses
from posenc.objectives.objective import Masked
from posenc.positions import PositionScheme, Rotary
from tests.evaluation.random_model import CONTEXT, trained

WINDOW = CONTEXT + 1
IDS = np.random.default_rng(0).integers(0, 256, (3 * BLOCKS + 5) * WINDOW).astype(np.uint8)
TOKENS = Tokens(IDS, "made up")


def test_the_blocks_are_consecutive_windows_and_no_window_is_left_out():
    one = trained(Rotary(8))
    windows = torch.from_numpy(IDS.astype(np.int64)).view(-1, WINDOW)
    losses = np.concatenate([nats.mean(1).numpy() for nats, _ in token_losses(one, windows)])
    means = [block.mean() for block in np.array_split(losses, BLOCKS)]
    assert block_losses(one, TOKENS) == pytest.approx(means)
    assert np.std(means) > 0.01


def test_the_losses_are_those_in_the_precision_of_training():
    one = trained(Rotary(8))
    mixed = replace(one, config={**one.config, "precision": "bf16-mixed"})
    in_full, in_bf16 = block_losses(one, TOKENS), block_losses(mixed, TOKENS)
    assert in_bf16 == pytest.approx(in_full, rel=0.02)
    assert in_bf16 != pytest.approx(in_full, rel=1e-6)


def test_a_split_of_too_few_windows_and_a_masked_model_are_refused():
    one = trained(PositionScheme())
    with pytest.raises(UserError, match="has 63 windows, fewer than 64"):
        block_losses(one, Tokens(IDS[: BLOCKS * WINDOW - 1], "short"))
    with pytest.raises(UserError, match="only causal models"):
        block_losses(replace(one, objective=Masked(256)), TOKENS)
