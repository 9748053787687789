"""Multi-head attention with two doors open: `rotate` on queries and keys, a bias on the logits."""

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
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, H, T, Dh)
        q, k = scheme.rotate(q, k, positions)
        mask = None if bias is None else bias.to(q.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal and mask is None)
        return self.out(mixed.transpose(1, 2).flatten(-2))
