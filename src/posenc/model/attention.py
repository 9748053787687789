"""Multi-head attention with two doors open: `rotate` on queries and keys, a bias on the logits."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.positions import PositionScheme


class Attention(nn.Module):
    """Softmax attention (Vaswani et al. 2017, section 3.2.2), queries, keys and values in one projection.

    Args:
        width: D, a multiple of heads.
        heads: H.
        causal: whether a token sees only itself and what stands before it.
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, scheme: PositionScheme, positions: Tensor, bias: Tensor | None) -> Tensor:
        """x (B, T, D), positions (T,), bias None or (H, T, T) -> (B, T, D).

        A causal mask is in the bias already, where there is a bias.
        """
        q, k, v, mask = self._placed(x, scheme, positions, bias)
        causal = self.causal and mask is None
        if _fused_is_slow(q):
            mixed = _weights(q, k, mask, causal) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def weights(self, x: Tensor, scheme: PositionScheme, positions: Tensor, bias: Tensor | None) -> Tensor:
        """What each token attends to: arguments of `forward` -> (B, H, T, T), rows sum to 1."""
        q, k, _, mask = self._placed(x, scheme, positions, bias)
        return _weights(q, k, mask, self.causal and mask is None)

    def _placed(
        self, x: Tensor, scheme: PositionScheme, positions: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys and values (B, H, T, Dh), and the bias in their type."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = scheme.rotate(q, k, positions)
        return q, k, v, None if bias is None else bias.to(q.dtype)


def _fused_is_slow(q: Tensor) -> bool:
    """Whether torch's fused attention loses to plain products: in bf16 on a CPU they take half its time, if short."""
    return q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[-2] <= 512


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(q k^T / sqrt(Dh) + mask), q and k (B, H, T, Dh) -> (B, H, T, T)."""
    batch, heads, length, size = q.shape
    if causal:
        mask = q.new_full((length, length), -torch.inf).triu(1)
    added = q.new_zeros(()) if mask is None else mask
    added = added.expand(batch, heads, length, length).flatten(0, 1)
    logits = torch.baddbmm(added, q.flatten(0, 1), k.flatten(0, 1).mT, alpha=size**-0.5)
    return logits.softmax(-1).unflatten(0, (batch, heads))
