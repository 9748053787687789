"""A transformer layer, and the architecture choices that a model family makes inside it."""

import math
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from posenc.bounds import Positive, PositiveInt
from posenc.model.attention import Attention, AttentionOp, PositionContext

Activation = Literal["gelu", "gelu_tanh", "swiglu"]


class FeedForward(nn.Module):
    """D -> F -> D with GELU, or its tanh approximation, in between (Hendrycks and Gimpel 2016, section 2).

    Or SwiGLU (Shazeer 2020): D -> 2 F -> F -> D, where one half, through SiLU, gates the other.
    """

    def __init__(self, width: int, d_ff: int, bias: bool, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(width, 2 * d_ff if activation == "swiglu" else d_ff, bias=bias)
        self.down = nn.Linear(d_ff, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        inner = self.up(x)
        if self.activation == "swiglu":
            gate, value = inner.chunk(2, dim=-1)
            return self.down(F.silu(gate) * value)
        return self.down(F.gelu(inner, approximate="tanh" if self.activation == "gelu_tanh" else "none"))


@dataclass(frozen=True)
class Family:
    """The architecture of a layer.

    Args:
        norm: layer (LayerNorm), bare (LayerNorm without weights) or rms (RMSNorm).
        bias: none, norm (in the norms) or all (in the projections too).
        queries_per_key: query heads per key-value head: 1 is multi-head, all is multi-query attention.
        parallel: whether attention and feed-forward network share one normalised input.
        activation: gelu, gelu_tanh (tanh approximation), or swiglu, which has a third matrix as a gate (Shazeer 2020).
        ratio: d_ff / D.
        tied: whether the output shares the embedding matrix.

    Raises:
        ValueError: if two values contradict each other.
    """

    norm: Literal["layer", "bare", "rms"] = "layer"
    bias: Literal["none", "norm", "all"] = "none"
    queries_per_key: PositiveInt | Literal["all"] = 1
    parallel: bool = False
    activation: Activation = "gelu"
    ratio: Positive = 4.0
    tied: bool = True

    def __post_init__(self) -> None:
        if self.bias == "norm" and self.norm != "layer":
            raise ValueError(f"bias=norm needs norm=layer: norm={self.norm} has none")

    def normalisation(self, width: int) -> nn.Module:
        """A norm over the last dimension: (.., D) -> (.., D)."""
        match self.norm:
            case "layer":
                return nn.LayerNorm(width, bias=self.bias in ("norm", "all"))
            case "bare":
                return nn.LayerNorm(width, elementwise_affine=False)
            case "rms":
                return nn.RMSNorm(width, eps=1e-5)

    def num_kv_heads(self, heads: int) -> int:
        """The number of key-value heads.

        Raises:
            ValueError: if it would not divide the number of query heads.
        """
        group = heads if self.queries_per_key == "all" else self.queries_per_key
        if heads % group:
            raise ValueError(f"heads={heads} must be a multiple of model.family.queries_per_key={group}")
        return heads // group

    def d_ff(self, width: int) -> int:
        """Width of the feed-forward network: ratio x D.

        If that is not an integer, it is rounded up to a multiple of D / 16, which is LLaMA's 256 at width 4,096.
        """
        exact = float(self.ratio) * width
        if exact.is_integer():
            return int(exact)
        multiple = max(1, width // 16)
        return math.ceil(max(1, round(exact)) / multiple) * multiple


class Block(nn.Module):
    """A pre-norm layer (Xiong et al. 2020): attention, then the feed-forward network.

    Or both in parallel, after one norm (Chowdhery et al. 2022, section 2).
    """

    def __init__(self, width: int, heads: int, causal: bool, family: Family, op: AttentionOp) -> None:
        super().__init__()
        self.parallel, bias = family.parallel, family.bias == "all"
        self.attention_norm = family.normalisation(width)
        self.attention = Attention(width, heads, causal, family.num_kv_heads(heads), bias, op)
        if not self.parallel:
            self.feed_forward_norm = family.normalisation(width)
        self.feed_forward = FeedForward(width, family.d_ff(width), bias, family.activation)

    def forward(self, x: Tensor, context: PositionContext) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        normal = self.attention_norm(x)
        attended = x + self.attention(normal, context)
        return attended + self.feed_forward(normal if self.parallel else self.feed_forward_norm(attended))
