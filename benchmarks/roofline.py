"""How fast a training step could be, part by part: `python benchmarks/roofline.py --model base`.

The floor of a part is the longer of two times: its arithmetic at the chip's peak, and its bytes at the memory's
bandwidth. `costs.py` counts both. With --measure the real compiled step runs, and what each part took stands
beside its floor.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chips import CHIPS, Chip, known, measured
from costs import BF16, Shape, parts, peak_memory
from omegaconf import OmegaConf

from posenc.storage.atomic import atomic_write

if TYPE_CHECKING:
    import torch
    from kernels import Measured

CONF = Path(__file__).parent.parent / "conf"

SETTINGS = {"tiny": (256, 256, 16), "small": (256, 512, 64), "base": (50_304, 1024, 32)}
"""Vocabulary, context and batch of each model. GPT-2's vocabulary of 50,257 is padded to a multiple of 64."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SETTINGS, default="base", help="of conf/model")
    parser.add_argument("--vocabulary", type=int, help="by default the model's setting, as the next two")
    parser.add_argument("--context", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument(
        "--chunk", type=int, help="count logits in chunks of so many tokens, as train.py makes them: 4096"
    )
    parser.add_argument(
        "--chip", choices=CHIPS, nargs="+", default=list(CHIPS), help="whose ceilings, without --measure"
    )
    parser.add_argument("--measure", action="store_true", help="run the step, on this device")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--eager", action="store_true", help="measure without compiling, which fuses nothing")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="in a round")
    parser.add_argument("--out", type=Path, help="a folder for the tables, as Markdown and JSON")
    given = parser.parse_args()
    shape = shape_of(given.model, given.vocabulary, given.context, given.batch)
    device = measurable(given.device, given.threads) if given.measure else None
    took = measure(shape, device, given) if device else None
    chips = ceilings(device, shape) if device else [CHIPS[name] for name in given.chip]
    text = "\n\n".join(report(shape, chips, given.chunk, took))
    print(f"{given.model}: {text}")
    if took is None:
        print("\nThe measured columns need a GPU (--measure), or a small model on the CPU (--measure --device cpu).")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        heading = f"torch {version('torch')}, {datetime.now(UTC).date()}"
        atomic_write(given.out / f"roofline-{given.model}.md", f"{heading}\n\n{text}\n")
        numbers = json.dumps(in_numbers(shape, chips, given.chunk, took), indent=1)
        atomic_write(given.out / f"roofline-{given.model}.json", numbers + "\n")


def shape_of(model: str, vocabulary: int | None, context: int | None, batch: int | None) -> Shape:
    """The sizes of a model of conf/model, with a batch."""
    sizes = OmegaConf.load(CONF / "model" / f"{model}.yaml")
    tokens = (mine or usual for mine, usual in zip((vocabulary, context, batch), SETTINGS[model], strict=True))
    return Shape(sizes.layers, sizes.width, sizes.heads, *tokens)


def in_words(shape: Shape) -> str:
    return (
        f"{shape.layers} layers x {shape.width} x {shape.heads} heads, vocabulary {shape.vocab_size:,}, "
        f"{shape.parameters / 1e6:.1f}M parameters, {shape.batch_size} windows of {shape.context:,} tokens a step"
    )


def measurable(device: str, threads: int) -> "torch.device | None":
    """Where to measure: a GPU, or a CPU only if it is asked for."""
    import torch

    torch.set_num_threads(threads)
    if device == "cpu":
        return torch.device("cpu")
    return torch.device("cuda") if torch.cuda.is_available() else None


def measure(shape: Shape, device: "torch.device", given: argparse.Namespace) -> "Measured":
    """What the real step takes."""
    import kernels

    return kernels.measure(shape, device, not given.eager, given.rounds, given.steps)


def ceilings(device: "torch.device", shape: Shape) -> list[Chip]:
    """Those of the datasheet, where there is one, and those that were reached. Copied is the widest activation."""
    reached = measured(device, copied=BF16 * 4 * shape.tokens * shape.width)
    return [chip for chip in (known(device), reached) if chip]


def report(shape: Shape, chips: list[Chip], chunk: int | None, took: "Measured | None") -> Iterator[str]:
    """Its blocks, as Markdown."""
    yield in_words(shape)
    for chip in chips:
        yield (
            f"**{chip.name}**: {chip.matmul / 1e12:.4g} TFLOP/s in bf16 matrices, {chip.vector / 1e12:.3g} TFLOP/s "
            f"elsewhere, {chip.bandwidth / 1e12:.3g} TB/s ({chip.source})"
        )
        yield part_table(shape, chip, chunk, took)
        yield " ".join(in_sum(shape, chip, chunk, took))
    yield memory_table(shape, chunk)


def part_table(shape: Shape, chip: Chip, chunk: int | None, took: "Measured | None") -> str:
    """A line a part."""
    header = ["part", "stage", "bound", "GFLOP", "MB", "arithmetic, ms", "memory, ms", "floor, ms"]
    lines = [header + (["measured, ms", "gap, ms"] if took else [])]
    for row in rows(shape, chip, chunk, took):
        times = [row[key] for key in ("arithmetic_ms", "memory_ms", "floor_ms", "measured_ms", "gap_ms") if key in row]
        counted = [number(row["gflop"]), number(row["mb"])]
        lines.append([row["part"], row["stage"], row["bound"], *counted, *(f"{time:.3f}" for time in times)])
    return aligned(lines, words=3)


def aligned(lines: list[list[str]], words: int) -> str:
    """Markdown that can be read as it is: the first columns hold words, the others numbers."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<" if place < words else ">" for place in range(len(widths))]
    rule = ["-" * width if side == "<" else "-" * (width - 1) + ":" for side, width in zip(sides, widths, strict=True)]
    rows = [lines[0], rule, *lines[1:]]
    form = "| " + " | ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)) + " |"
    return "\n".join(form.format(*row) for row in rows)


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rows(shape: Shape, chip: Chip, chunk: int | None, took: "Measured | None") -> Iterator[dict[str, Any]]:
    """The numbers of each part."""
    for part in parts(shape, chunk):
        times, (least, bound) = chip.times(part.work), chip.floor(part.work)
        row = {
            "part": part.name,
            "stage": part.stage,
            "gflop": (part.work.matmul + part.work.vector) / 1e9,
            "mb": part.work.bytes / 1e6,
            "arithmetic_ms": 1e3 * max(times["matmul"], times["vector"]),
            "memory_ms": 1e3 * times["memory"],
            "floor_ms": 1e3 * least,
            "bound": bound,
        }
        if took:
            seconds = took.parts.get((part.name, part.stage), 0.0)
            row |= {"measured_ms": 1e3 * seconds, "gap_ms": 1e3 * (seconds - least)}
        yield row


def whole(shape: Shape, chip: Chip, chunk: int | None) -> dict[str, float]:
    """The step at its floor."""
    counted = parts(shape, chunk)
    seconds = sum(chip.floor(part.work)[0] for part in counted)
    return {
        "floor_ms": 1e3 * seconds,
        "tokens_per_s": shape.tokens / seconds,
        "mfu": mfu(shape, chip, seconds),
        "matmul_tflop": sum(part.work.matmul for part in counted) / 1e12,
        "usual_tflop": shape.flops_per_token * shape.tokens / 1e12,
    }


def mfu(shape: Shape, chip: Chip, seconds: float) -> float:
    """Model FLOPs utilisation of a step that takes so long: the usual count over the chip's peak."""
    return shape.flops_per_token * shape.tokens / seconds / chip.matmul


def in_sum(shape: Shape, chip: Chip, chunk: int | None, took: "Measured | None") -> Iterator[str]:
    """The step as a whole, in sentences."""
    least = whole(shape, chip, chunk)
    yield (
        f"Floor of a step: {least['floor_ms']:.2f} ms, {least['tokens_per_s']:,.0f} tokens/s, MFU {least['mfu']:.1%}; "
        f"its matrix products are {least['matmul_tflop']:.4g} TFLOP, by the usual count {least['usual_tflop']:.4g}."
    )
    if took is None:
        return
    seconds = statistics.median(took.rounds)
    other = sum(took.other.values())
    kernels = sum(took.parts.values())
    yield (
        f"Measured: {1e3 * seconds:.2f} ms ({1e3 * min(took.rounds):.2f} to {1e3 * max(took.rounds):.2f}), "
        f"{shape.tokens / seconds:,.0f} tokens/s, MFU {mfu(shape, chip, seconds):.1%}, "
        f"{1e3 * seconds / least['floor_ms']:.2f} times the floor. In the profile the parts above took "
        f"{1e3 * (kernels - other):.2f} ms, other kernels {1e3 * other:.2f} ms; {1e3 * (seconds - kernels):.2f} ms of "
        "the step are left, for launches and waiting."
    )
    if took.peak is not None:
        counted = sum(peak_memory(shape, chunk).values())
        yield f"Peak memory measured: {took.peak / 1e9:.2f} GB, {took.peak / counted:.2f} times what is counted."


def memory_table(shape: Shape, chunk: int | None) -> str:
    """A line for what lies in memory when the backward begins."""
    counted = peak_memory(shape, chunk)
    sizes = {**counted, "**together**": sum(counted.values())}
    lines = [[name, number(size / 1e6)] for name, size in sizes.items()]
    return aligned([["in memory when the backward begins", "MB"], *lines], words=1)


def in_numbers(shape: Shape, chips: list[Chip], chunk: int | None, took: "Measured | None") -> dict[str, Any]:
    """The report for a program."""
    return {
        "shape": asdict(shape),
        "memory": peak_memory(shape, chunk),
        "chips": [
            {**asdict(chip), "step": whole(shape, chip, chunk), "parts": list(rows(shape, chip, chunk, took))}
            for chip in chips
        ],
        "measured": took
        and {
            "rounds_ms": [1e3 * seconds for seconds in took.rounds],
            "other_ms": {stage: 1e3 * seconds for stage, seconds in took.other.items()},
            "peak": took.peak,
        },
    }


if __name__ == "__main__":
    main()
