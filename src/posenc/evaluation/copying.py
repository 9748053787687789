"""Copying from the context: what a trained model gains where its window repeats itself.

A model with induction heads (Olsson et al. 2022) predicts a token better if the tokens before it have occurred before.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from posenc.data.batches import validation_windows
from posenc.data.tokens import Tokens
from posenc.errors import UserError
from posenc.evaluation.load import Trained
from posenc.evaluation.losses import losses_on, own_windows

ORDER = 3
"""The number of preceding tokens that must have occurred before: in bytes, seldom by chance in one window."""


SHORTEST = 16
"""The shortest context in which a passage can be repeated at several distances."""


class Copying(NamedTuple):
    """Losses in nats per token, on the validation split.

    Attributes:
        first, second: on the first and the second occurrence of the same text in a window. The texts are half a
            window long, evenly spaced over the validation split; the second half of either counts, so that both
            have some context.
        new, seen: on the validation windows, for targets whose ORDER preceding tokens have not occurred before in the
            window, and for the others.
        share: that of `seen` among all targets.
        own, foreign: on the targets in the last quarter of the validation windows. `own`: the windows as they are.
            `foreign`: a window keeps the eighth before that quarter; everything earlier is the text of a window half of
            the split away.
    """

    first: float
    second: float
    new: float
    seen: float
    share: float
    own: float
    foreign: float


def copying(trained: Trained, tokens: Tokens) -> Copying:
    """What a model gains where its window repeats itself.

    Raises:
        UserError: if the model is not causal, its context is shorter than SHORTEST, or the last validation has no
            second window to take other text from.
    """
    first, second = losses_at_occurrences(trained, tokens)
    context, windows = trained.config["context"], own_windows(trained, tokens)
    if len(windows) < 2:
        raise UserError("its last validation has no second window, from which other text could be taken")
    losses = losses_on(trained, windows)
    new, seen, share = by_context(losses, windows)
    last = context - context // 4
    cut = last - context // 8
    foreign = torch.cat([windows.roll(len(windows) // 2, dims=0)[:, :cut], windows[:, cut:]], dim=1)
    return Copying(
        first=first,
        second=second,
        new=new,
        seen=seen,
        share=share,
        own=float(losses[:, last:].mean()),
        foreign=float(losses_on(trained, foreign)[:, last:].mean()),
    )


def losses_at_occurrences(trained: Trained, tokens: Tokens) -> tuple[float, float]:
    """The losses `first` and `second` of Copying.

    Raises:
        UserError: if the model is not causal, or its context is shorter than SHORTEST.
    """
    _require_long_context(trained)
    half = trained.config["context"] // 2
    text = validation_windows(tokens, trained.config["eval_windows"], half)
    losses = losses_on(trained, torch.cat([text, text, text[:, :1]], dim=1)).mean(0)
    return float(losses[half // 2 : half - 1].mean()), float(losses[half + half // 2 : -1].mean())


def by_context(losses: Tensor, windows: Tensor) -> tuple[float, float, float]:
    """Losses (N, T) on windows (N, T + 1) -> `new`, `seen` and `share` of Copying."""
    repeats = repeated(windows[:, :-1], ORDER)
    return float(losses[~repeats].mean()), float(losses[repeats].mean()), float(repeats.double().mean())


def at_distances(trained: Trained, tokens: Tokens) -> dict[int, float]:
    """The loss on one passage after a copy of it, by the distance of the copy in tokens; 0 is without a copy.

    The passage is the last eighth of each validation window, of which the second half counts, so that the model has
    seen that the passage is a copy. The copy takes the place of the tokens 1, 2, 4 or 7 eighths earlier: targets and
    their positions are the same at every distance, and so is the text between, as far as it is not the copy's place.

    Returns:
        Nats per token.

    Raises:
        UserError: if the model is not causal, or its context is shorter than SHORTEST.
    """
    _require_long_context(trained)
    context, windows = trained.config["context"], own_windows(trained, tokens)
    passage = context // 8
    losses = {}
    for distance in (0, *(eighths * passage for eighths in (1, 2, 4, 7))):
        copied = windows.clone()
        start = context + 1 - passage - distance
        copied[:, start : start + passage] = windows[:, -passage:]
        losses[distance] = float(losses_on(trained, copied)[:, -(passage // 2) :].mean())
    return losses


def _require_long_context(trained: Trained) -> None:
    trained.require_causal("on repeated text")
    if (context := trained.config["context"]) < SHORTEST:
        raise UserError(f"context={context} is too short for a passage and its copy: at least {SHORTEST} tokens")


def repeated(windows: Tensor, order: int) -> Tensor:
    """windows (N, T) -> whether the `order` tokens that end at each position have occurred before, (N, T)."""
    found = torch.zeros(windows.shape, dtype=torch.bool)
    for row, window in zip(found, windows.numpy(), strict=True):
        _, first = np.unique(np.lib.stride_tricks.sliding_window_view(window, order), axis=0, return_index=True)
        row[order - 1 :] = True
        row[first + order - 1] = False
    return found
