"""Exact cos and sin of position x frequency, for the sinusoidal and the rotary schemes."""

import torch
from torch import Tensor

from posenc.positions.tables import ExactTable

PAGE = 1024
"""Positions in one page. A position is page x PAGE + offset; PAGE pages cover positions 0 to 2^20 - 1."""


def frequencies(size: int, base: float) -> Tensor:
    """theta_i = base^(-2i/size), i = 0 .. size/2 - 1, as float64 (size/2,) (Vaswani et al. 2017, section 3.5).

    Raises:
        ValueError: if base is not positive.
    """
    if not base > 0:
        raise ValueError(f"base={base} must be a positive number")
    return base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)


class AngleTable(ExactTable):
    """cos and sin of m * theta_i for any positions m in [0, 2^20), to 3e-7, on any device.

    A flat table would need a length, and angles computed on the fly would need float64, which some accelerators
    lack. So there are two small tables, one for whole pages and one for the offset inside a page, and the addition
    theorem joins them.
    """

    def __init__(self, theta: Tensor) -> None:
        offset = torch.arange(PAGE, dtype=torch.float64)[:, None] * theta
        page = offset * PAGE
        super().__init__(torch.stack([page.cos(), page.sin(), offset.cos(), offset.sin()]))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions (T,) -> cos (T, n), sin (T, n), float32."""
        page = torch.div(positions, PAGE, rounding_mode="floor")
        offset = positions - page * PAGE
        page_cos, page_sin = self.table[0, page], self.table[1, page]
        cos, sin = self.table[2, offset], self.table[3, offset]
        return page_cos * cos - page_sin * sin, page_sin * cos + page_cos * sin
