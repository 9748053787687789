"""Model FLOPs utilisation and peak memory."""

import copy
import sys
from contextlib import suppress
from pathlib import Path

import torch

from posenc.model import Transformer

DENSE_BF16: dict[str, float] = {
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 80GB HBM3": 989.5e12,
    "NVIDIA H200": 989.5e12,
}
"""Peak FLOP/s of dense bf16 matmuls, from NVIDIA's data sheets, by CUDA device name.

Lightning has a longer table, but it lists the H200 and the H100 NVL with the rate for sparse matrices, twice as
high, and does not find a plain "NVIDIA H200".
"""


def peak_flops(device: torch.device, precision: str) -> float | None:
    """Peak FLOP/s of the device; None if unknown."""
    if device.type != "cuda" or precision != "bf16-mixed":
        return None
    return DENSE_BF16.get(torch.cuda.get_device_name(device))


def flops_per_token(model: Transformer, context: int) -> float:
    """FLOPs per token of a training step, forward and backward, counted from the model's matmuls.

    Causal attention counts in full, as is customary (Chowdhery et al. 2022, appendix B).
    """
    from lightning.fabric.utilities.throughput import measure_flops

    shape_only = copy.deepcopy(model).to("meta")
    tokens = torch.zeros(1, context, dtype=torch.long, device="meta")
    with torch.no_grad():
        forward = measure_flops(shape_only, lambda: shape_only(tokens))
    return 3 * forward / context  # a matmul has two in the backward pass; what is recomputed there does not count


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement, since one process may train several runs."""
    if device.type == "cuda":
        torch.cuda.init()  # may not have been used yet
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes, of the GPU or, without one, of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource  # without /proc

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
