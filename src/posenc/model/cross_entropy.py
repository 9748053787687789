"""Chunked cross-entropy for large vocabularies, which never stores the logits of all tokens.

torch 2.13's `F.linear_cross_entropy` does the same, but for bf16 it returns the loss in bf16, and `torch.compile`
cannot trace it as one graph.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LARGE_VOCAB = 8192
"""Vocabulary size from which the logits and their gradient dominate memory."""

CHUNK = 4096
"""Rows per chunk."""

ALIGNMENT = 64
"""The vocabulary is padded to a multiple of it: a GPU's matmuls are much slower for 50,257 columns than for 50,304.
Padded logits are -inf, so that they contribute neither to the loss nor to the gradient. Below LARGE_VOCAB the output
layer is not padded: with 257 tokens, masked bytes, it has 0.2% of the base model's FLOPs, and Inductor pads a matmul
where that is faster."""


class ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of -log softmax(x W^T)[target] over all rows: x (N, D), W (V, D), targets (N,) -> float32, shape ().

    The gradient of a chunk is computed together with its logits, so that no matmul is repeated (Hsu et al.
    2024, section 3.2). The loss is a sum, so that a later division only scales the stored gradient.

    Args:
        x: in the dtype of the matmuls.
        weight: of any floating dtype; its gradient is accumulated in float32.
        targets: may contain `ignore_index`.
        ignore_index: the target of a row that does not contribute.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            vocab_size = len(weight)
            matrix = F.pad(weight.to(x.dtype), (0, 0, 0, -vocab_size % ALIGNMENT))
            total = x.new_zeros((), dtype=torch.float32)
            needed = any(ctx.needs_input_grad[:2])
            if needed:
                dx, dw = torch.empty_like(x), torch.zeros_like(matrix, dtype=torch.float32)
            for start in range(0, len(x), CHUNK):
                rows, chunk_targets = x[start : start + CHUNK], targets[start : start + CHUNK]
                mask = (chunk_targets != ignore_index)[:, None]
                columns = chunk_targets.clamp(min=0)[:, None]  # arbitrary for a row that is ignored
                logits = rows @ matrix.T
                logits[:, vocab_size:] = -torch.inf
                log_probs = logits.log_softmax(-1, dtype=torch.float32)
                total = total - (log_probs.gather(1, columns) * mask).sum()
                if needed:
                    # Scattering into zeros lets the compiler use a comparison, and fuse all of this into one kernel.
                    one_hot = torch.zeros_like(log_probs).scatter_(1, columns, 1.0)
                    d_logits = log_probs.exp_().sub_(one_hot).mul_(mask).to(x.dtype)
                    dx[start : start + CHUNK] = d_logits @ matrix
                    dw += d_logits.T @ rows
            if needed:
                ctx.save_for_backward(dx, dw[:vocab_size].to(weight.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        dx, dw = ctx.saved_tensors
        return (dx.to(gradient.dtype) * gradient).to(dx.dtype), dw * gradient.to(dw.dtype), None, None


def summed_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
    """`ChunkedCrossEntropy` in the dtype of autocast, if it is enabled: x (.., D), targets (..)."""
    if not torch.is_grad_enabled():
        x, weight = x.detach(), weight.detach()  # otherwise the autograd function would compute their gradients
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    return ChunkedCrossEntropy.apply(x.flatten(0, -2).to(dtype), weight, targets.flatten(), ignore_index)
