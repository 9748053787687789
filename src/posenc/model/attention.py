"""Multi-head attention: the projections and softmax attention."""

import math
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.compat import without_autocast
from posenc.model import cpu_attention
from posenc.positions.base import LayerScheme


class PositionContext(NamedTuple):
    """The positions of a forward pass, for one layer.

    Attributes:
        scheme: the layer's position scheme.
        positions: (T,).
        bias: added to the logits, (1 or B, H, T, T), includes the causal mask; None for no bias.
    """

    scheme: LayerScheme
    positions: Tensor
    bias: Tensor | None


class AttentionOp(Protocol):
    """Mixes the values. Calls the position scheme's hook `rotate`, and adds the bias of its context.

    Attributes:
        has_logits: whether it has logits to which a bias can be added.
    """

    has_logits: bool

    def initialise(self, generator: torch.Generator) -> None:
        """Initialise random state, if any. Called after the weights of the trunk have been initialised."""
        ...

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, context: PositionContext, causal: bool) -> Tensor:
        """q (B, H, T, Dh), k and v (B, G, T, Dh), G a divisor of H -> mixed values (B, H, T, Dh)."""
        ...

    def attention_probs(self, q: Tensor, k: Tensor, context: PositionContext, causal: bool) -> Tensor:
        """Attention probabilities: arguments as above -> (B, H, T, T)."""
        ...


class Attention(nn.Module):
    """A fused projection to queries, keys and values, then an attention op (Vaswani et al. 2017, section 3.2.2).

    Args:
        width: D, a multiple of heads.
        heads: H.
        causal: whether a token attends only to itself and earlier tokens.
        num_kv_heads: G, key-value heads, a divisor of H (Ainslie et al. 2023); by default H. 1 is multi-query.
        bias: whether the projections have a bias.
        op: the attention op; by default `Softmax`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        causal: bool,
        num_kv_heads: int | None = None,
        bias: bool = False,
        op: AttentionOp | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.causal, self.op = width // heads, causal, op or Softmax()
        kv_width = (num_kv_heads or heads) * self.head_dim
        self.qkv_sizes = (width, kv_width, kv_width)
        self.qkv = nn.Linear(width, sum(self.qkv_sizes), bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, context: PositionContext) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        q, k, v = self._project(x)
        return self.out(self.op(q, k, v, self._with_content(x, q, k, context), self.causal).transpose(1, 2).flatten(-2))

    def attention_probs(self, x: Tensor, context: PositionContext) -> Tensor:
        """(B, T, D) -> (B, H, T, T)."""
        q, k, _ = self._project(x)
        return self.op.attention_probs(q, k, self._with_content(x, q, k, context), self.causal)

    def _with_content(self, x: Tensor, q: Tensor, k: Tensor, context: PositionContext) -> PositionContext:
        """The context with the scheme's `content_bias` added to its bias."""
        content = context.scheme.content_bias(x, q, k, context.positions)
        if content is None:
            return context
        return context._replace(
            bias=mask_future(content, self.causal) if context.bias is None else content + context.bias
        )

    def _project(self, x: Tensor) -> list[Tensor]:
        """Queries (B, H, T, Dh), keys and values (B, G, T, Dh)."""
        parts = self.qkv(x).split(self.qkv_sizes, -1)
        return [part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in parts]


class Softmax(nn.Module):
    """Standard attention: softmax(q k^T / sqrt(Dh) + bias) v."""

    has_logits = True

    def initialise(self, generator: torch.Generator) -> None:
        """There is no random state."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, context: PositionContext, causal: bool) -> Tensor:
        """See `AttentionOp`."""
        scale = 1 / math.sqrt(q.shape[-1])
        q, k, bias = _rotated(q, k, context)
        if _use_blockwise(q):
            return cpu_attention.attention(q, repeat_kv(k, q), repeat_kv(v, q), bias, causal, scale)
        grouped = k.shape[1] != q.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal and bias is None, enable_gqa=grouped, scale=scale
        )

    def attention_probs(self, q: Tensor, k: Tensor, context: PositionContext, causal: bool) -> Tensor:
        """In float32 or better; rows sum to 1."""
        scale = 1 / math.sqrt(q.shape[-1])
        q, k, bias = _rotated(q, k, context)
        if causal and bias is None:
            bias = mask_future(q.new_zeros(q.shape[-2], q.shape[-2]), causal)
        exact = torch.promote_types(q.dtype, torch.float32)
        with without_autocast(q):
            logits = q.to(exact) @ repeat_kv(k, q).to(exact).mT * scale
        return (logits if bias is None else logits + bias).softmax(-1)


def _rotated(q: Tensor, k: Tensor, context: PositionContext) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rotated queries and keys, and the bias in their dtype."""
    q, k = context.scheme.rotate(q, k, context.positions)
    return q, k, None if context.bias is None else context.bias.to(q.dtype)


def mask_future(bias: Tensor, causal: bool) -> Tensor:
    """A bias (.., T, T), with the causal mask applied if `causal`."""
    if not causal:
        return bias
    future = torch.ones(bias.shape[-2:], dtype=torch.bool, device=bias.device).triu(1)
    return bias.masked_fill(future, -torch.inf)


def repeat_kv(k: Tensor, q: Tensor) -> Tensor:
    """Keys or values (B, G, T, Dh), each head repeated for the query heads (B, H, T, Dh) that share it."""
    times = q.shape[1] // k.shape[1]
    return k if times == 1 else k.repeat_interleave(times, dim=1)


MAX_PROBS = 2**28
"""Attention probabilities per layer: half a gigabyte in bfloat16; about half of that if causal, since blocks above
the diagonal are not stored."""

MAX_LENGTH = 1024
"""Length up to which ours beats torch's fused kernel in bf16 on a CPU. Causal, it takes half the time at 256."""


def _use_blockwise(q: Tensor) -> bool:
    """Whether blockwise attention is faster than torch's kernel, and the probabilities it stores fit in memory."""
    batch, heads, length, _ = q.shape
    fits = batch * heads * length**2 <= MAX_PROBS
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and length <= MAX_LENGTH and fits
