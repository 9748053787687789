"""Ablation at evaluation: a trained model when attention at one offset is masked, or one head is removed.

It shows what the model uses, whereas the scores of its heads only show what they attend to.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from posenc.data.tokens import Tokens
from posenc.errors import UserError
from posenc.evaluation.copying import by_context, losses_at_occurrences
from posenc.evaluation.load import Trained
from posenc.evaluation.losses import losses_on, own_validation_loss, own_windows
from posenc.interventions import OffsetMask
from posenc.model.attention import Attention

OFFSETS = (1, 2, 3, 17)
"""Distances from the query back to the key; 17 is a control, beyond the previous tokens."""

WINDOWS = 64
"""The number of validation windows without each head: few, since there are many heads."""


def losses_without(trained: Trained, tokens: Tokens) -> dict[int, float]:
    """Nats per token on the run's validation windows: unmodified under key 0, and with each of OFFSETS masked.

    Raises:
        UserError: if the model is not causal, or its attention has no logits to mask.
    """
    model: Any = trained.model
    if not trained.objective.causal or not all(block.attention.op.has_logits for block in model.blocks):
        raise UserError("only causal models with softmax attention can be evaluated with masked offsets")
    scheme, heads = model.scheme, trained.config["model"]["heads"]
    losses = {0: own_validation_loss(trained, tokens)}
    try:
        for offset in OFFSETS:
            model.scheme = OffsetMask(scheme, heads, [offset])
            losses[offset] = own_validation_loss(trained, tokens)
    finally:
        model.scheme = scheme
    return losses


def copying_without_heads(trained: Trained, tokens: Tokens) -> list[tuple[float, ...]]:
    """What a model copies without each of its attention heads.

    Returns:
        Layer and head, from 1 (0 and 0 with all heads), then `first`, `second`, `new` and `seen` of Copying, on at most
        WINDOWS validation windows.

    Raises:
        UserError: if the model is not causal, or its context is shorter than SHORTEST.
    """
    model: Any = trained.model
    config = {**trained.config, "eval_windows": min(WINDOWS, trained.config["eval_windows"])}
    fewer = replace(trained, config=config)
    windows = own_windows(fewer, tokens)

    def measured() -> tuple[float, ...]:
        return *losses_at_occurrences(fewer, tokens), *by_context(losses_on(fewer, windows), windows)[:2]

    found = [(0, 0, *measured())]
    for layer, block in enumerate(model.blocks, 1):
        for head in range(config["model"]["heads"]):
            with without_head(block.attention, head):
                found.append((layer, head + 1, *measured()))
    return found


@contextmanager
def without_head(attention: Attention, head: int) -> Iterator[None]:
    """Zero one head's output (zero ablation); restores it at the end."""
    of_head = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
    weight = attention.out.weight.detach()  # shares memory with the parameter
    kept = weight[:, of_head].clone()
    try:
        weight[:, of_head] = 0
        yield
    finally:
        weight[:, of_head] = kept
