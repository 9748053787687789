"""Bandwidth of rotating q and k, forward and backward, relative to copying them: `python benchmarks/rotary.py`.

The bytes that count are those of q and k read and written, once forward and once backward; tables of cos and sin do not
count, and implementations that cache them have them ready. q and k are (B, H, T, Dh) as projections return them:
(B, T, H, Dh) in memory.

First, each implementation is compared with float64. In fp32 all must agree, up to the order of the channels. In bf16 an
implementation that rounds the angles or the table has a larger error than one that rounds only the result.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from options import Parser
from output import command, environment, table, today, with_version, write
from rotations import Implementation, Pair, Rotate, Size, available, largest_error, rounding_error, vectors
from timing import ratios, spread, time_interleaved
from torch import Tensor

COPY = "copy"
PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}

SIZES = {
    "cpu": ["1x4x64x32", "16x4x256x32", "8x12x1024x64"],
    "cuda": ["1x12x1024x64", "16x12x1024x64", "64x12x1024x64", "8x32x4096x128"],
}


class Result(NamedTuple):
    """An implementation at one size and precision.

    Attributes:
        error: the largest against float64; None for a copy.
        seconds: per call, by round; empty if not timed.
    """

    implementation: str
    error: float | None
    seconds: Sequence[float] = ()


def measure(
    given: argparse.Namespace, implementations: Sequence[Implementation], size: Size, dtype: torch.dtype
) -> list[Result]:
    """The copy, the lower bound of the error, and the implementations; with --compile also compiled."""
    torch.compiler.reset()
    gc.collect()
    (q, k), gradients = (vectors(size, dtype, given.device, seed) for seed in (0, 1))
    rotations = {(one.name, one.layout): one.build(q) for one in implementations}
    if given.compile:
        for one in implementations:
            if one.compiles:
                rotations[f"{one.name}, compiled", one.layout] = torch.compile(one.build(q), dynamic=False)
    errors = {name: largest_error(rotate, layout, q, k, gradients) for (name, layout), rotate in rotations.items()}
    functions = {name: rotation(rotate, q, k, gradients) for (name, _), rotate in rotations.items()}
    functions[COPY] = copies(q, k)
    seconds = time_interleaved(functions, given.rounds, given.steps, warm_up=2)
    results = [Result(COPY, None, seconds[COPY]), Result("float64, rounded", rounding_error(q, k, gradients))]
    return results + [Result(name, error, seconds[name]) for name, error in errors.items()]


def rotation(rotate: Rotate, q: Tensor, k: Tensor, gradients: Pair) -> Callable[[], object]:
    """Forward and backward."""
    arguments = [x.clone().requires_grad_() for x in (q, k)]
    outputs = [x.clone() for x in gradients]
    return lambda: torch.autograd.grad(rotate(*arguments), arguments, outputs)


def copies(q: Tensor, k: Tensor) -> Callable[[], object]:
    """Copies of as many bytes as `rotation` must move."""
    to_q, to_k = torch.empty_like(q), torch.empty_like(k)
    return lambda: (to_q.copy_(q), to_k.copy_(k), to_q.copy_(q), to_k.copy_(k))


def result_table(dtype: torch.dtype, results: dict[Size, list[Result]]) -> str:
    """One row per implementation, one column per size."""
    rows = []
    for every in zip(*results.values(), strict=True):
        errors = [result.error for result in every if result.error is not None]
        cells = [
            cell(result, copy.seconds, size.bytes_moved(dtype))
            for result, (size, (copy, *_)) in zip(every, results.items(), strict=True)
        ]
        rows.append([every[0].implementation, f"{max(errors):.1e}" if errors else "-", *cells])
    return table(["implementation", "largest error", *(size.text() for size in results)], rows)


def cell(result: Result, copy: Sequence[float], moved: int) -> str:
    """Bytes/s of the copy; of the others, their bandwidth relative to it."""
    if not result.seconds:
        return "-"
    if result.implementation == COPY:
        return f"{moved / spread(copy).median / 1e9:.1f} GB/s"
    return spread(ratios(copy, result.seconds)).text(".2f")


def page(given: argparse.Namespace, implementations: Sequence[Implementation], tables: dict[str, str]) -> str:
    """The results as Markdown."""
    packages = sorted({with_version(one.package) for one in implementations})
    lines = [
        f"`{command()}`, {today()}:",
        "",
        f"{environment(given.device)}; {', '.join(packages)}; {given.rounds} rounds of {given.steps} rotations. "
        "Bandwidth relative to a copy, at BxHxTxDh.",
    ]
    for precision, text in tables.items():
        lines += ["", f"{precision}:", "", text]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = Parser(__doc__)
    parser.add_argument("--sizes", nargs="+", type=Size.parse, metavar="BxHxTxDh", help="by default small to large")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--compile", action="store_true", help="also with torch.compile")
    parser.add_device()
    parser.add_threads()
    parser.add_rounds(15, steps=10)
    parser.add_out()
    given = parser.parse_args()
    given.sizes = given.sizes or [Size.parse(text) for text in SIZES[given.device.type]]
    return given


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    # One compiled function per implementation: above the limit, torch would silently stop compiling.
    torch._dynamo.config.recompile_limit = 64
    implementations = available(given.device, given.compile)
    results = {
        precision: {size: measure(given, implementations, size, PRECISIONS[precision]) for size in given.sizes}
        for precision in given.precision
    }
    tables = {name: result_table(PRECISIONS[name], by_size) for name, by_size in results.items()}
    text = page(given, implementations, tables)
    print(text)
    if given.out:
        figures = {
            name: {size.text(): [result._asdict() for result in every] for size, every in by_size.items()}
            for name, by_size in results.items()
        }
        write(given.out, "rotary", text, {"command": sys.argv[1:], "results": figures})


if __name__ == "__main__":
    main()
