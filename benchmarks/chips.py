"""The ceilings of chips: from their datasheets, or measured on the device at hand: `python benchmarks/chips.py`."""

import argparse
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


def measured(device: "torch.device", copied: int, size: int | None = None) -> Chip:
    """The ceilings reached on this device by a large matrix product and by a copy.

    Args:
        device: a CPU or a GPU.
        copied: bytes to copy. What fits in a cache is copied at the cache's speed.
        size: rows and columns of the product; by default what fills the device.
    """
    import torch

    from posenc.training import environment

    size = size or (8192 if device.type == "cuda" else 1024)
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


def attention_kernels(device: "torch.device", length: int) -> dict[str, str]:
    """What torch takes longest in, of a forward and a backward of attention in bf16, by what it is asked for."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    from torch.profiler import profile

    q = torch.randn(2, 8, length, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.zeros(1, 8, length, length, device=device, dtype=torch.bfloat16)
    asked = {
        "causal": {"is_causal": True},
        "with a bias": {"attn_mask": mask},
        "both ways": {},
    }
    found = {}
    for name, arguments in asked.items():
        scaled_dot_product_attention(q, q, q, **arguments).sum().backward()
        with profile() as profiler:
            scaled_dot_product_attention(q, q, q, **arguments).sum().backward()
        own = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
        found[name] = max(profiler.key_averages(), key=lambda entry: getattr(entry, own)).key
    return found


def main() -> None:
    import torch
    import turns

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, help="rows and columns of the product, and tokens of attention")
    given = parser.parse_args()
    device = turns.chosen("auto")
    reached = measured(device, 2**20 * (given.size or 1024), given.size)
    print(
        f"{reached.name}, torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    )
    print(f"{reached.matmul / 1e12:.4g} TFLOP/s in bf16, {reached.vector / 1e12:.4g} in fp32, "
          f"{reached.bandwidth / 1e12:.3g} TB/s ({reached.source})")  # fmt: skip
    for name, kernel in attention_kernels(device, given.size or 1024).items():
        print(f"attention, {name}: {kernel}")


if __name__ == "__main__":
    main()
