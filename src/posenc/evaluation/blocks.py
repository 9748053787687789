"""The loss of a trained model on a whole split, block by block."""

import torch

from posenc.data.batches import validation_windows
from posenc.data.tokens import Tokens
from posenc.errors import UserError
from posenc.evaluation.load import Trained
from posenc.evaluation.losses import token_losses

BLOCKS = 64
"""Blocks of a split: long ones, since neighbouring windows are often of one article. On 5 MB of Wikipedia, the standard
error of a difference over single windows is less than half of that over blocks of 256, from where on it hardly rises.
"""


def block_losses(trained: Trained, tokens: Tokens) -> list[float]:
    """Mean loss of each of BLOCKS blocks of consecutive windows, nats per token, in the precision of training.

    The windows do not overlap, and are all that fit into the text.

    Raises:
        UserError: if the model is not causal, or the text has fewer windows than blocks.
    """
    trained.require_causal("without random masks")
    window = trained.config["context"] + trained.objective.lookahead
    count = len(tokens) // window
    if count < BLOCKS:
        raise UserError(f"its text has {count} windows, fewer than {BLOCKS}")
    windows = validation_windows(tokens, count, window)
    device = next(trained.model.parameters()).device.type
    with torch.autocast(device, torch.bfloat16, enabled=trained.config.get("precision") == "bf16-mixed"):
        losses = torch.cat([nats.mean(1) for nats, _ in token_losses(trained, windows)])
    return [float(block.mean()) for block in losses.tensor_split(BLOCKS)]
