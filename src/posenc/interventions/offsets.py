"""Attention at chosen offsets, raised by a fixed bias or forbidden, for a part of the training."""

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.interventions.base import Intervention
from posenc.positions.base import LayerScheme, PositionScheme


class _AtOffsets(Intervention):
    """Acts on the logits at some offsets, in some heads and layers, from one step to another.

    Whether it acts is a tensor, filled before each step: a compiled model needs no second graph, and a resumed run
    acts as it would have.
    """

    active: Tensor

    def __init__(
        self,
        scheme: PositionScheme,
        heads: int,
        offsets: Sequence[int],
        in_heads: int | None,
        layers: Sequence[int] | None,
        start: int,
        stop: int | None,
    ) -> None:
        super().__init__(scheme)
        if not offsets or any(offset < 1 for offset in offsets):
            raise ValueError(f"offsets={list(offsets)} must be one or more whole numbers, each at least 1")
        if in_heads is not None and not 1 <= in_heads <= heads:
            raise ValueError(f"in_heads={in_heads} must be between 1 and the model's {heads} heads, or null for all")
        if start < 0 or (stop is not None and stop < start):
            raise ValueError(f"start={start} must not be negative, nor after stop={stop}")
        self.offsets, self.layers, self.start, self.stop = tuple(offsets), layers, start, stop
        self.heads, self.in_heads = heads, heads if in_heads is None else in_heads
        self.register_buffer("active", torch.tensor(start == 0), persistent=False)

    def at_step(self, step: int) -> None:
        super().at_step(step)
        self.active.fill_(self.start <= step and (self.stop is None or step < self.stop))

    def layer(self, index: int) -> LayerScheme:
        return super().layer(index) if self.layers is None or index in self.layers else self.scheme.layer(index)

    def at_offsets(self, positions: Tensor) -> Tensor:
        """Where it acts now: positions (T,) -> bool (H, T, T), query by key."""
        offset = positions[:, None] - positions[None, :]
        there = torch.zeros_like(offset, dtype=torch.bool)
        for wanted in self.offsets:
            there = there | (offset == wanted)
        heads = torch.arange(self.heads, device=positions.device) < self.in_heads
        return there & heads[:, None, None] & self.active

    def bias_around(self, within: LayerScheme, positions: Tensor) -> Tensor | None:
        bias, there = within.bias(positions), self.at_offsets(positions)
        zero = torch.zeros(there.shape, device=there.device) if bias is None else bias
        return self.changed(zero, there)

    def changed(self, bias: Tensor, there: Tensor) -> Tensor:
        """The bias (H, T, T) with the intervention in it."""
        raise NotImplementedError


class OffsetBias(_AtOffsets):
    """Adds a fixed bias to the logits at some offsets: with offset 1, heads that look at the previous token.

    Args:
        scheme: the scheme within.
        heads: of the model.
        offsets: how far before the query the keys stand.
        strength: the bias.
        in_heads: in how many heads of a layer, the first ones; None for all.
        layers: in which layers, from 0; None for all.
        start, stop: updates after which it begins and ends; None for never.
    """

    def __init__(
        self,
        scheme: PositionScheme,
        heads: int,
        offsets: Sequence[int] = (1,),
        strength: float = 6.0,
        in_heads: int | None = 1,
        layers: Sequence[int] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        super().__init__(scheme, heads, offsets, in_heads, layers, start, stop)
        self.strength = strength

    def changed(self, bias: Tensor, there: Tensor) -> Tensor:
        return bias + self.strength * there


class OffsetMask(_AtOffsets):
    """Forbids attention at some offsets; a token always sees itself.

    Args:
        scheme, heads, offsets, in_heads, layers, start, stop: as in `OffsetBias`, but in all heads by default.
    """

    def __init__(
        self,
        scheme: PositionScheme,
        heads: int,
        offsets: Sequence[int] = (1,),
        in_heads: int | None = None,
        layers: Sequence[int] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        super().__init__(scheme, heads, offsets, in_heads, layers, start, stop)

    def changed(self, bias: Tensor, there: Tensor) -> Tensor:
        return bias.masked_fill(there, -torch.inf)
