"""The whole model: embeddings, layers, tied output, and a position scheme at its three doors."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.model.block import Block
from posenc.positions import PositionScheme
from posenc.positions.base import EMBEDDING_STD


class Transformer(nn.Module):
    """A pre-norm transformer language model in the shape of GPT-2, without biases, with tied embeddings.

    Args:
        vocab_size: V.
        context: the sequence length it is trained at; the scheme must be able to place it.
        layers, width, heads: its shape; D = width, Dh = width / heads.
        scheme: where positions enter. The model never asks which scheme it has.
        causal: whether a token sees only itself and what stands before it.
        seed: draws the initial weights. Every weight outside the scheme is the same, to the bit, for every scheme.

    Raises:
        ValueError: if a size is below 1, width is not a multiple of heads, or the scheme cannot place `context`.
    """

    def __init__(
        self,
        vocab_size: int,
        context: int,
        layers: int,
        width: int,
        heads: int,
        scheme: PositionScheme,
        causal: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        sizes = {
            "vocab_size": vocab_size,
            "context": context,
            "layers": layers,
            "width": width,
            "heads": heads,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name}={size} must be at least 1")
        if width % heads:
            raise ValueError(f"width={width} must be a multiple of heads={heads}")
        if scheme.longest is not None and context > scheme.longest:
            raise ValueError(f"context={context} is longer than the {scheme.longest} positions of the position table")
        self.causal = causal
        self.embedding = nn.Embedding(vocab_size, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.scheme = scheme
        self.initialise(seed)

    def initialise(self, seed: int) -> None:
        """GPT-2's weights: normal, std 0.02, the projections into the residual stream by 1/sqrt(2 layers) smaller.

        The trunk is drawn first and the scheme last, so that a scheme with parameters moves no other weight.
        """
        generator = torch.Generator().manual_seed(seed)
        into_residual = EMBEDDING_STD / math.sqrt(2 * len(self.blocks))
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and not name.startswith("scheme."):
                small = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                nn.init.normal_(weight, std=into_residual if small else EMBEDDING_STD, generator=generator)
        self.scheme.initialise(generator)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """tokens (B, T), positions (T,) or None for 0 .. T-1 -> logits (B, T, V)."""
        if positions is None:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
        x = self.scheme.embed(self.embedding(tokens), positions)
        bias = self._masked(self.scheme.bias(positions))
        for block in self.blocks:
            x = block(x, self.scheme, positions, bias)
        return F.linear(self.norm(x), self.embedding.weight)

    def attention_weights(self, tokens: Tensor) -> Iterator[Tensor]:
        """tokens (B, T) -> what every head attends to, (B, H, T, T), one layer after the other."""
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        x = self.scheme.embed(self.embedding(tokens), positions)
        bias = self._masked(self.scheme.bias(positions))
        for block in self.blocks:
            assert isinstance(block, Block)
            yield block.attention.weights(block.attention_norm(x), self.scheme, positions, bias)
            if block is not self.blocks[-1]:
                x = block(x, self.scheme, positions, bias)

    def _masked(self, bias: Tensor | None) -> Tensor | None:
        """Hide the future in a bias (H, T, T); without a bias the attention hides it by itself."""
        if bias is None or not self.causal:
            return bias
        return bias.masked_fill(torch.ones_like(bias, dtype=torch.bool).triu(1), -torch.inf)
