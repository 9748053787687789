"""Rotary position embedding (Su et al. 2021): the door `rotate`."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from posenc.positions.angles import AngleTable, frequencies
from posenc.positions.base import PositionScheme

Pairs = tuple[Tensor, Tensor]


def _split_half(x: Tensor) -> Pairs:
    first, second = x.chunk(2, dim=-1)
    return first, second


def _join_half(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat([first, second], dim=-1)


def _split_interleaved(x: Tensor) -> Pairs:
    return x[..., 0::2], x[..., 1::2]


def _join_interleaved(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack([first, second], dim=-1).flatten(-2)


LAYOUTS: dict[str, tuple[Callable[[Tensor], Pairs], Callable[[Tensor, Tensor], Tensor]]] = {
    "half": (_split_half, _join_half),
    "interleaved": (_split_interleaved, _join_interleaved),
}
"""Which channels form a plane: i with i + d/2 (LLaMA's code), or 2i with 2i + 1 (the paper)."""


class Rotary(PositionScheme):
    """Turn each plane of q and k by m theta_i, so that q.k depends on the offset alone (section 3.2, equation 34).

    Args:
        head_dim: Dh.
        base: theta_i = base^(-2i/d), d the number of rotated channels.
        layout: which channels form a plane. One mathematics: the two differ by a permutation of the channels.
        fraction: share of each head that turns, its first channels; the rest carries no position.

    Raises:
        ValueError: if the rotated channels are not an even number between 2 and Dh, the layout is unknown, or the
            base is not positive.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        layout: Literal["half", "interleaved"] = "half",
        fraction: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction={fraction} must be above 0 and at most 1")
        self.rotated = round(head_dim * fraction)
        if self.rotated < 2 or self.rotated % 2:
            raise ValueError(
                f"head_dim={head_dim} with fraction={fraction} turns {self.rotated} channels, "
                "which must be an even number, at least 2"
            )
        if layout not in LAYOUTS:
            raise ValueError(f"layout={layout} must be one of {', '.join(LAYOUTS)}")
        self.split, self.join = LAYOUTS[layout]
        self.angles = AngleTable(frequencies(self.rotated, base))

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.angles(positions)
        return self._turn(q, cos, sin), self._turn(k, cos, sin)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, H, T, Dh) with cos, sin (T, rotated/2) -> the same shape and type; the turn itself is in float32."""
        first, second = self.split(x[..., : self.rotated])
        turned = self.join(first * cos - second * sin, first * sin + second * cos).to(x.dtype)
        return torch.cat([turned, x[..., self.rotated :]], dim=-1) if self.rotated < x.shape[-1] else turned
