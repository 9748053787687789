"""The ceilings of chips: from their datasheets, or measured on the device at hand."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costs import Work

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Chip:
    """What nothing on it can exceed.

    Attributes:
        name: the chip's.
        matmul: bf16 matrix products without sparsity, FLOP/s.
        vector: float32 arithmetic outside the matrix units, FLOP/s.
        bandwidth: of its memory, bytes/s.
        source: where the numbers are from.
    """

    name: str
    matmul: float
    vector: float
    bandwidth: float
    source: str

    def times(self, work: Work) -> dict[str, float]:
        """Seconds that each kind of work takes at its ceiling."""
        return {
            "matmul": work.matmul / self.matmul,
            "vector": work.vector / self.vector,
            "memory": work.bytes / self.bandwidth,
        }

    def floor(self, work: Work) -> tuple[float, str]:
        """Seconds that this work takes at least, and the kind that takes them (Williams et al. 2009)."""
        times = self.times(work)
        bound = max(times, key=lambda kind: times[kind])
        return times[bound], bound


CHIPS = {
    # The datasheets give matrix products with sparsity, 1,979 TFLOP/s; without it is half of that.
    "h200": Chip("H200", 989.5e12, 67e12, 4.80e12, "NVIDIA H200 datasheet, H200 SXM"),
    "h100": Chip("H100", 989.5e12, 67e12, 3.35e12, "NVIDIA H100 datasheet, H100 SXM"),
}

TORCH_NAMES = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100"}
"""What torch calls them. Their relatives on PCIe cards have other ceilings."""


def known(device: "torch.device") -> Chip | None:
    """The datasheet's ceilings of this device, None if they are not in the table."""
    import torch

    key = TORCH_NAMES.get(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return CHIPS[key] if key else None


def measured(device: "torch.device", copied: int) -> Chip:
    """The ceilings reached on this device by a large matrix product and by a copy.

    Args:
        device: a CPU or a GPU.
        copied: bytes to copy. What fits in a cache is copied at the cache's speed.
    """
    import torch

    from posenc.training import environment

    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device) for _ in range(2))
    left16, right16 = left.bfloat16(), right.bfloat16()
    source = torch.randn(copied // 4, device=device)
    target = torch.empty_like(source)
    return Chip(
        environment.hardware(device),
        2 * size**3 / fastest(lambda: left16 @ right16, device),
        2 * size**3 / fastest(lambda: left @ right, device),
        2 * copied / fastest(lambda: target.copy_(source), device),
        f"measured: products of {size} x {size}, a copy of {copied / 1e6:,.3g} MB",
    )


def fastest(action: Callable[[], object], device: "torch.device", repeats: int = 20) -> float:
    """Seconds of the fastest of some runs: a ceiling is what was reached once."""
    from turns import wait_for

    seconds = []
    for _ in range(repeats + 2):
        wait_for(device)
        begun = time.perf_counter()
        action()
        wait_for(device)
        seconds.append(time.perf_counter() - begun)
    return min(seconds[2:])
