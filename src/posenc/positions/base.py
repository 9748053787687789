"""The three doors through which a position scheme may touch a transformer."""

import torch
from torch import Tensor, nn

EMBEDDING_STD = 0.02
"""Standard deviation of the token embeddings at initialisation, and so the size an additive scheme must match."""


class PositionScheme(nn.Module):
    """No positions at all; every other scheme overrides one of the three doors.

    `positions` is always a (T,) integer tensor, so that shifted, gapped and far positions are ordinary inputs.

    Attributes:
        longest: the longest sequence the scheme can place, None where there is no limit.
        causal_only: whether it has no meaning where a token sees what comes after it.
    """

    longest: int | None = None
    causal_only = False

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """Place the token embeddings x (B, T, D), once a forward -> (B, T, D)."""
        return x

    def encoding(self, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """What `embed` adds to the token embeddings, (T, D); None for nothing. Only measured, never called to train."""
        return None

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Place queries and keys, each (B, H, T, Dh), in every layer -> the same shapes."""
        return q, k

    def bias(self, positions: Tensor) -> Tensor | None:  # noqa: ARG002
        """What to add to the attention logits: (H, T, T), or None for nothing."""
        return None

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the scheme's own parameters, if it has any. Called after every other weight has been drawn."""
