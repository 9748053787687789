"""Causal attention as matrix products, for CPUs whose fused kernel is slower than that in bfloat16."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from posenc.compat import softmax_backward

BLOCK = 64
"""Queries taken together: fewer make smaller products, more meet more keys that lie ahead of them, in vain."""


def causal_products(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """softmax(scale q k^T) v, where no query sees a key behind it: q and k (N, T, E), v (N, T, Dh) -> (N, T, Dh).

    A block of queries is multiplied with the keys up to its end alone, so that nearly half of the work is left out.
    The gradient is written by hand: automatic, each block's share of it would be padded with zeros to full length.
    It has no gradient itself. A compiler calls all this as it is, and fuses what is around it.
    """
    return _forward(q, k, v, scale)[0]


@torch.library.custom_op("posenc::causal_products", mutates_args=())
def _forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """What is mixed, and for the gradient what each block of queries took from its keys, in one row."""
    mixed, shares = torch.empty_like(v, memory_format=torch.contiguous_format), q.new_empty(_size(q))
    for (start, end), block in zip(_blocks(q.shape[-2]), _views(shares, q), strict=True):
        logits = _causal_logits(q[:, start:end], k[:, :end], scale)
        torch.softmax(logits, -1, out=block)
        torch.bmm(block, v[:, :end], out=mixed[:, start:end])
    return mixed, shares


@torch.library.custom_op("posenc::causal_products_backward", mutates_args=())
def _backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, shares: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, from that of what was mixed."""
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    dk, dv = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (k, v))
    for (start, end), block in zip(_blocks(q.shape[-2]), _views(shares, q), strict=True):
        of_mixed = gradient[:, start:end]
        of_shares = torch.bmm(of_mixed, v[:, :end].mT)
        of_logits = softmax_backward(of_shares, block)
        torch.bmm(of_logits, k[:, :end], out=dq[:, start:end])
        dk[:, :end] += torch.bmm(of_logits.mT, q[:, start:end])
        dv[:, :end] += torch.bmm(block.mT, of_mixed)
    return dq.mul_(scale), dk.mul_(scale), dv


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(v, memory_format=torch.contiguous_format), q.new_empty(_size(q))


@_backward.register_fake
def _(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, shares: Tensor, scale: float) -> tuple[Tensor, ...]:  # noqa: ARG001
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, of_mixed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(of_mixed, *ctx.saved_tensors, ctx.scale), None


_forward.register_autograd(_gradients, setup_context=_keep)


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    """Where each block of queries begins and ends."""
    return ((start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def _size(q: Tensor) -> int:
    """Of the shares of all blocks."""
    return q.shape[0] * sum((end - start) * end for start, end in _blocks(q.shape[-2]))


def _views(shares: Tensor, q: Tensor) -> Iterator[Tensor]:
    """The shares of each block, (N, R, T')."""
    shapes = [(q.shape[0], end - start, end) for start, end in _blocks(q.shape[-2])]
    parts = shares.split([number * rows * columns for number, rows, columns in shapes])
    return (part.view(shape) for part, shape in zip(parts, shapes, strict=True))


def _causal_logits(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Of the queries q (N, R, E), the last R of a sequence, with its keys k (N, T, E) -> (N, R, T)."""
    rows, columns = q.shape[-2], k.shape[-2]
    logits = torch.baddbmm(
        q.new_empty(()).expand(len(q), rows, columns), q, k.mT, beta=0, alpha=scale
    )  # beta=0: what is not there is not read
    future = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    logits[..., columns - rows :].masked_fill_(future, -torch.inf)
    return logits
