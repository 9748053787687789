"""Planes of channels turned by angles: what RoPE does to queries and keys."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Layout = Literal["half", "interleaved"]
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


def _few_passes_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = x * _join_half(cos, cos)
    (first, second), (new_first, new_second) = _split_half(x), _split_half(turned)
    new_first.addcmul_(second, sin, value=-1)
    new_second.addcmul_(first, sin)
    return turned


def _few_passes_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    planes = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))  # some of a head's channels are not that
    return torch.view_as_real(planes * torch.complex(cos, sin)).flatten(-2)


class Planes(NamedTuple):
    """Which channels form a plane.

    Attributes:
        split: x (.., d) -> the first and the second channel of every plane, (.., d/2) each.
        join: the way back.
        few_passes: `by_formula` over contiguous x (.., T, d), in as few passes over memory as torch's operations allow.
    """

    split: Callable[[Tensor], Pairs]
    join: Callable[[Tensor, Tensor], Tensor]
    few_passes: Callable[[Tensor, Tensor, Tensor], Tensor]


LAYOUTS: dict[Layout, Planes] = {
    "half": Planes(_split_half, _join_half, _few_passes_half),
    "interleaved": Planes(_split_interleaved, _join_interleaved, _few_passes_interleaved),
}
"""Channel i with i + d/2 (LLaMA's code), or 2i with 2i + 1 (the paper, whose planes are complex numbers)."""


def turn(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Turn the first d channels of x (.., T, Dh) by the angles of cos and sin, (T, d/2), d at most Dh.

    The result has the shape and type of x; the turn itself is in float32.
    """
    if torch.compiler.is_compiling():  # a compiler makes one pass over memory of the formula
        rotated = 2 * cos.shape[-1]
        turned = by_formula(x[..., :rotated], cos, sin, layout).to(x.dtype)
        return turned if rotated == x.shape[-1] else torch.cat([turned, x[..., rotated:]], dim=-1)
    return Turn.apply(x, cos, sin, layout)


def by_formula(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Each plane of x (.., T, d) turned, with cos and sin (T, d/2) (Su et al. 2021, section 3.4.2, equation 34)."""
    planes = LAYOUTS[layout]
    first, second = planes.split(x)
    return planes.join(first * cos - second * sin, first * sin + second * cos)


class Turn(torch.autograd.Function):
    """`turn` without a compiler. Its gradient is the turn back, so that nothing of x is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.layout = layout
        rotated = 2 * cos.shape[-1]
        wide = x.to(torch.promote_types(x.dtype, cos.dtype), memory_format=torch.contiguous_format).contiguous()
        turned = LAYOUTS[layout].few_passes(wide[..., :rotated], cos, sin)
        if rotated < x.shape[-1]:
            turned = torch.cat([turned, wide[..., rotated:]], dim=-1)
        return turned.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return turn(gradient, cos, -sin, ctx.layout), None, None, None
