"""Profile a compiled training step: assign each kernel to a part of `costs.parts`, and sum the parts' times."""

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from costs import Shape
from timing import elapsed
from torch.profiler import ProfilerActivity, profile, record_function

from posenc.model import Transformer
from posenc.model.cross_entropy import ALIGNMENT, CHUNK, LARGE_VOCAB
from posenc.objectives.objective import loss_of
from posenc.positions import Rotary
from posenc.training.optim import AdamW
from posenc.training.step import PHASES, TrainingStep

OTHER, HEAD = "other kernels", "output head matmul"

BY_NAME = (
    (("nll_loss", "_log_softmax", "softmax_online", "cross_entropy"), "cross-entropy"),
    (("attention", "flash", "bmm", "_softmax"), "attention"),
    (("embedding", "aten::index_select"), "embedding"),
    (("gelu",), "GELU"),
    (("_div_mul",), OTHER),  # scales the loss's gradients
    (("layer_norm", "aten::add"), "norms and residual adds"),
    (("_cat", "_split", "_mul", "aten::cat", "aten::mul", "aten::sub", "aten::neg"), "rotation"),
    (("_to_copy", "aten::copy_"), "casts of weights"),
)
"""The part of a kernel, by substrings of its name; the first match counts. A compiled kernel is named after all the
operations that it fuses."""

Step = Callable[[], object]
Part = tuple[str, str]
"""A name of `costs.parts`, or OTHER, and its stage: forward, backward or update."""


@dataclass(frozen=True)
class Measured:
    """Measurements of a training step.

    Attributes:
        rounds: seconds per step, one figure per round.
        parts: seconds per step of each part.
        peak: peak memory of the GPU in bytes; None on a CPU.
    """

    rounds: list[float]
    parts: Mapping[Part, float]
    peak: int | None

    @property
    def other(self) -> dict[str, float]:
        """Seconds of each stage in kernels of no part."""
        return {stage: seconds for (part, stage), seconds in self.parts.items() if part == OTHER}


def measure(shape: Shape, device: torch.device, compiled: bool, rounds: int, steps: int) -> Measured:
    """Time rounds of steps, then profile as many steps as a round has."""
    step = training_step(shape, device, compiled)
    for _ in range(3):
        step()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = [elapsed(step, steps) for _ in range(rounds)]
    peak = torch.cuda.max_memory_allocated() or None  # 0 on the CPU
    return Measured(seconds, profiled(step, shape, device, steps), peak)


def training_step(shape: Shape, device: torch.device, compiled: bool) -> Step:
    """The training step of `train.py` on one batch of random tokens: bf16 autocast, clipping, fused AdamW."""
    if compiled and device.type == "cpu":
        from torch._inductor import config

        config.cpp.enable_kernel_profile = True  # the profiler sees a GPU's kernels without it
    scheme = Rotary(shape.width // shape.heads)
    model = Transformer(shape.vocab_size, shape.context, shape.layers, shape.width, shape.heads, scheme).to(device)
    windows = torch.randint(shape.vocab_size, (shape.batch_size, shape.context + 1), device=device)

    def losses(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_of(model, inputs, targets)

    forward = torch.compile(losses, fullgraph=True) if compiled else losses
    update = TrainingStep(model, forward, AdamW(0.001), autocast=device.type, phase=record_function)
    return lambda: update(windows[:, :-1], windows[:, 1:])


def profiled(step: Step, shape: Shape, device: torch.device, steps: int) -> dict[Part, float]:
    """Seconds per step of each part, median over steps."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities, record_shapes=True, acc_events=True) as profiler:  # torch 2.11 warns otherwise
        for _ in range(steps):
            step()
    sums = [part_sums(events, shape, device) for events in by_step(profiler.events(), steps)]
    seen = sorted({part for one in sums for part in one})
    return {part: statistics.median(one.get(part, 0.0) for one in sums) for part in seen}


def by_step(events: Any, steps: int) -> list[list[tuple[str, Any]]]:
    """The operations of each step, with the stage that called them."""
    called = [event for event in events if event.device_type == torch.autograd.DeviceType.CPU]
    marks = sorted((event.time_range.start, event.name) for event in called if event.name in PHASES)
    starts = [start for start, _ in marks]
    inside: dict[int, list[tuple[str, Any]]] = defaultdict(list)
    for event in called:
        index = bisect_right(starts, event.time_range.start) - 1
        if index >= 0:
            inside[index // len(PHASES)].append((marks[index][1], event))
    return [inside[index] for index in range(steps)]


def part_sums(events: Sequence[tuple[str, Any]], shape: Shape, device: torch.device) -> Mapping[Part, float]:
    """Seconds of each part, from the kernels that operations launched, or on a CPU from the operations themselves."""
    matmuls = matmuls_by_shape(shape)
    sums: dict[Part, float] = defaultdict(float)
    for stage, event in events:
        if device.type == "cuda":
            launched = [(kernel.name, kernel.duration) for kernel in event.kernels]
        else:
            launched = [(event.name, event.self_cpu_time_total)]
        for kernel, micros in launched:
            sums[part_of(stage, event, kernel, matmuls)] += micros / 1e6
    return sums


def part_of(stage: str, event: Any, kernel: str, matmuls: Mapping[tuple[str, str], Part]) -> Part:
    """The part of a kernel.

    By the stage that launched it; its own name, if the compiler chose it; and the shapes and names of the operation
    that launched it and of its callers.
    """
    if stage in ("clip", "update"):
        return {"clip": "gradient clipping", "update": "AdamW"}[stage], "update"
    names = [kernel] if kernel.startswith("triton") else []
    while event is not None:
        product = matmuls.get((stage, str(event.input_shapes[:2]))) if event.name == "aten::mm" else None
        if product:
            return product
        if event.name.startswith("posenc::cpu_attention"):  # casts inside are its own
            return "attention", stage
        names.append(event.name)
        event = event.cpu_parent
    parts = (part for name in names for words, part in BY_NAME if any(word in name for word in words))
    return next(parts, OTHER), stage


def matmuls_by_shape(shape: Shape) -> dict[tuple[str, str], Part]:
    """The part of each matrix product, by its stage and the shapes of its operands."""
    width = shape.width
    sizes = {
        "query, key, value matmul": (width, 3 * width),
        "attention output matmul": (width, width),
        "feed-forward up matmul": (width, 4 * width),
        "feed-forward down matmul": (4 * width, width),
    }
    found: dict[tuple[str, str], Part] = {}
    for name, (inputs, outputs) in sizes.items():
        found |= products(name, "backward", shape.tokens, inputs, outputs)
    if shape.vocab_size < LARGE_VOCAB:
        return found | products(HEAD, "backward", shape.tokens, width, shape.vocab_size)
    # The logits of a large vocabulary are chunked, and each chunk's gradient is computed at once: in the forward, as is
    # all of the cross-entropy.
    columns = -(-shape.vocab_size // ALIGNMENT) * ALIGNMENT
    for rows in {min(CHUNK, shape.tokens), shape.tokens % CHUNK} - {0}:
        found |= products(HEAD, "forward", rows, width, columns)
    return found


def products(name: str, gradient: str, rows: int, inputs: int, outputs: int) -> dict[tuple[str, str], Part]:
    """The three products of a projection of `rows` tokens; `gradient` is the stage that computes its gradients."""
    return {
        ("forward", str([[rows, inputs], [inputs, outputs]])): (name, "forward"),
        (gradient, str([[rows, outputs], [outputs, inputs]])): (name, "backward"),
        (gradient, str([[outputs, rows], [rows, inputs]])): (name, "backward"),
    }
