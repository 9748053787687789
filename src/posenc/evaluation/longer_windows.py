"""The loss of a trained model in windows of several lengths, overall and by position."""

import math
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.data.batches import validation_windows
from posenc.data.cache import Tokens
from posenc.evaluation.load import Trained
from posenc.storage.lengths_file import LARGEST, TIMES, LengthResult, bucket_edges

MAX_TOKENS = 65_536
"""Maximum number of validation tokens for each length."""

TOKENS_PER_BATCH = 8_192
"""Tokens per forward pass, at least one window."""


def at_lengths(trained: Trained, tokens: Tokens) -> tuple[LengthResult, ...]:
    """Evaluate the model at each of TIMES its training length, on the same text.

    The text is cut into spans of the longest window, evenly spaced over the split, and each span into as many windows
    as fit. So all lengths use the same text, except for the rest of a span that is shorter than a window.
    """
    context, ahead = trained.config["context"], trained.objective.lookahead
    lengths = {times: round(context * times) for times in TIMES}
    longest = max((length for length in lengths.values() if length + ahead <= len(tokens)), default=0)
    spans = validation_windows(tokens, max(1, MAX_TOKENS // max(1, longest)), longest + ahead)

    def entry(times: float, length: int) -> LengthResult:
        table = trained.model.scheme.max_length
        if table is not None and length > table:
            return LengthResult(times, length, no_entry=f"it supports only {table} positions")
        if length > longest:
            return LengthResult(times, length, no_entry=f"the validation split has only {len(tokens):,} tokens")
        return _evaluate(trained, spans.unfold(1, length + ahead, length).flatten(0, 1), times, length, context)

    return tuple(entry(times, length) for times, length in lengths.items())


def own_validation_loss(trained: Trained, tokens: Tokens) -> float:
    """The loss of a causal model on its run's own validation windows, in nats per token."""
    ahead = trained.objective.lookahead
    windows = validation_windows(tokens, trained.config["eval_windows"], trained.config["context"] + ahead)
    return float(_by_position(trained, windows)[0].mean())


def _evaluate(trained: Trained, windows: Tensor, times: float, length: int, context: int) -> LengthResult:
    """windows (N, length + lookahead)."""
    losses, byte_count = _by_position(trained, windows)
    if not (losses < LARGEST / 2).all():  # NaN compares false; a nat is less than two bits
        return LengthResult(times, length, no_entry="its loss is NaN, infinite or very large")
    nats = float(losses.mean())
    edges = bucket_edges(context, length)
    means = np.add.reduceat(losses, edges[:-1]) / np.diff(edges)
    bits = nats * len(windows) * length / math.log(2) / byte_count
    rounded = tuple(round(float(mean), 6) for mean in means)
    return LengthResult(times, length, len(windows), nats, bits, edges, rounded)


def _by_position(trained: Trained, windows: Tensor) -> tuple[np.ndarray, int]:
    """windows (N, T + lookahead) -> mean nats at each position (T,), and the total number of predicted bytes."""
    lengths = torch.from_numpy(trained.tokenizer.byte_lengths())
    total, byte_count = torch.zeros(()), 0
    for losses, targets in token_losses(trained, windows):
        total = total + losses.sum(0)
        byte_count += int(lengths[targets].sum())
    return (total / len(windows)).numpy(), byte_count


@torch.no_grad()
def token_losses(trained: Trained, windows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """windows (N, T + lookahead) -> nats (B, T), float64, and targets (B, T) of each batch, on the CPU. Causal only."""
    trained.model.eval()
    device = next(trained.model.parameters()).device
    for batch in windows.split(max(1, TOKENS_PER_BATCH // windows.shape[1])):
        inputs, targets = trained.objective.inputs_and_targets(batch.to(device), batch.new_empty(*batch.shape, 0))
        # Logits have no name, which would keep those of one batch in memory during the next.
        losses = F.cross_entropy(trained.model(inputs).float().flatten(0, 1), targets.flatten(), reduction="none")
        yield losses.view_as(targets).cpu().double(), targets.cpu()
