"""Cross-entropy of a large vocabulary, without ever holding the logits of all tokens."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LARGE = 8192
"""From this many tokens in the vocabulary on, logits and their gradient outweigh what they are made from."""

CHUNK = 4096
"""Rows whose logits are held at a time."""

ALIGNED = 64
"""Logits are made in multiples of it: a GPU's products are much slower for 50,257 columns than for 50,304. What is
beyond the vocabulary is -inf, so that it has no share in the loss and no gradient."""


class ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of -log softmax(x W^T)[target] over all rows: x (N, D), W (V, D), targets (N,) -> float32, shape ().

    The gradient of a chunk is computed while its logits are at hand, so that no product is made twice (Hsu et al.
    2024, section 3.2). It is a sum, so that what it is divided by reaches the stored gradient as one factor.

    Args:
        x: in the type in which products are made.
        weight: of any floating type; its gradient is summed in float32.
        targets: some of them `ignored`.
        ignored: the target of a row that counts nothing.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, ignored: int) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            kinds = len(weight)
            matrix = F.pad(weight.to(x.dtype), (0, 0, 0, -kinds % ALIGNED))
            total = x.new_zeros((), dtype=torch.float32)
            needed = any(ctx.needs_input_grad[:2])
            dx, dw = torch.empty_like(x), torch.zeros_like(matrix, dtype=torch.float32)
            for start in range(0, len(x), CHUNK):
                rows, wanted = x[start : start + CHUNK], targets[start : start + CHUNK]
                counted = (wanted != ignored)[:, None]
                columns = wanted.clamp(min=0)[:, None]  # any will do for a row that does not count
                logits = rows @ matrix.T
                logits[:, kinds:] = -torch.inf
                logs = logits.log_softmax(-1, dtype=torch.float32)
                total = total - (logs.gather(1, columns) * counted).sum()
                if needed:
                    # A compiler makes a comparison of this scatter, since it is one into zeros, and one kernel of all.
                    wanted_one = torch.zeros_like(logs).scatter_(1, columns, 1.0)
                    of_logits = logs.exp_().sub_(wanted_one).mul_(counted).to(x.dtype)
                    dx[start : start + CHUNK] = of_logits @ matrix
                    dw += of_logits.T @ rows
        ctx.save_for_backward(dx, dw[:kinds].to(weight.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        dx, dw = ctx.saved_tensors
        return (dx.to(gradient.dtype) * gradient).to(dx.dtype), dw * gradient.to(dw.dtype), None, None


def summed_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """`ChunkedCrossEntropy` in the type that autocast, if it is on, makes products in: x (.., D), targets (..)."""
    if not torch.is_grad_enabled():
        x, weight = x.detach(), weight.detach()  # an autograd function would make their gradients all the same
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    return ChunkedCrossEntropy.apply(x.flatten(0, -2).to(dtype), weight, targets.flatten(), ignored)
