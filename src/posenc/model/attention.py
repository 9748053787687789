"""Multi-head attention: the projections, and softmax between queries and keys."""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.model.cpu_attention import causal_products
from posenc.positions import PositionScheme


class Places(NamedTuple):
    """Where the tokens of a forward pass stand, for every layer.

    Attributes:
        scheme: what the positions mean.
        positions: (T,).
        bias: on the logits, (H, T, T), with a causal mask in it already; None for nothing.
    """

    scheme: PositionScheme
    positions: Tensor
    bias: Tensor | None


class Mechanism(Protocol):
    """How values are mixed. It opens the doors `rotate` and, where it has logits, `bias` to the position scheme."""

    def accepts(self, scheme: PositionScheme) -> bool:
        """Whether the scheme has a door here."""
        ...

    def initialise(self, generator: torch.Generator) -> None:
        """Draw what is drawn at random, if anything. Called after the weights of the trunk have been drawn."""
        ...

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, places: Places, causal: bool) -> Tensor:
        """q (B, H, T, Dh), k and v (B, G, T, Dh), G a divisor of H -> mixed values (B, H, T, Dh)."""
        ...

    def weights(self, q: Tensor, k: Tensor, places: Places, causal: bool) -> Tensor:
        """What each token takes from each: arguments as above -> (B, H, T, T)."""
        ...


class Attention(nn.Module):
    """Queries, keys and values in one projection, a mechanism between them (Vaswani et al. 2017, section 3.2.2).

    Args:
        width: D, a multiple of heads.
        heads: H.
        causal: whether a token sees only itself and what stands before it.
        key_heads: G, heads of keys and values, a divisor of H (Ainslie et al. 2023); by default H. 1 is multi-query.
        bias: whether the projections add one.
        mechanism: how values are mixed; by default by softmax.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        causal: bool,
        key_heads: int | None = None,
        bias: bool = False,
        mechanism: Mechanism | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.causal, self.mechanism = width // heads, causal, mechanism or Softmax()
        shared_width = (key_heads or heads) * self.head_dim
        self.sizes = (width, shared_width, shared_width)
        self.qkv = nn.Linear(width, sum(self.sizes), bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        q, k, v = self._projected(x)
        return self.out(self.mechanism(q, k, v, places, self.causal).transpose(1, 2).flatten(-2))

    def weights(self, x: Tensor, places: Places) -> Tensor:
        """What each token takes from each: (B, T, D) -> (B, H, T, T)."""
        q, k, _ = self._projected(x)
        return self.mechanism.weights(q, k, places, self.causal)

    def _projected(self, x: Tensor) -> list[Tensor]:
        """Queries (B, H, T, Dh), keys and values (B, G, T, Dh)."""
        return [part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in self.qkv(x).split(self.sizes, -1)]


class Softmax(nn.Module):
    """Attention as it is usual: softmax(q k^T / sqrt(Dh) + bias) v."""

    def accepts(self, scheme: PositionScheme) -> bool:  # noqa: ARG002
        """Every door is there."""
        return True

    def initialise(self, generator: torch.Generator) -> None:
        """Nothing is drawn."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, places: Places, causal: bool) -> Tensor:
        """See `Mechanism`."""
        q, k, bias = _placed(q, k, places)
        if _fused_is_slow(q, LONGEST_IN_BLOCKS if causal and bias is None else LONGEST_WHOLE):
            return _by_products(q, shared(k, q), shared(v, q), bias, causal)
        grouped = k.shape[1] != q.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal and bias is None, enable_gqa=grouped
        )

    def weights(self, q: Tensor, k: Tensor, places: Places, causal: bool) -> Tensor:
        """Rows sum to 1."""
        q, k, bias = _placed(q, k, places)
        return _softmax(q, shared(k, q), bias, causal)


def _placed(q: Tensor, k: Tensor, places: Places) -> tuple[Tensor, Tensor, Tensor | None]:
    """Queries and keys turned, and the bias in their type, (1, H, T, T): torch's fast kernels take no (H, T, T)."""
    q, k = places.scheme.rotate(q, k, places.positions)
    return q, k, None if places.bias is None else places.bias.to(q.dtype)[None]


def shared(k: Tensor, q: Tensor) -> Tensor:
    """Keys or values (B, G, T, Dh), each head repeated for the queries (B, H, T, Dh) that share it."""
    times = q.shape[1] // k.shape[1]
    return k if times == 1 else k.repeat_interleave(times, dim=1)


MOST_SHARES = 2**28
"""What tokens take from each other in one layer: half a gigabyte, or a quarter in blocks."""

LONGEST_WHOLE, LONGEST_IN_BLOCKS = 512, 2048
"""Tokens up to which plain products beat torch's fused attention in bf16 on a CPU; at 256 they take half its time."""


def _fused_is_slow(q: Tensor, longest: int) -> bool:
    """Whether torch's fused attention loses to plain products, and what they keep for the gradient is not too much."""
    batch, heads, length, _ = q.shape
    little = batch * heads * length**2 <= MOST_SHARES
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and length <= longest and little


def _by_products(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(Dh) + bias) v, all (B, H, T, Dh)."""
    if causal and bias is None:
        mixed = causal_products(*(part.flatten(0, 1) for part in (q, k, v)))
        return mixed.unflatten(0, q.shape[:2])
    return _softmax(q, k, bias, causal) @ v


def _softmax(q: Tensor, k: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(Dh) + bias), q and k (B, H, T, Dh) -> (B, H, T, T). A bias has a causal mask in it."""
    batch, heads, length, size = q.shape
    if causal and bias is None:
        bias = q.new_full((length, length), -torch.inf).triu(1)
    added = q.new_zeros(()) if bias is None else bias
    added = added.expand(batch, heads, length, length).flatten(0, 1)
    logits = torch.baddbmm(added, q.flatten(0, 1), k.flatten(0, 1).mT, alpha=size**-0.5)
    return logits.softmax(-1).unflatten(0, (batch, heads))
