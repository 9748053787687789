"""The loss of a trained model in windows of several lengths, overall and by position."""

import math

import numpy as np
import torch
from torch import Tensor

from posenc.data.batches import validation_windows
from posenc.data.tokens import Tokens
from posenc.errors import out_of_memory
from posenc.evaluation.load import Trained
from posenc.evaluation.losses import token_losses
from posenc.storage.lengths_file import LARGEST, TIMES, LengthResult, bucket_edges

MAX_TOKENS = 65_536
"""Maximum number of validation tokens for each length."""


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
        try:
            return _evaluate(trained, spans.unfold(1, length + ahead, length).flatten(0, 1), times, length, context)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            return LengthResult(times, length, no_entry="it does not fit into memory")

    return tuple(entry(times, length) for times, length in lengths.items())


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
