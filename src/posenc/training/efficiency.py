"""How well a run uses its hardware: share of the peak, and memory."""

import copy
import sys
from contextlib import suppress
from pathlib import Path

import torch

from posenc.model import Transformer

TERA = 1e12

DENSE_BF16: dict[str, float] = {
    "NVIDIA A100-SXM4-40GB": 312 * TERA,
    "NVIDIA A100-SXM4-80GB": 312 * TERA,
    "NVIDIA A100-PCIE-40GB": 312 * TERA,
    "NVIDIA A100 80GB PCIe": 312 * TERA,
    "NVIDIA H100 PCIe": 756 * TERA,
    "NVIDIA H100 80GB HBM3": 989.5 * TERA,
    "NVIDIA H200": 989.5 * TERA,
}
"""Products of dense bf16 matrices, FLOP/s, from NVIDIA's data sheets, by the name that CUDA gives the chip.

Lightning has a longer table, in which the H200 and the H100 NVL stand with the rate for sparse matrices, twice as
high, and a plain "NVIDIA H200" is not found.
"""


def peak_flops(device: torch.device, precision: str) -> float | None:
    """What the device could do, FLOP/s; None where it is not known."""
    if device.type != "cuda" or precision != "bf16-mixed":
        return None
    return DENSE_BF16.get(torch.cuda.get_device_name(device))


def flops_per_token(model: Transformer, context: int) -> float:
    """Of a training step, forward and backward, counted from the products that the model makes.

    A causal model's attention counts in full, as is usual (Chowdhery et al. 2022, appendix B).
    """
    from lightning.fabric.utilities.throughput import measure_flops

    shape_only = copy.deepcopy(model).to("meta")
    tokens = torch.zeros(1, context, dtype=torch.long, device="meta")
    return measure_flops(shape_only, lambda: shape_only(tokens), lambda logits: logits.sum()) / context


def reset_peak_memory(device: torch.device) -> None:
    """Measure from here on: one process may train one run after another."""
    if device.type == "cuda":
        torch.cuda.init()  # nothing may have used it yet
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """The most that was in use, in bytes: of the GPU, otherwise of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource  # where there is no /proc

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
