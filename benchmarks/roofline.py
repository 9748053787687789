"""Roofline of a training step, part by part: `python benchmarks/roofline.py --model base`.

The lower bound of a part's time is the larger of two: its FLOPs at the chip's peak rate, and its bytes at the memory
bandwidth. `costs.py` counts both. With --measure a compiled step is run and profiled, and each part's measured time is
listed next to its lower bound.
"""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from chips import CHIPS, Chip, from_datasheet, measured
from costs import BF16, Shape, parts, peak_memory
from omegaconf import OmegaConf
from options import Parser, device, positive
from output import table, today, write

from posenc.config.files import CONF

if TYPE_CHECKING:
    from kernels import Measured

SETTINGS = {"tiny": (256, 256, 16), "small": (256, 512, 64), "base": (50_304, 1024, 32)}
"""Vocabulary, context and batch of each model. GPT-2's vocabulary of 50,257 is padded to a multiple of 64."""


@dataclass(frozen=True)
class Roofline:
    """A step's parts on a chip.

    Args:
        shape: of the model and the batch.
        chip: with its peak rates.
        chunk: tokens per chunk of logits; None for a single chunk.
        step: measurements of the step, if there are any.
    """

    shape: Shape
    chip: Chip
    chunk: int | None
    step: "Measured | None"

    def parts(self) -> Iterator[dict[str, Any]]:
        """The figures of each part."""
        for part in parts(self.shape, self.chunk):
            times, (seconds, bound) = self.chip.times(part.work), self.chip.lower_bound(part.work)
            row = {
                "part": part.name,
                "stage": part.stage,
                "bound": bound,
                "gflop": (part.work.matmul + part.work.vector) / 1e9,
                "mb": part.work.bytes / 1e6,
                "arithmetic_ms": 1e3 * max(times["matmul"], times["vector"]),
                "memory_ms": 1e3 * times["memory"],
                "lower_bound_ms": 1e3 * seconds,
            }
            if self.step:
                actual = self.step.parts.get((part.name, part.stage), 0.0)
                row |= {"measured_ms": 1e3 * actual, "gap_ms": 1e3 * (actual - seconds)}
            yield row

    def total(self) -> dict[str, float]:
        """The lower bound of the whole step."""
        counted = parts(self.shape, self.chunk)
        seconds = sum(self.chip.lower_bound(part.work)[0] for part in counted)
        return {
            "lower_bound_ms": 1e3 * seconds,
            "tokens_per_s": self.shape.tokens / seconds,
            "mfu": self.mfu(seconds),
            "matmul_tflop": sum(part.work.matmul for part in counted) / 1e12,
            "mfu_tflop": self.shape.flops_per_token * self.shape.tokens / 1e12,
        }

    def mfu(self, seconds: float) -> float:
        """Model FLOPs utilisation of a step of this duration."""
        return self.shape.flops_per_token * self.shape.tokens / seconds / self.chip.matmul

    def table(self) -> str:
        """One row per part."""
        header = ["part", "stage", "bound", "GFLOP", "MB", "arithmetic, ms", "memory, ms", "lower bound, ms"]
        header += ["measured, ms", "gap, ms"] if self.step else []
        rows = []
        for name, stage, bound, gflop, mb, *times in (part.values() for part in self.parts()):
            rows.append([name, stage, bound, number(gflop), number(mb), *(f"{time:.3f}" for time in times)])
        return table(header, rows, left=3)

    def summary(self) -> Iterator[str]:
        """The whole step in sentences."""
        bound = self.total()
        yield (
            f"Lower bound of a step: {bound['lower_bound_ms']:.2f} ms, {bound['tokens_per_s']:,.0f} tokens/s, MFU "
            f"{bound['mfu']:.1%}; its matrix products have {bound['matmul_tflop']:.4g} TFLOP, MFU's formula "
            f"{bound['mfu_tflop']:.4g}."
        )
        if self.step is None:
            return
        rounds = self.step.rounds
        seconds = statistics.median(rounds)
        other, kernels = sum(self.step.other.values()), sum(self.step.parts.values())
        yield (
            f"Measured: {1e3 * seconds:.2f} ms ({1e3 * min(rounds):.2f} to {1e3 * max(rounds):.2f}), "
            f"{self.shape.tokens / seconds:,.0f} tokens/s, MFU {self.mfu(seconds):.1%}, "
            f"{1e3 * seconds / bound['lower_bound_ms']:.2f} times the lower bound. In the profile these parts took "
            f"{1e3 * (kernels - other):.2f} ms and other kernels {1e3 * other:.2f} ms; "
            + (
                f"the remaining {1e3 * (seconds - kernels):.2f} ms are launches and idle time."
                if kernels < seconds
                else "that is more than the step: the profiler slows it, the forward most, so even shares are rough."
            )
        )
        if self.step.peak is not None:
            counted = sum(peak_memory(self.shape, self.chunk).values())
            ratio = self.step.peak / counted
            yield f"Measured peak memory: {self.step.peak / 1e9:.2f} GB, {ratio:.2f} times the count."


def main() -> None:
    given = arguments()
    shape = shape_of(given.model, given.vocabulary, given.context, given.batch)
    here, step = given.device or device("auto"), None
    chips: list[Chip | None] = [CHIPS[name] for name in given.chip]
    if given.measure and (here.type == "cuda" or given.device):
        import kernels
        import torch

        torch.set_num_threads(given.threads)
        step = kernels.measure(shape, here, not given.eager, given.rounds, given.steps)
        # The copy is as large as the largest activation.
        chips = [from_datasheet(here), measured(here, copied=BF16 * 4 * shape.tokens * shape.width)]
    rooflines = [Roofline(shape, chip, given.chunk, step) for chip in chips if chip]
    text = "\n\n".join(report(shape, given.chunk, rooflines))
    print(f"{given.model}: {text}")
    if step is None:
        print("\nThe measured columns need a GPU (--measure), or a small model on the CPU (--measure --device cpu).")
    if given.out:
        page = f"torch {version('torch')}, {today()}\n\n{text}"
        write(given.out, f"roofline-{given.model}", page, figures(shape, given.chunk, rooflines))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = Parser(__doc__)
    parser.add_argument("--model", choices=SETTINGS, default="base", help="of conf/model")
    for size in ("vocabulary", "context", "batch"):
        parser.add_argument(f"--{size}", type=positive, help="by default the model's")
    parser.add_argument("--chunk", type=positive, help="tokens per chunk of logits; train.py has 4096")
    parser.add_argument("--chip", choices=CHIPS, nargs="+", default=list(CHIPS), help="without --measure")
    parser.add_argument("--measure", action="store_true", help="run the step on this device")
    parser.add_device(default=None)
    parser.add_argument("--eager", action="store_true", help="measure without compiling, so without fusion")
    parser.add_argument("--threads", type=positive, default=1, help="of the CPU")
    parser.add_rounds(10, steps=10)
    parser.add_out()
    return parser.parse_args()


def shape_of(model: str, vocabulary: int | None, context: int | None, batch: int | None) -> Shape:
    """The sizes in conf/model, with a batch."""
    sizes = OmegaConf.load(CONF / "model" / f"{model}.yaml")
    chosen = (given or default for given, default in zip((vocabulary, context, batch), SETTINGS[model], strict=True))
    return Shape(sizes.layers, sizes.width, sizes.heads, *chosen)


def report(shape: Shape, chunk: int | None, rooflines: list[Roofline]) -> Iterator[str]:
    """Blocks of Markdown."""
    yield (
        f"{shape.layers} layers x {shape.width} x {shape.heads} heads, vocabulary {shape.vocab_size:,}, "
        f"{shape.parameters / 1e6:.1f}M parameters, {shape.batch_size} sequences of {shape.context:,} tokens per step"
    )
    for one in rooflines:
        chip = one.chip
        yield (
            f"**{chip.name}**: {chip.matmul / 1e12:.4g} TFLOP/s in bf16 matrix products, {chip.vector / 1e12:.3g} "
            f"TFLOP/s elsewhere, {chip.bandwidth / 1e12:.3g} TB/s ({chip.source})"
        )
        yield one.table()
        yield " ".join(one.summary())
    counted = peak_memory(shape, chunk)
    sizes = {**counted, "**total**": sum(counted.values())}
    yield table(["in memory when the backward starts", "MB"], [[name, number(of / 1e6)] for name, of in sizes.items()])


def number(value: float) -> str:
    """Three significant digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def figures(shape: Shape, chunk: int | None, rooflines: list[Roofline]) -> dict[str, Any]:
    """The report for a program."""
    step = rooflines[0].step
    return {
        "shape": asdict(shape),
        "memory": peak_memory(shape, chunk),
        "chips": [{**asdict(one.chip), "step": one.total(), "parts": list(one.parts())} for one in rooflines],
        "measured": step
        and {
            "rounds_ms": [1e3 * seconds for seconds in step.rounds],
            "other_ms": {stage: 1e3 * seconds for stage, seconds in step.other.items()},
            "peak": step.peak,
        },
    }


if __name__ == "__main__":
    main()
