"""The model: embeddings, layers and output, with the hooks of a position scheme."""

import copy
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from posenc.bounds import at_least_one
from posenc.model.attention import AttentionOp, PositionContext, Softmax, mask_future
from posenc.model.block import Block, Family
from posenc.positions import PositionScheme
from posenc.positions.base import EMBEDDING_STD, LayerScheme


class Transformer(nn.Module):
    """A pre-norm transformer language model.

    Args:
        vocab_size: V.
        context: the training sequence length; the scheme must support that many positions.
        layers, width, heads: D = width, Dh = width / heads.
        scheme: the position scheme. The model does not depend on which scheme it is.
        family: the architecture of the layers; by default GPT-2's without biases, and with exact GELU.
        attention: the attention op, copied for each layer; by default `Softmax`.
        causal: whether a token attends only to itself and earlier tokens.
        seed: of the initial weights. Every weight outside the scheme is bitwise equal for all schemes.

    Raises:
        ValueError: if a size is below 1, heads does not divide width, or the scheme supports fewer positions than
            `context`, needs logits that this attention does not have, or needs a causal model.
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
        at_least_one(vocab_size=vocab_size, context=context, layers=layers, width=width, heads=heads)
        family, attention = family or Family(), attention or Softmax()
        _check(context, layers, width, heads, scheme, family, attention, causal)
        self.causal, self.family = causal, family
        self.embedding = nn.Embedding(vocab_size, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, causal, family, copy.deepcopy(attention)) for _ in range(layers)
        )
        self.norm = family.normalisation(width)
        self.output = nn.Linear(width, vocab_size, bias=False)
        if family.tied:
            self.output.weight = self.embedding.weight
        self.scheme = scheme
        self.initialise(seed)

    def initialise(self, seed: int) -> None:
        """GPT-2's initialisation: normal with std 0.02, scaled by 1/sqrt(2 layers) for the residual projections.

        Biases are 0. The scheme is initialised last, so that its parameters do not change the other weights.
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
        """tokens (B, T), positions (T,) or None for 0 .. T-1 -> logits (B, T, V).

        Raises:
            ValueError: for positions of another shape.
        """
        return self.output(self.hidden(tokens, positions))

    def hidden(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Final hidden states, the input of the output layer: arguments as `forward` -> (B, T, D)."""
        x, contexts = self._embed(tokens, positions)
        for block, context in zip(self.blocks, contexts, strict=True):
            x = block(x, context)
        return self.norm(x)

    def attention_probs(self, tokens: Tensor) -> Iterator[Tensor]:
        """tokens (B, T) -> attention probabilities (B, H, T, T), layer by layer."""
        x, contexts = self._embed(tokens)
        for block, context in zip(self.blocks, contexts, strict=True):
            assert isinstance(block, Block)
            yield block.attention.attention_probs(block.attention_norm(x), context)
            if block is not self.blocks[-1]:
                x = block(x, context)

    def position_share(self, tokens: Tensor) -> float | None:
        """The variance of the position encoding relative to that of the first norm's input; None if nothing is added.

        Variances are over the D channels, as in LayerNorm, and averaged over the tokens (B, T). What the encoding adds
        equally at every position counts too, and where tokens and encoding cancel the ratio exceeds 1.
        """
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        encoding = self.scheme.encoding(positions)
        if encoding is None:
            return None
        x = self.scheme.embed(self.embedding(tokens), positions)
        encoding_variance, variance = (part.float().var(-1, correction=0).mean() for part in (encoding, x))
        return (encoding_variance / variance).item()

    def _embed(self, tokens: Tensor, positions: Tensor | None = None) -> tuple[Tensor, list[PositionContext]]:
        """tokens (B, T) -> embeddings (B, T, D), and the position context of each layer."""
        if positions is None:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
        elif positions.shape != tokens.shape[-1:]:  # a bias would broadcast
            shape = tuple(tokens.shape[-1:])
            raise ValueError(f"positions must be {shape}, the same for the whole batch, not {tuple(positions.shape)}")
        contexts: list[PositionContext] = []
        for index in range(len(self.blocks)):
            scheme = self.scheme.layer(index)
            same = [context for context in contexts if context.scheme == scheme]
            contexts.append(same[0] if same else self._context(scheme, positions))
        return self.scheme.embed(self.embedding(tokens), positions), contexts

    def _context(self, scheme: LayerScheme, positions: Tensor) -> PositionContext:
        bias = scheme.bias(positions)
        return PositionContext(scheme, positions, None if bias is None else mask_future(bias, self.causal)[None])


def _check(
    context: int,
    layers: int,
    width: int,
    heads: int,
    scheme: PositionScheme,
    family: Family,
    attention: AttentionOp,
    causal: bool,
) -> None:
    """Raise the errors documented in `Transformer`."""
    if width % heads:
        raise ValueError(f"width={width} must be a multiple of heads={heads}")
    if scheme.max_length is not None and context > scheme.max_length:
        raise ValueError(f"context={context} is longer than the {scheme.max_length} positions that the scheme supports")
    if scheme.causal_only and not causal:
        raise ValueError(
            f"{type(scheme).__name__} needs a causal model: use objective=causal, or another pos or intervention"
        )
    biased = _check_hooks(scheme, context, layers, width, heads, family.num_kv_heads(heads))
    if not attention.has_logits and (biased or not scheme.rotates):
        raise ValueError(
            f"{type(attention).__name__.lower()} attention supports only schemes that rotate queries and keys or add "
            f"to the embeddings, not {type(scheme).__name__}: use attention=softmax, or another pos or intervention"
        )


def _check_hooks(scheme: PositionScheme, context: int, layers: int, width: int, heads: int, kv_heads: int) -> bool:
    """Check the shapes that the scheme's hooks return, on two tokens -> whether it has a bias in any layer."""
    length = min(2, context)
    x, positions = torch.zeros(1, length, width), torch.arange(length)
    q, k = (torch.zeros(1, number, length, width // heads) for number in (heads, kv_heads))
    name = type(scheme).__name__
    _check_shape(f"{name}.encoding", scheme.encoding(positions), (length, width))
    _check_shape(f"{name}.embed", scheme.embed(x, positions), (1, length, width))
    biased = False
    for index in range(layers):
        layer = scheme.layer(index)
        of = f"{name}." if layer is scheme else f"layer {index} of {name}: "
        bias, content_bias = layer.bias(positions), layer.content_bias(x, q, k, positions)
        for rotated, number in zip(layer.rotate(q, k, positions), (heads, kv_heads), strict=True):
            _check_shape(f"{of}rotate", rotated[..., :1], (1, number, length, 1))
        _check_shape(f"{of}bias", bias, (heads, length, length))
        _check_shape(f"{of}content_bias", content_bias, (1, heads, length, length))
        biased |= bias is not None or content_bias is not None
    return biased


def _check_shape(hook: str, returned: Tensor | None, expected: tuple[int, ...]) -> None:
    if returned is not None and returned.shape != expected:
        raise ValueError(f"{hook} returns shape {tuple(returned.shape)}, not {expected}")
