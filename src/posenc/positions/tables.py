"""Constant tables: computed in float64, stored in float32, never cast, and not saved in checkpoints.

Trained angles are not in a table; they are computed in float64 at each use.
"""

import torch
from torch import Tensor, nn

from posenc.bounds import positive

PAGE = 1024
"""Positions per page. A position is page x PAGE + offset; PAGE pages cover positions 0 to POSITIONS - 1."""

POSITIONS = PAGE**2


class ExactTable(nn.Module):
    """A float64 tensor, by default stored in float32, as a non-persistent buffer that is never cast.

    The buffer holds the bits as integers, which `.half()` and `.to(dtype)` leave as they are.
    """

    bits: Tensor

    def __init__(self, exact: Tensor, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("bits", exact.to(dtype).view(torch.int32), persistent=False)

    @property
    def table(self) -> Tensor:
        """The tensor, in its original shape."""
        return self.bits.view(self.dtype)


def frequencies(size: int, base: float) -> Tensor:
    """theta_i = base^(-2i/size), i = 0 .. size/2 - 1, as float64 (size/2,) (Vaswani et al. 2017, section 3.5).

    Raises:
        ValueError: if base is not a positive finite number.
    """
    positive(base=base)
    return float(base) ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)


class AngleTable(ExactTable):
    """cos and sin of m * theta_i for any positions m in [0, 2^20), to 3e-7, on any device.

    A flat table would need a maximum length, and computing angles on the fly would need float64, which some
    accelerators lack. So two small tables, for the page and for the offset within it, are combined by the angle
    addition formulas.
    """

    def __init__(self, theta: Tensor) -> None:
        offset = torch.arange(PAGE, dtype=torch.float64)[:, None] * theta
        page = offset * PAGE
        super().__init__(torch.stack([page.cos(), page.sin(), offset.cos(), offset.sin()]))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions (T,) -> cos (T, n), sin (T, n), float32. Negative positions are not checked: they wrap around."""
        page_cos, page_sin = self.table[:2, positions // PAGE]
        cos, sin = self.table[2:, positions % PAGE]
        return page_cos * cos - page_sin * sin, page_sin * cos + page_cos * sin


class TrainedAngles(nn.Module):
    """cos and sin of m theta_i exp(w_i), computed in float64, differentiable.

    Args:
        theta: (n,), float64, the initial frequencies.

    Attributes:
        log_ratio: w, (n,).
    """

    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.start = ExactTable(theta, torch.float64)
        self.log_ratio = nn.Parameter(torch.zeros(len(theta)))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions (T,) -> cos (T, n), sin (T, n), float32."""
        angles = positions.double()[:, None] * (self.start.table * self.log_ratio.double().exp())
        return angles.cos().float(), angles.sin().float()
