"""What torch computes in a block of code."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatched(TorchDispatchMode):
    """Context that records the operations dispatched in it, and the number of elements of the largest result."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[str] = set()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ARG002
        self.operations.add(str(func))
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out
