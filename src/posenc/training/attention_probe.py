"""Attention patterns during training: distances and induction scores.

A previous-token head attends by position. Composed with a head that looks for the token which followed the current one
earlier, it makes an induction head (Olsson et al. 2022).
"""

from typing import Any

import torch
from torch import Tensor

from posenc.model import Transformer

BUCKETS = {"0": 0, "1": 1, "2": 2, "3-4": 3, "5-8": 5, "9-32": 9, "33+": 33}
"""Distances from query back to key, columns of attention.csv, with the first of each."""

PROBE_COLUMNS = ("step", "layer", "head", *BUCKETS, "induction")

SEQUENCES = 2
"""The number of text windows, and of repeated sequences: few, since they are measured often."""

LONGEST = 1024
"""Tokens per sequence at most: the attention probabilities of a layer are heads x T x T numbers."""


class AttentionProbe:
    """Measures every head on a few fixed windows of text and on repeated random sequences.

    Args:
        windows: the validation windows, (windows, tokens); random sequences are sampled from their tokens.
        length: sequence length T, at least 4; longer ones are cut to LONGEST.
    """

    def __init__(self, windows: Tensor, length: int) -> None:
        length = min(length, LONGEST)
        generator = torch.Generator().manual_seed(0)  # the same sequences for every scheme and seed
        alphabet = windows.unique()
        sampled = alphabet[torch.randint(len(alphabet), (SEQUENCES, length // 2), generator=generator)]
        indices = torch.linspace(0, len(windows) - 1, SEQUENCES).long()
        self.text, self.repeated = windows[indices, : length // 2 * 2], sampled.repeat(1, 2)

    @torch.no_grad()
    def measure(self, model: Transformer) -> list[dict[str, Any]]:
        """One row per head: layer, head, share of its attention in each of BUCKETS, induction score; both 0 to 1."""
        tokens = torch.cat([self.text, self.repeated]).to(model.embedding.weight.device)
        rows: list[dict[str, Any]] = []
        for layer, probs in enumerate(model.attention_probs(tokens)):
            text, repeated = probs.split(SEQUENCES)
            scores = torch.cat([shares_by_distance(text), induction_score(repeated)[:, None]], dim=1)
            for head, values in enumerate(scores.tolist()):
                named = zip((*BUCKETS, "induction"), values, strict=True)
                rows.append({"layer": layer, "head": head, **{name: round(value, 4) for name, value in named}})
        return rows

    @torch.no_grad()
    def position_share(self, model: Transformer) -> dict[str, float]:
        """`Transformer.position_share` on the windows of text, by column name; empty if nothing is added."""
        share = model.position_share(self.text.to(model.embedding.weight.device))
        return {} if share is None else {"position_share": round(share, 4)}


def shares_by_distance(probs: Tensor) -> Tensor:
    """Attention probabilities (B, H, T, T) -> the mean share at each distance (H, buckets).

    Only queries in the second half count, so that every distance up to T/2 is available to all of them. In a
    bidirectional model, attention to later tokens is in no bucket.
    """
    length = probs.shape[-1]
    rows = probs[:, :, length // 2 :].float().mean(0)
    positions = torch.arange(length, device=probs.device)
    distance = positions[length // 2 :, None] - positions
    first = torch.tensor([*BUCKETS.values()], device=probs.device)
    bucket = torch.bucketize(distance, first, right=True)  # 0: later tokens
    shares = rows.new_zeros(*rows.shape[:2], len(BUCKETS) + 1).scatter_add_(2, bucket.expand_as(rows), rows)
    return shares[..., 1:].mean(1)


def induction_score(probs: Tensor) -> Tensor:
    """Attention probabilities (B, H, T, T) on sequences whose second half repeats the first -> (H,).

    The mean share of the token that followed the query token half a sequence earlier (Olsson et al. 2022). A head that
    shares its attention among all earlier occurrences of a token scores less than 1 where tokens recur within a half.
    """
    length = probs.shape[-1]
    return probs.diagonal(offset=1 - length // 2, dim1=-2, dim2=-1)[..., 1:].float().mean((0, -1))
