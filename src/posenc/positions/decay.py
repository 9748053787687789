"""Exact powers zeta^(m/S), for xPos."""

import math

import torch
from torch import Tensor, nn

from posenc.positions.tables import ExactTable


class DecayTable(nn.Module):
    """zeta_i^(m/S) for whole m in [-reach, reach], to a relative error of 2e-7, on any device.

    An offset is page x size + rest, so that two short tables make a long one, and their product is the power.

    Args:
        zeta: (n,), float64, each above 0.
        scale_base: S, above 0.
        reach: the largest |m|; zeta^(reach/S) and its inverse must be float32 numbers.
    """

    def __init__(self, zeta: Tensor, scale_base: float, reach: int) -> None:
        super().__init__()
        self.size = math.isqrt(reach) + 1
        self.pages = reach // self.size + 1
        pages = self.size * torch.arange(-self.pages, self.pages + 1, dtype=torch.float64)
        rests = torch.arange(self.size, dtype=torch.float64)
        self.page = ExactTable(zeta ** (pages[:, None] / scale_base))
        self.rest = ExactTable(zeta ** (rests[:, None] / scale_base))

    def forward(self, offsets: Tensor) -> Tensor:
        """offsets (T,) -> (T, n), float32."""
        page = torch.div(offsets, self.size, rounding_mode="floor")
        return self.page.table[page + self.pages] * self.rest.table[offsets - page * self.size]
