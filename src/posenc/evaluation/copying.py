"""Copying from the context: the loss of a trained model on text that it has read before in the same window.

A model with induction heads (Olsson et al. 2022) predicts a text better when it reads it again.
"""

import torch

from posenc.data.batches import validation_windows
from posenc.data.cache import Tokens
from posenc.errors import UserError
from posenc.evaluation.load import Trained
from posenc.evaluation.longer_windows import losses_by_position


def losses_on_repeats(trained: Trained, tokens: Tokens) -> tuple[float, float]:
    """Nats per token on the same text, read for the first and for the second time in a window of the training length.

    The windows are the first halves of the run's validation windows, each twice. Only the second half of either reading
    counts, so that both have some context.

    Raises:
        UserError: if the model is not causal.
    """
    if not trained.objective.likelihood:
        raise UserError("only causal models can be evaluated on repeated text")
    half = trained.config["context"] // 2
    text = validation_windows(tokens, trained.config["eval_windows"], half)
    losses, _ = losses_by_position(trained, torch.cat([text, text, text[:, :1]], dim=1))
    first, second = losses[:half], losses[half:]
    return float(first[half // 2 : -1].mean()), float(second[half // 2 : -1].mean())
