"""Exact cos and sin of position x frequency, for the sinusoidal and the rotary schemes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

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


class AngleTable(nn.Module):
    """cos and sin of m * theta_i for any positions m in [0, 2^20), to 3e-7, on any device.

    A flat table would need a length, and angles computed on the fly would need float64, which some accelerators
    lack. So there are two small tables, one for whole pages and one for the offset inside a page, computed in
    float64 and kept in float32, and the addition theorem joins them.
    """

    tables: Tensor

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = theta.tolist()
        self.register_buffer("tables", self._exact_tables(), persistent=False)

    def _exact_tables(self) -> Tensor:
        """(4, PAGE, n): cos and sin of a page's first position, then of an offset."""
        theta = torch.tensor(self.theta, dtype=torch.float64, device="cpu")
        offset = torch.arange(PAGE, dtype=torch.float64, device="cpu")[:, None] * theta
        page = offset * PAGE
        return torch.stack([page.cos(), page.sin(), offset.cos(), offset.sin()]).float()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "AngleTable":
        """Follow the module to another device, but not to another precision: `.half()` must not round angles."""
        super()._apply(fn, recurse)
        if self.tables.dtype != torch.float32:
            self.tables = self._exact_tables().to(self.tables.device)
        return self

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions (T,) -> cos (T, n), sin (T, n), float32."""
        page = torch.div(positions, PAGE, rounding_mode="floor")
        offset = positions - page * PAGE
        page_cos, page_sin = self.tables[0, page], self.tables[1, page]
        cos, sin = self.tables[2, offset], self.tables[3, offset]
        return page_cos * cos - page_sin * sin, page_sin * cos + page_cos * sin
