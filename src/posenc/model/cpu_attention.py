"""Blockwise causal attention for CPUs, faster than torch's fused kernel in bfloat16."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from posenc.compat import softmax_backward

BLOCK = 64
"""Queries per block: smaller blocks make smaller matmuls, larger ones compute more logits that are then masked."""


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """softmax(scale q k^T) v with a causal mask: q and k (.., T, E), v (.., T, Dh) -> (.., T, Dh).

    A block of queries is multiplied only with the keys up to its end, which saves nearly half of the work. The backward
    pass is written by hand, since autograd would pad each block's gradient with zeros to full length. It cannot be
    differentiated twice. torch.compile treats it as an opaque op, and fuses around it.

    The gradients of k and v are summed over blocks in the dtype of the input: in bfloat16, at a length of 1,024, their
    relative error is 0.008, where unfused attention has 0.005.
    """
    return _forward(*(x.flatten(0, -3) for x in (q, k, v)), scale)[0].unflatten(0, q.shape[:-2])


@torch.library.custom_op("posenc::causal_attention", mutates_args=())
def _forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The output and, for the backward pass, the attention probabilities of all blocks, flattened."""
    mixed, probs = torch.empty_like(v, memory_format=torch.contiguous_format), q.new_empty(_probs_size(q))
    for (start, end), block in zip(_blocks(q.shape[-2]), _split_probs(probs, q), strict=True):
        logits = _causal_logits(q[:, start:end], k[:, :end], scale)
        torch.softmax(logits, -1, out=block)
        torch.bmm(block, v[:, :end], out=mixed[:, start:end])
    return mixed, probs


@torch.library.custom_op("posenc::causal_attention_backward", mutates_args=())
def _backward(
    d_mixed: Tensor, q: Tensor, k: Tensor, v: Tensor, probs: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    dq = torch.empty_like(q, memory_format=torch.contiguous_format)
    dk, dv = (torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (k, v))
    for (start, end), block in zip(_blocks(q.shape[-2]), _split_probs(probs, q), strict=True):
        d_block = d_mixed[:, start:end]
        d_probs = torch.bmm(d_block, v[:, :end].mT)
        d_logits = softmax_backward(d_probs, block)
        torch.bmm(d_logits, k[:, :end], out=dq[:, start:end])
        dk[:, :end] += torch.bmm(d_logits.mT, q[:, start:end])
        dv[:, :end] += torch.bmm(block.mT, d_block)
    return dq.mul_(scale), dk.mul_(scale), dv


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(v, memory_format=torch.contiguous_format), q.new_empty(_probs_size(q))


@_backward.register_fake
def _(d_mixed: Tensor, q: Tensor, k: Tensor, v: Tensor, probs: Tensor, scale: float) -> tuple[Tensor, ...]:  # noqa: ARG001
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])


def _autograd_backward(ctx: Any, d_mixed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(d_mixed, *ctx.saved_tensors, ctx.scale), None


_forward.register_autograd(_autograd_backward, setup_context=_setup_context)


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    """Start and end of each block of queries."""
    return ((start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def _probs_size(q: Tensor) -> int:
    """Number of probabilities in all blocks."""
    return q.shape[0] * sum((end - start) * end for start, end in _blocks(q.shape[-2]))


def _split_probs(probs: Tensor, q: Tensor) -> Iterator[Tensor]:
    """A view of each block's probabilities, (N, R, T')."""
    shapes = [(q.shape[0], end - start, end) for start, end in _blocks(q.shape[-2])]
    parts = probs.split([number * rows * columns for number, rows, columns in shapes])
    return (part.view(shape) for part, shape in zip(parts, shapes, strict=True))


def _causal_logits(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """q (N, R, E), the last R queries of a sequence, and its keys k (N, T, E) -> masked logits (N, R, T)."""
    rows, columns = q.shape[-2], k.shape[-2]
    logits = torch.baddbmm(
        q.new_empty(()).expand(len(q), rows, columns), q, k.mT, beta=0, alpha=scale
    )  # beta=0: the uninitialised input is not read
    future = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    logits[..., columns - rows :].masked_fill_(future, -torch.inf)
    return logits
