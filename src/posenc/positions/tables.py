"""Fixed numbers that every scheme with a formula looks up."""

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn


class ExactTable(nn.Module):
    """A table computed in float64 and kept in float32, in no checkpoint.

    Attributes:
        table: the numbers, in the shape they were given in.
    """

    table: Tensor

    def __init__(self, exact: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", exact.float(), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow the module to another device, but not to another precision: `.half()` must not round positions."""
        kept = self.table
        super()._apply(fn, recurse)
        if self.table.dtype != kept.dtype:
            self.table = kept.to(self.table.device)
        return self
