"""The interface of position schemes: the hooks through which they act on a transformer."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

EMBEDDING_STD = 0.02
"""Standard deviation of the token embeddings at initialisation, which `scale=matched` matches."""


class LayerScheme(Protocol):
    """The three hooks of `PositionScheme` that act on attention, and the parameters that they use."""

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]: ...

    def bias(self, positions: Tensor) -> Tensor | None: ...

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor | None: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


class PositionScheme(nn.Module):
    """Base class of all schemes, and itself the one without positions.

    A scheme overrides one of the hooks `encoding` (or `embed`), `rotate`, `bias` and `content_bias`. One that differs
    by layer overrides `layer`, and one that wraps another delegates to it.

    `positions` is a (T,) tensor of non-negative integers, with any offset or gaps; angle tables end at 2^20.

    Attributes:
        max_length: the maximum sequence length, None if there is no limit.
        causal_only: whether it is defined for causal models only.
        rotates: whether `rotate` is a rotation of queries and keys, so that linear attention can apply it to features.
    """

    max_length: int | None = None
    causal_only = False
    rotates = True

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the encoding to the token embeddings x (B, T, D), once per forward pass, -> (B, T, D)."""
        encoding = self.encoding(positions)
        return x if encoding is None else x + encoding.to(x.dtype)

    def encoding(self, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """What `embed` adds to the token embeddings, (T, D), or None if that is nothing, or depends on the tokens."""
        return None

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Apply positions, in every layer: queries (B, H, T, Dh), keys (B, G, T, Dh) -> (B, H, T, E), (B, G, T, E).

        With grouped-query attention there are G < H key-value heads. E is Dh or larger; logits are divided by sqrt(Dh).
        """
        return q, k

    def bias(self, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """The bias of the attention logits, (H, T, T), or None. Computed once for all layers that share a scheme."""
        return None

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """A bias of the attention logits that depends on the tokens, (B, H, T, T), finite, or None.

        Args:
            x: the input of attention, (B, T, D).
            q: queries before rotation, (B, H, T, Dh).
            k: keys before rotation, (B, G, T, Dh), with G key-value heads.
            positions: (T,).
        """
        return None

    def layer(self, index: int) -> LayerScheme:  # noqa: ARG002
        """The scheme of layer `index`, from 0. Layers that return equal objects share one `bias`."""
        return self

    def check_effect(self, layers: int, context: int, steps: int) -> None:
        """Called once, before a run with so many layers, tokens per window and training steps.

        Raises:
            ValueError: if an argument of the scheme has no effect there; it begins with the argument, as in `start=9`.
        """

    def at_step(self, step: int) -> None:
        """Called before each training step and each validation with the number of updates so far."""

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Initialise the scheme's parameters, if it has any.

        The model calls it after initialising all other weights, with a generator of the run's seed. Constructors call
        it too, so that a scheme can be used on its own.
        """
