"""Causal attention as matrix products, for CPUs whose fused kernel is slower than that in bfloat16."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 64
"""Queries taken together: fewer make smaller products, more meet more keys that lie ahead of them, in vain."""


class CausalProducts(torch.autograd.Function):
    """softmax(q k^T / sqrt(Dh)) v, where no query sees a key behind it: q, k, v (N, T, Dh) each -> (N, T, Dh).

    A block of queries is multiplied with the keys up to its end alone, so that nearly half of the work is left out.
    The gradient is written by hand: automatic, each block's share of it would be padded with zeros to full length.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed, weights = torch.empty_like(v), []
        for start, end in blocks(q.shape[-2]):
            shares = causal_shares(q[:, start:end], k[:, :end])
            multiply_into(mixed[:, start:end], shares, v[:, :end])
            weights.append(shares)
        ctx.save_for_backward(q, k, v, *weights)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, *weights = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for (start, end), shares in zip(blocks(q.shape[-2]), weights, strict=True):
            of_mixed = gradient[:, start:end]
            of_shares = torch.bmm(of_mixed, v[:, :end].mT)
            of_logits = torch._softmax_backward_data(of_shares, shares, -1, shares.dtype)
            multiply_into(dq[:, start:end], of_logits, k[:, :end])
            dk[:, :end] += torch.bmm(of_logits.mT, q[:, start:end])
            dv[:, :end] += torch.bmm(shares.mT, of_mixed)
        scale = q.shape[-1] ** -0.5
        return dq.mul_(scale), dk.mul_(scale), dv


def multiply_into(part: Tensor, a: Tensor, b: Tensor) -> None:
    """part = a @ b, where part is some rows of a larger tensor."""
    if torch.compiler.is_compiling():  # the compiler knows no such `out`, and needs none
        part.copy_(a @ b)
    else:
        torch.bmm(a, b, out=part)


def blocks(length: int) -> Iterator[tuple[int, int]]:
    """Where each block of queries begins and ends."""
    return ((start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def causal_shares(q: Tensor, k: Tensor) -> Tensor:
    """What the queries q (N, R, Dh), the last R of a sequence, take from its keys k (N, T, Dh) -> (N, R, T)."""
    rows, size, columns = *q.shape[-2:], k.shape[-2]
    logits = torch.baddbmm(
        q.new_empty(()).expand(len(q), rows, columns), q, k.mT, beta=0, alpha=size**-0.5
    )  # beta=0: what is not there is not read
    future = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    logits[..., columns - rows :].masked_fill_(future, -torch.inf)
    return logits.softmax(-1)
