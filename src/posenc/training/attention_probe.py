"""What attention heads do while a model learns: where they look, and whether they copy.

A head that looks one token back tells its position from its content: a model without any cannot read letters in order.
Two of them in a row, the second looking for what followed the same token earlier, make an induction head (Olsson et al.
2022), which copies.
"""

from typing import Any

import torch
from torch import Tensor

from posenc.model import Transformer

BUCKETS = ("0", "1", "2", "3-4", "5-8", "9-32", "33+")
"""Distances back from a token: columns of attention.csv."""

FIRST = (0, 1, 2, 3, 5, 9, 33)
"""Where each bucket begins."""

PROBE_COLUMNS = ("layer", "head", *BUCKETS, "induction")

SEQUENCES = 2
"""How many windows of text, and how many repeated sequences, are looked at: little, since it is done often."""


class AttentionProbe:
    """Measures every head on a few fixed windows of text and on sequences that repeat themselves.

    Args:
        windows: the validation windows, (windows, tokens); random sequences are drawn from the tokens in them.
        length: tokens read, T, at least 4.
    """

    def __init__(self, windows: Tensor, length: int) -> None:
        generator = torch.Generator().manual_seed(0)  # the same sequences for every scheme and seed
        alphabet = windows.unique()
        drawn = alphabet[torch.randint(len(alphabet), (SEQUENCES, length // 2), generator=generator)]
        spread = torch.linspace(0, len(windows) - 1, SEQUENCES).long()
        self.text, self.repeated = windows[spread, : length // 2 * 2], drawn.repeat(1, 2)

    def measure(self, model: Transformer) -> list[dict[str, Any]]:
        """A row a head: layer, head, share of the attention in each of BUCKETS, induction score."""
        tokens = torch.cat([self.text, self.repeated]).to(model.embedding.weight.device)
        rows: list[dict[str, Any]] = []
        with torch.no_grad():
            for layer, probs in enumerate(model.attention_probs(tokens)):
                text, repeated = probs.split(SEQUENCES)
                scores = torch.cat([shares_by_distance(text), induction_score(repeated)[:, None]], dim=1)
                for head, values in enumerate(scores.tolist()):
                    named = zip((*BUCKETS, "induction"), values, strict=True)
                    rows.append({"layer": layer, "head": head, **{name: round(value, 4) for name, value in named}})
        return rows

    @torch.no_grad()
    def position_share(self, model: Transformer) -> dict[str, float]:
        """The position encoding's share of the first norm's input variance, by its column; nothing without one."""
        share = model.position_share(self.text.to(model.embedding.weight.device))
        return {} if share is None else {"position_share": round(share, 4)}


def shares_by_distance(probs: Tensor) -> Tensor:
    """Attention probabilities (B, H, T, T) -> (H, buckets): the mean share at each distance back.

    Only the second half of the tokens counts, so that every distance up to T/2 is open to all of them. What looks
    ahead, in a model that may, is in no bucket.
    """
    length = probs.shape[-1]
    rows = probs[:, :, length // 2 :].float().mean(0).flatten(1)
    positions = torch.arange(length, device=probs.device)
    distance = (positions[length // 2 :, None] - positions).flatten()
    bucket = torch.bucketize(distance, torch.tensor(FIRST, device=probs.device), right=True)  # 0: ahead
    shares = rows.new_zeros(len(rows), len(FIRST) + 1).index_add_(1, bucket, rows)
    return shares[:, 1:] / (length - length // 2)


def induction_score(probs: Tensor) -> Tensor:
    """Attention probabilities (B, H, T, T) on sequences whose second half repeats the first -> (H,).

    The mean share that falls on the token after the same token's first occurrence (Olsson et al. 2022).
    """
    length = probs.shape[-1]
    return probs.diagonal(offset=1 - length // 2, dim1=-2, dim2=-1)[..., 1:].float().mean((0, -1))
