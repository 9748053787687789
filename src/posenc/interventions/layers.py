"""Interventions inside the layers."""

from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Gt, Le
from torch import Tensor

from posenc.bounds import Positive
from posenc.interventions.base import Intervention, check_layers
from posenc.positions.additive import Sinusoidal
from posenc.positions.base import LayerScheme, PositionScheme


class OnlyLayers(Intervention):
    """A scheme in the given layers only; the others have no positions, and their parameters are not trained.

    Args:
        in_layers: layer indices, from 0.

    Raises:
        ValueError: if the list is empty, or has an index that is no layer's or a layer without positions, or the scheme
            adds to the embeddings.
    """

    def __init__(self, scheme: PositionScheme, in_layers: list[int]) -> None:
        super().__init__(scheme)
        if not in_layers or any(layer < 0 for layer in in_layers):
            raise ValueError(f"in_layers={list(in_layers)} must be one or more integers, each at least 0")
        x = torch.ones(1, min(2, scheme.max_length or 2), 1)
        if scheme.embed(x, torch.arange(x.shape[1])) is not x:
            raise ValueError(
                "only_layers needs a scheme that acts in the layers, such as pos=rope: "
                f"{type(scheme).__name__} adds to the embeddings"
            )
        try:
            chosen = {index: scheme.layer(index) for index in in_layers}
        except IndexError as error:  # of a scheme with parameters for each layer
            raise ValueError(f"in_layers={list(in_layers)} must be layers of the model, counted from 0") from error
        if without := [index for index, found in chosen.items() if type(found) is PositionScheme]:
            raise ValueError(f"in_layers={list(in_layers)} must be layers with positions: {without} has none")
        self.in_layers, self.without = tuple(in_layers), PositionScheme()
        used = {id(weight) for found in chosen.values() for weight in found.parameters()}
        for weight in scheme.parameters():
            weight.requires_grad_(id(weight) in used)  # DDP waits for the gradient of every trained parameter

    def check_effect(self, layers: int, context: int, steps: int) -> None:  # noqa: ARG002
        check_layers(self.in_layers, layers)

    def layer(self, index: int) -> LayerScheme:
        return self.scheme.layer(index) if index in self.in_layers else self.without


class KeyShift(Intervention):
    """Key offset: the last channels of every key come from the previous token.

    This is modded-nanogpt's partial key offset where these channels are not rotated. Rotated ones are shifted before
    the rotation, so that only their content is; in layout `half` they are the second channels of planes whose first
    ones are not shifted. CoPE's gates see the keys as they were.

    Args:
        fraction: fraction of the channels that is shifted.
    """

    rotates = False

    def __init__(self, scheme: PositionScheme, fraction: Annotated[float, Gt(0), Le(1)] = 0.5) -> None:
        super().__init__(scheme)
        self.fraction = fraction

    def layer_rotate(self, inner: LayerScheme, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        kept = k.shape[-1] - max(1, round(self.fraction * k.shape[-1]))
        shifted = F.pad(k[..., kept:], (0, 0, 1, -1))  # zeros for the first token
        return inner.rotate(q, torch.cat([k[..., :kept], shifted], dim=-1), positions)


class EncodingInQK(Intervention):
    """Sines and cosines added to the queries and keys of every layer, before the scheme's rotation.

    CoPE's gates see the queries and keys without them.

    Args:
        head_dim: Dh, even.
        scale: amplitude.
        base: the longest wavelength is 2 pi base^(1 - 2/Dh).

    Raises:
        ValueError: if head_dim is odd.
    """

    rotates = False

    def __init__(self, scheme: PositionScheme, head_dim: int, scale: Positive = 1.0, base: Positive = 10_000.0) -> None:
        super().__init__(scheme)
        if head_dim % 2:
            raise ValueError(f"head_dim={head_dim} must be even")
        self.added = Sinusoidal(head_dim, base, scale)
        limit = self.added.max_length
        self.max_length = limit if scheme.max_length is None else min(limit, scheme.max_length)

    def layer_rotate(self, inner: LayerScheme, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        encoding = self.added.encoding(positions).to(q.dtype)
        return inner.rotate(q + encoding, k + encoding, positions)
