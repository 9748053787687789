"""A cumulative sum that every version of the compiler accepts."""

import torch.nn.functional as F
from torch import Tensor


def cumulative(x: Tensor, chunk: int = 64) -> Tensor:
    """sum_{n <= m} x_n over the tokens, (.., T, d) -> the same shape.

    In chunks, since torch 2.11 cannot compile some sums over 129 tokens or more without gradients (pytorch#180221):
    those that it fuses with a product's bias.
    """
    length = x.shape[-2]
    chunk = min(chunk, length)
    inside = F.pad(x, (0, 0, 0, -length % chunk)).unflatten(-2, (-1, chunk)).cumsum(-2)
    before = F.pad(inside[..., :-1, -1, :].cumsum(-2), (0, 0, 1, 0))
    return (inside + before[..., None, :]).flatten(-3, -2)[..., :length, :]
