"""One layer: attention, then a feed-forward network, each on a normalised copy of the residual stream."""

import torch.nn.functional as F
from torch import Tensor, nn

from posenc.model.attention import Attention
from posenc.positions import PositionScheme


class FeedForward(nn.Module):
    """D -> 4 D -> D with GELU between, as in GPT-2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """A pre-norm layer (Xiong et al. 2020)."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, heads, causal)
        self.feed_forward_norm = nn.LayerNorm(width, bias=False)
        self.feed_forward = FeedForward(width)

    def forward(self, x: Tensor, scheme: PositionScheme, positions: Tensor, bias: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = x + self.attention(self.attention_norm(x), scheme, positions, bias)
        return x + self.feed_forward(self.feed_forward_norm(x))
