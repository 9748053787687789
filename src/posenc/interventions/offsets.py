"""Attention at given offsets, biased or masked, during part of training."""

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from posenc.bounds import NonNegativeInt, PositiveInt
from posenc.interventions.base import Intervention, check_layers
from posenc.positions.base import LayerScheme, PositionScheme
from posenc.positions.bias import relative_positions


class OffsetBias(Intervention):
    """Adds a fixed bias to the logits at given offsets; offset 1 makes previous-token heads.

    Whether it is active is a tensor filled before each step, so a compiled model needs no second graph and a resumed
    run behaves like an uninterrupted one.

    Args:
        heads: H.
        offsets: distances from the query back to the key.
        strength: the bias.
        in_heads: the number of heads per layer, starting with the first; None for all.
        in_layers: layer indices, from 0; None for all.
        start, stop: numbers of updates after which it starts and stops; None for never.

    Raises:
        ValueError: if offsets are none, repeated or below 1, in_heads is above H, or start is after stop.
    """

    active: Tensor

    def __init__(
        self,
        scheme: PositionScheme,
        heads: PositiveInt,
        offsets: list[int],
        strength: Annotated[float, Ge(-1e30), Le(1e30)],
        in_heads: PositiveInt | None = None,
        in_layers: list[int] | None = None,
        start: NonNegativeInt = 0,
        stop: NonNegativeInt | None = None,
    ) -> None:
        super().__init__(scheme)
        if not offsets or any(offset < 1 for offset in offsets) or len(set(offsets)) < len(offsets):
            raise ValueError(f"offsets={list(offsets)} must be one or more different integers, each at least 1")
        if in_heads is not None and in_heads > heads:
            raise ValueError(f"in_heads={in_heads} must be at most the model's {heads} heads, or null for all")
        if stop is not None and stop < start:
            raise ValueError(f"start={start} must not be after stop={stop}")
        self.strength = strength
        self.offsets, self.in_layers, self.start, self.stop = tuple(offsets), in_layers, start, stop
        self.heads, self.in_heads = heads, heads if in_heads is None else in_heads
        self.register_buffer("active", torch.tensor(start == 0), persistent=False)

    def check_effect(self, layers: int, context: int, steps: int) -> None:
        if self.in_layers is not None:
            check_layers(self.in_layers, layers)
        if far := [offset for offset in self.offsets if offset >= context]:
            raise ValueError(f"offsets={far} must be below context={context}")
        if self.start >= steps:
            raise ValueError(f"start={self.start} must be below steps={steps}")

    def at_step(self, step: int) -> None:
        super().at_step(step)
        self.active.fill_(self.start <= step and (self.stop is None or step < self.stop))

    def layer(self, index: int) -> LayerScheme:
        return super().layer(index) if self.in_layers is None or index in self.in_layers else self.scheme.layer(index)

    def layer_bias(self, inner: LayerScheme, positions: Tensor) -> Tensor:
        offset = relative_positions(positions)
        at_offsets = torch.stack([offset == target for target in self.offsets]).any(0)  # (T, T), query by key
        heads = torch.arange(self.heads, device=positions.device) < self.in_heads
        added = torch.where(at_offsets & heads[:, None, None] & self.active, self.strength, 0.0)
        bias = inner.bias(positions)
        return added if bias is None else bias + added


class OffsetMask(OffsetBias):
    """Masks attention at given offsets; a token can always attend to itself.

    Args:
        heads, offsets, in_heads, in_layers, start, stop: as in `OffsetBias`.
    """

    def __init__(
        self,
        scheme: PositionScheme,
        heads: PositiveInt,
        offsets: list[int],
        in_heads: PositiveInt | None = None,
        in_layers: list[int] | None = None,
        start: NonNegativeInt = 0,
        stop: NonNegativeInt | None = None,
    ) -> None:
        super().__init__(scheme, heads, offsets, -torch.inf, in_heads, in_layers, start, stop)
