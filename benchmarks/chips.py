"""Peak rates of chips, from their datasheets or measured on this device: `python benchmarks/chips.py`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costs import Work
from options import Parser, device, positive

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Chip:
    """Upper bounds on what a chip can do.

    Attributes:
        name: of the chip.
        matmul: bf16 matrix products without sparsity, FLOP/s.
        vector: fp32 arithmetic outside the matrix units, FLOP/s.
        bandwidth: of its memory, bytes/s.
        source: of these numbers.
    """

    name: str
    matmul: float
    vector: float
    bandwidth: float
    source: str

    def times(self, work: Work) -> dict[str, float]:
        """Seconds of each kind of work at its peak rate."""
        return {
            "matmul": work.matmul / self.matmul,
            "vector": work.vector / self.vector,
            "memory": work.bytes / self.bandwidth,
        }

    def lower_bound(self, work: Work) -> tuple[float, str]:
        """The roofline model's lower bound on the seconds, and the kind that sets it (Williams et al. 2009)."""
        times = self.times(work)
        bound = max(times, key=lambda kind: times[kind])
        return times[bound], bound


CHIPS = {
    # The datasheets give matrix products with sparsity, 1,979 TFLOP/s; without it is half of that.
    "h200": Chip("H200", 989.5e12, 67e12, 4.80e12, "NVIDIA H200 datasheet, H200 SXM"),
    "h100": Chip("H100", 989.5e12, 67e12, 3.35e12, "NVIDIA H100 datasheet, H100 SXM"),
}

TORCH_NAMES = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100"}
"""torch's names of them. The PCIe variants have other peaks."""


def from_datasheet(device: "torch.device") -> Chip | None:
    """The datasheet's peaks of this device; None if it is not in the table."""
    import torch

    key = TORCH_NAMES.get(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    return CHIPS[key] if key else None


def measured(device: "torch.device", copied: int, size: int | None = None) -> Chip:
    """The rates reached on this device by a large matrix product and by a copy: the fastest of 20 runs.

    Args:
        device: a CPU or a GPU.
        copied: bytes to copy. What fits in a cache is copied at the cache's speed.
        size: rows and columns of the product; by default large enough to use the whole device.
    """
    import torch
    from timing import elapsed

    from posenc.training import environment

    size = size or (8192 if device.type == "cuda" else 1024)
    left, right = (torch.randn(size, size, device=device) for _ in range(2))
    left16, right16 = left.bfloat16(), right.bfloat16()
    source = torch.randn(copied // 4, device=device)
    target = torch.empty_like(source)
    functions = {"bf16": lambda: left16 @ right16, "fp32": lambda: left @ right, "copy": lambda: target.copy_(source)}
    calls = 10 if device.type == "cuda" else 1  # a launch and a synchronisation take some 15 us
    fastest = {name: min([elapsed(function, calls) for _ in range(22)][2:]) for name, function in functions.items()}
    return Chip(
        environment.device_name(device),
        2 * size**3 / fastest["bf16"],
        2 * size**3 / fastest["fp32"],
        2 * copied / fastest["copy"],
        f"measured: products of {size} x {size}, a copy of {copied / 1e6:,.3g} MB",
    )


BATCH, HEADS, HEAD_DIM = 8, 8, 64
"""Of the attention whose kernels are named."""


def attention_kernels(device: "torch.device", length: int) -> dict[str, str]:
    """The slowest operator of attention's forward and backward in bf16, by the kind of attention; or its error."""
    import torch

    from posenc.model.attention import mask_future

    bias = mask_future(torch.randn(1, HEADS, length, length, device=device), causal=True)
    trained = bias.clone().requires_grad_()
    kinds: dict[str, dict[str, Any]] = {
        "causal": {},
        "bidirectional": {"causal": False},
        "with a bias": {"bias": bias},
        "with a trained bias": {"bias": trained},
        "with few key heads": {"key_heads": 1},
        "with few key heads and a bias": {"bias": bias, "key_heads": 1},
    }
    found = {}
    for name, kind in kinds.items():
        try:
            found[name] = slowest_operator(device, length, **kind)
        except RuntimeError as error:  # a kernel that refuses a shape
            found[name] = str(error).partition("\n")[0]
    return found


def slowest_operator(
    device: "torch.device", length: int, bias: "torch.Tensor | None" = None, key_heads: int = HEADS, causal: bool = True
) -> str:
    """Of one kind of the model's attention; a kernel depends on strides too, which are those of its projections."""
    import torch
    from torch.profiler import profile

    from posenc.model.attention import PositionContext, Softmax
    from posenc.positions import PositionScheme

    sizes = [heads * HEAD_DIM for heads in (HEADS, key_heads, key_heads)]
    projected = torch.randn(BATCH, length, sum(sizes), device=device, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(projected[..., : sizes[0]])
    context = PositionContext(PositionScheme(), torch.arange(length, device=device), bias)

    def forward_and_backward() -> None:
        parts = [part.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for part in projected.split(sizes, -1)]
        Softmax()(*parts, context, causal).transpose(1, 2).flatten(-2).backward(gradient)

    forward_and_backward()  # loads the kernels
    with profile(acc_events=True) as profiler:  # torch 2.11 warns otherwise
        forward_and_backward()
    time = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    # Nodes of autograd, which have entries too, call operators: their own time is overhead.
    operators = [entry for entry in profiler.key_averages() if entry.key.startswith("aten::")]
    return max(operators, key=lambda entry: getattr(entry, time)).key


def main() -> None:
    import torch
    from output import environment

    parser = Parser(__doc__)
    parser.add_argument("--size", type=positive, help="rows and columns of the product; length of attention")
    given = parser.parse_args()
    here = device("auto")
    chip = measured(here, 2**20 * (given.size or 1024), given.size)
    print(f"{environment(here)}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    print(f"{chip.matmul / 1e12:.4g} TFLOP/s in bf16, {chip.vector / 1e12:.4g} in fp32, "
          f"{chip.bandwidth / 1e12:.3g} TB/s ({chip.source})")  # fmt: skip
    for name, kernel in attention_kernels(here, given.size or 1024).items():
        print(f"attention, {name}: {kernel}")


if __name__ == "__main__":
    main()
