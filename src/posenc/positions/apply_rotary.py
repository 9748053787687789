"""The rotation that RoPE applies to queries and keys."""

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


def _fused_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    result = x * _join_half(cos, cos)
    (first, second), (new_first, new_second) = _split_half(x), _split_half(result)
    new_first.addcmul_(second, sin, value=-1)
    new_second.addcmul_(first, sin)
    return result


def _fused_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    planes = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))  # a slice of channels is not contiguous
    return torch.view_as_real(planes * torch.complex(cos, sin)).flatten(-2)


class Planes(NamedTuple):
    """How channels are paired into planes.

    Attributes:
        split: x (.., d) -> the first and the second channel of every plane, (.., d/2) each.
        join: the inverse of split.
        fused: `rotate_planes` of x (.., T, d), with as few passes over memory as torch's operations allow.
    """

    split: Callable[[Tensor], Pairs]
    join: Callable[[Tensor, Tensor], Tensor]
    fused: Callable[[Tensor, Tensor, Tensor], Tensor]


LAYOUTS: dict[Layout, Planes] = {
    "half": Planes(_split_half, _join_half, _fused_half),
    "interleaved": Planes(_split_interleaved, _join_interleaved, _fused_interleaved),
}
"""Channel i paired with i + d/2 (LLaMA's code), or 2i with 2i + 1 (the paper, whose planes are complex numbers)."""


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Rotate the first d channels of x (.., T, Dh) by the angles of cos and sin, (T, d/2), d at most Dh.

    The result has the shape and dtype of x; the rotation is computed in float32. All three tensors are differentiable.
    """
    if heads_inside_tokens(x):
        return _applied(x.transpose(1, 2), cos.unsqueeze(-2), sin.unsqueeze(-2), layout).transpose(1, 2)
    return _applied(x, cos, sin, layout)


def heads_inside_tokens(x: Tensor) -> bool:
    """Whether x (B, H, T, Dh) is a projection's output, (B, T, H, Dh) in memory, on an accelerator.

    The result should keep that order: fused attention kernels write their output in the order of the queries, and in
    another it would be copied before the next projection.
    """
    return x.dim() == 4 and not x.is_cpu and x.stride(1) < x.stride(2)


def _applied(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """`apply_rotary` without regard to the order in memory."""
    if torch.compiler.is_compiling():  # the compiler fuses the formula into one pass over memory
        rotated = 2 * cos.shape[-1]
        first = rotate_planes(x[..., :rotated], cos, sin, layout).to(x.dtype)
        return first if rotated == x.shape[-1] else torch.cat([first, x[..., rotated:]], dim=-1)
    return ApplyRotary.apply(x, cos, sin, layout)


def rotate_planes(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Each plane of x (.., T, d) rotated, with cos and sin (T, d/2) (Su et al. 2021, section 3.4.2, equation 34)."""
    planes = LAYOUTS[layout]
    first, second = planes.split(x)
    return planes.join(first * cos - second * sin, first * sin + second * cos)


class ApplyRotary(torch.autograd.Function):
    """`apply_rotary` in eager mode. The backward pass rotates the gradient back, for which x need not be saved.

    x is saved only if cos or sin require a gradient, as for trained frequencies or angles.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        ctx.save_for_backward(cos, sin, *([x] if any(ctx.needs_input_grad[1:3]) else []))
        rotated = 2 * cos.shape[-1]
        # One copy at most: `to` converts and packs in one pass, but returns x as it is if it has the dtype already.
        wide = x.to(torch.promote_types(x.dtype, cos.dtype), memory_format=torch.contiguous_format).contiguous()
        result = LAYOUTS[layout].fused(wide[..., :rotated], cos, sin)
        if rotated < x.shape[-1]:
            result = torch.cat([result, wide[..., rotated:]], dim=-1)
        return result.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        cos, sin, *saved = ctx.saved_tensors
        dx = _applied(gradient, cos, -sin, ctx.layout) if ctx.needs_input_grad[0] else None
        return dx, *(_angle_gradients(gradient, saved[0], cos, ctx.layout) if saved else (None, None)), None


def _angle_gradients(gradient: Tensor, x: Tensor, cos: Tensor, layout: Layout) -> Pairs:
    """The gradients of cos and sin, summed over everything that shares an angle."""
    rotated = 2 * cos.shape[-1]
    (first, second), (d_first, d_second) = (
        LAYOUTS[layout].split(part[..., :rotated].to(cos.dtype)) for part in (x, gradient)
    )
    d_cos, d_sin = d_first * first + d_second * second, d_second * first - d_first * second
    return d_cos.sum_to_size(cos.shape), d_sin.sum_to_size(cos.shape)
