"""The model: embeddings, layers, output, and a position scheme at its doors."""

import copy
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from posenc.model.attention import AttentionOp, PositionContext, Softmax, hide_future
from posenc.model.block import Block, Family, ParallelBlock
from posenc.positions import PositionScheme
from posenc.positions.base import EMBEDDING_STD, LayerScheme


class Transformer(nn.Module):
    """A pre-norm transformer language model.

    Args:
        vocab_size: V.
        context: the sequence length it is trained at; the scheme must have that many positions.
        layers, width, heads: its shape; D = width, Dh = width / heads.
        scheme: where positions enter. The model never asks which scheme it has.
        family: what its layers are made of; by default those of GPT-2, without biases.
        attention: how values are mixed; each layer has a copy of its own. By default by softmax.
        causal: whether a token sees only itself and what stands before it.
        seed: draws the initial weights. Every weight outside the scheme is the same, to the bit, for every scheme.

    Raises:
        ValueError: if a size is below 1, heads do not divide, or the scheme has fewer positions than `context`,
            adds to logits that this attention does not have, or needs a causal model.
    """

    def __init__(
        self,
        vocab_size: int,
        context: int,
        layers: int,
        width: int,
        heads: int,
        scheme: PositionScheme,
        family: Family | None = None,
        attention: AttentionOp | None = None,
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
        family, attention = family or Family(), attention or Softmax()
        _check(sizes, scheme, attention, causal)
        self.causal = causal
        self.embedding = nn.Embedding(vocab_size, width)
        layer = ParallelBlock if family.parallel else Block
        self.blocks = nn.ModuleList(
            layer(width, heads, causal, family, copy.deepcopy(attention)) for _ in range(layers)
        )
        self.norm = family.normalisation(width)
        self.output = nn.Linear(width, vocab_size, bias=False)
        if family.tied:
            self.output.weight = self.embedding.weight
        self.scheme = scheme
        self.initialise(seed)

    def initialise(self, seed: int) -> None:
        """GPT-2's weights: normal, std 0.02, the projections into the residual stream by 1/sqrt(2 layers) smaller.

        Biases are 0. The trunk is drawn first and the scheme last, so that a scheme with parameters moves no other
        weight.
        """
        generator = torch.Generator().manual_seed(seed)
        into_residual = EMBEDDING_STD / math.sqrt(2 * len(self.blocks))
        for name, weight in self.named_parameters():
            if name.startswith("scheme."):
                continue
            if weight.ndim == 2:
                small = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                nn.init.normal_(weight, std=into_residual if small else EMBEDDING_STD, generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        for block in self.blocks:
            assert isinstance(block, Block)
            block.attention.op.initialise(generator)
        self.scheme.initialise(generator)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """tokens (B, T), positions (T,) or None for 0 .. T-1 -> logits (B, T, V)."""
        return self.output(self.hidden(tokens, positions))

    def hidden(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """What the output makes logits of: as `forward` -> (B, T, D)."""
        x, contexts = self._placed(tokens, positions)
        for block, context in zip(self.blocks, contexts, strict=True):
            x = block(x, context)
        return self.norm(x)

    def attention_probs(self, tokens: Tensor) -> Iterator[Tensor]:
        """tokens (B, T) -> what every head attends to, (B, H, T, T), one layer after the other."""
        x, contexts = self._placed(tokens)
        for block, context in zip(self.blocks, contexts, strict=True):
            assert isinstance(block, Block)
            yield block.attention.attention_probs(block.attention_norm(x), context)
            if block is not self.blocks[-1]:
                x = block(x, context)

    def position_share(self, tokens: Tensor) -> float | None:
        """The position encoding's share of the variance that the first norm sees; None where nothing is added.

        Variances are over the D channels, as a LayerNorm takes them, and their mean over the tokens (B, T).
        """
        encoding = self.scheme.encoding(torch.arange(tokens.shape[-1], device=tokens.device))
        if encoding is None:
            return None
        x, _ = self._placed(tokens)
        of_encoding, of_both = (part.float().var(-1, correction=0).mean() for part in (encoding, x))
        return (of_encoding / of_both).item()

    def _placed(self, tokens: Tensor, positions: Tensor | None = None) -> tuple[Tensor, list[PositionContext]]:
        """The embeddings (B, T, D) of tokens (B, T), and for each layer the context of their positions."""
        if positions is None:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
        contexts: list[PositionContext] = []
        for index in range(len(self.blocks)):
            scheme = self.scheme.layer(index)
            same = [context for context in contexts if context.scheme is scheme]
            contexts.append(same[0] if same else self._context(scheme, positions))
        return self.scheme.embed(self.embedding(tokens), positions), contexts

    def _context(self, scheme: LayerScheme, positions: Tensor) -> PositionContext:
        bias = scheme.bias(positions)
        return PositionContext(scheme, positions, None if bias is None else hide_future(bias, self.causal)[None])


def _check(sizes: Mapping[str, int], scheme: PositionScheme, attention: AttentionOp, causal: bool) -> None:
    """Refuse what `Transformer` says that it raises."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size} must be at least 1")
    if sizes["width"] % sizes["heads"]:
        raise ValueError(f"width={sizes['width']} must be a multiple of heads={sizes['heads']}")
    if scheme.longest is not None and sizes["context"] > scheme.longest:
        raise ValueError(
            f"context={sizes['context']} is longer than the {scheme.longest} positions that the scheme can place"
        )
    if scheme.causal_only and not causal:
        raise ValueError(
            f"{type(scheme).__name__} needs a model in which no token sees what comes after it: "
            "take objective=causal or another pos"
        )
    if not attention.has_logits and _adds_to_logits(scheme, sizes["layers"], sizes["width"], sizes["heads"]):
        kind = type(attention).__name__.lower()
        raise ValueError(
            f"the scheme adds a bias to attention's logits, and {kind} attention has none: "
            "take attention=softmax or another pos"
        )


def _adds_to_logits(scheme: PositionScheme, layers: int, width: int, heads: int) -> bool:
    """Whether the scheme has a bias in any layer, asked with one token."""
    x, q = torch.zeros(1, 1, width), torch.zeros(1, heads, 1, width // heads)
    at = torch.zeros(1, dtype=torch.long)
    here = [scheme.layer(index) for index in range(layers)]
    return any(one.bias(at) is not None or one.content_bias(x, q, q, at) is not None for one in here)
