"""The doors (hooks) through which a position scheme may touch a transformer."""

from typing import Protocol

import torch
from torch import Tensor, nn

EMBEDDING_STD = 0.02
"""Standard deviation of the token embeddings at initialisation, and so the size an additive scheme must match."""


class LayerScheme(Protocol):
    """What a layer asks of the scheme: the three hooks of `PositionScheme` that attention calls."""

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]: ...

    def bias(self, positions: Tensor) -> Tensor | None: ...

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor | None: ...


class PositionScheme(nn.Module):
    """No positions at all; every other scheme overrides one of the hooks `embed`, `rotate`, `bias`, `content_bias`.

    A scheme that differs by layer overrides `layer`; one that wraps another asks it at every hook.

    `positions` is always a (T,) integer tensor, so that shifted, gapped and far positions are ordinary inputs.

    Attributes:
        longest: the longest sequence the scheme has positions for, None where there is no limit.
        causal_only: whether it has no meaning where a token sees what comes after it.
    """

    longest: int | None = None
    causal_only = False

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """Add positions to the token embeddings x (B, T, D), once per forward pass, -> (B, T, D)."""
        return x

    def encoding(self, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """What `embed` adds to the token embeddings, (T, D); None for nothing. Only measured, never called to train."""
        return None

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Add positions to queries and keys, each (B, H, T, Dh), in every layer -> the same shapes.

        They may come back with more channels; logits are divided by the square root of Dh all the same.
        """
        return q, k

    def bias(self, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """What to add to the attention logits: (H, T, T), or None for nothing. Made once for layers that share it."""
        return None

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """What to add to the attention logits, from what a layer sees: (B, H, T, T), finite, or None for nothing.

        Args:
            x: the input of attention, (B, T, D).
            q: queries as projected, not yet rotated, (B, H, T, Dh).
            k: keys likewise, (B, G, T, Dh), with G key-value heads.
            positions: (T,).
        """
        return None

    def layer(self, index: int) -> LayerScheme:  # noqa: ARG002
        """What stands in layer `index`, from 0. What is returned twice, the same object, makes its `bias` once."""
        return self

    def at_step(self, step: int) -> None:
        """Called before each training step, and each validation, with the number of updates made so far."""

    def initialise(self, generator: torch.Generator | None = None) -> None:
        """Draw the scheme's own parameters, if it has any.

        A constructor calls it, with torch's global generator; the model does again, after every other weight has been
        drawn, so that one seed gives one model.
        """
