"""One layer: attention and a feed-forward network, on a normalised copy of the residual stream."""

import torch.nn.functional as F
from torch import Tensor, nn

from posenc.model.attention import Attention, AttentionOp, PositionContext
from posenc.model.family import Family


class FeedForward(nn.Module):
    """D -> F -> D with GELU between."""

    approximate = "none"

    def __init__(self, width: int, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, d_ff, bias=bias)
        self.down = nn.Linear(d_ff, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self.down(F.gelu(self.up(x), approximate=self.approximate))


class TanhFeedForward(FeedForward):
    """With the tanh form of GELU, which is GPT-2's (Hendrycks and Gimpel 2016, section 2)."""

    approximate = "tanh"


class GatedFeedForward(nn.Module):
    """D -> 2 F -> F -> D: one half, through SiLU, gates the other (SwiGLU; Shazeer 2020)."""

    def __init__(self, width: int, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * d_ff, bias=bias)
        self.down = nn.Linear(d_ff, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


FEED_FORWARD = {"gelu": FeedForward, "gelu_tanh": TanhFeedForward, "swiglu": GatedFeedForward}


class Block(nn.Module):
    """A pre-norm layer (Xiong et al. 2020): attention, then the feed-forward network."""

    def __init__(self, width: int, heads: int, causal: bool, family: Family, op: AttentionOp) -> None:
        super().__init__()
        bias = family.biases.projections
        self.attention_norm = family.normalisation(width)
        self.attention = Attention(width, heads, causal, family.num_kv_heads(heads), bias, op)
        self.feed_forward_norm = family.normalisation(width)
        self.feed_forward = FEED_FORWARD[family.activation](width, family.d_ff(width), bias)

    def forward(self, x: Tensor, context: PositionContext) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = x + self.attention(self.attention_norm(x), context)
        return x + self.feed_forward(self.feed_forward_norm(x))


class ParallelBlock(Block):
    """Attention and feed-forward network side by side, on one norm (Chowdhery et al. 2022, section 2)."""

    def __init__(self, width: int, heads: int, causal: bool, family: Family, op: AttentionOp) -> None:
        super().__init__(width, heads, causal, family, op)
        del self.feed_forward_norm

    def forward(self, x: Tensor, context: PositionContext) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        normal = self.attention_norm(x)
        return x + self.attention(normal, context) + self.feed_forward(normal)
