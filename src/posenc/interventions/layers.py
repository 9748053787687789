"""Interventions inside the layers: where a scheme acts, and what queries and keys are given."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.interventions.base import Intervention
from posenc.positions.additive import Sinusoidal
from posenc.positions.base import LayerScheme, PositionScheme


class OnlyLayers(Intervention):
    """A scheme in some layers only; the others have no positions.

    Args:
        scheme: the scheme within.
        layers: where it stays, from 0.

    Raises:
        ValueError: if no layer is named.
    """

    def __init__(self, scheme: PositionScheme, layers: Sequence[int] = (0,)) -> None:
        super().__init__(scheme)
        if not layers or any(layer < 0 for layer in layers):
            raise ValueError(f"layers={list(layers)} must be one or more whole numbers, from 0")
        self.layers, self.without = tuple(layers), PositionScheme()

    def layer(self, index: int) -> LayerScheme:
        return self.scheme.layer(index) if index in self.layers else self.without


class KeyShift(Intervention):
    """Key offset: the last channels of every key come from the token before (modded-nanogpt's partial key offset).

    It comes before the rotation of a rotary scheme, so that only what a key says is shifted, not where it stands.

    Args:
        scheme: the scheme within.
        fraction: share of the channels that is shifted.

    Raises:
        ValueError: if the fraction is not above 0 and at most 1.
    """

    def __init__(self, scheme: PositionScheme, fraction: float = 0.5) -> None:
        super().__init__(scheme)
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction={fraction} must be above 0 and at most 1")
        self.fraction = fraction

    def rotate_around(self, within: LayerScheme, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        kept = k.shape[-1] - round(self.fraction * k.shape[-1])
        shifted = F.pad(k[..., kept:], (0, 0, 1, 0))[..., :-1, :]  # the first token has none before it
        return within.rotate(q, torch.cat([k[..., :kept], shifted], dim=-1), positions)


class EncodingInQK(Intervention):
    """Sines and cosines added to the queries and keys of every layer, in place of the embeddings' door.

    Args:
        scheme: the scheme within.
        head_dim: Dh, even.
        scale: amplitude.
        base: the longest wavelength is 2 pi base.
    """

    def __init__(self, scheme: PositionScheme, head_dim: int, scale: float = 1.0, base: float = 10_000.0) -> None:
        super().__init__(scheme)
        self.added = Sinusoidal(head_dim, base, scale)

    def rotate_around(self, within: LayerScheme, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        encoding = self.added.encoding(positions).to(q.dtype)
        return within.rotate(q + encoding, k + encoding, positions)
