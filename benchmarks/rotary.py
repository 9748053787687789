"""The rotation of q and k alone, forward and backward: `python benchmarks/rotary.py`.

The bytes that must move are those of q and k read and written, once forward and once backward; the figure is how fast
they moved, as a share of how fast a plain copy moves the same tensors. Tables of cos and sin count for nothing, and
contenders that keep them have them ready. q and k are (B, H, T, Dh) as projections leave them: (B, T, H, Dh) in memory.

Each contender is first compared with float64. In float32 all must turn alike, up to the order of the channels. In
bf16, one that rounds the angles or the table has a larger error than one that rounds only the result.
"""

import argparse
import gc
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import torch
import turns
from rotations import Contender, Pair, Rotate, Size, largest_error, rounding_error, usable, vectors
from torch import Tensor

from posenc.training import environment

COPY = "copy"
PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}

SIZES = {
    "cpu": ["1x4x64x32", "16x4x256x32", "8x12x1024x64"],
    "cuda": ["1x12x1024x64", "16x12x1024x64", "64x12x1024x64", "8x32x4096x128"],
}


class Result(NamedTuple):
    """A contender at one size and precision.

    Attributes:
        error: the largest against float64; None for a copy.
        seconds: of every round; none for what was not timed.
    """

    contender: str
    error: float | None
    seconds: Sequence[float] = ()


def measured(
    given: argparse.Namespace, able: Sequence[Contender], size: Size, dtype: torch.dtype, device: torch.device
) -> list[Result]:
    """The copy and the bound of the error, then the contenders; with --compile also compiled."""
    torch.compiler.reset()
    gc.collect()
    (q, k), gradients = (vectors(size, dtype, device, seed) for seed in (0, 1))
    rotations = {(one.name, one.layout): one.build(q) for one in able}
    if given.compile:
        for one in able:
            if one.compiles:
                rotations[f"{one.name}, compiled", one.layout] = torch.compile(one.build(q), dynamic=False)
    errors = {name: largest_error(rotate, layout, q, k, gradients) for (name, layout), rotate in rotations.items()}
    parts = {name: both_ways(rotate, q, k, gradients, given.steps) for (name, _), rotate in rotations.items()}
    parts[COPY] = copies(q, k, given.steps)
    seconds = turns.in_turns(parts, given.rounds, device, warm_up=2)
    results = [Result(COPY, None, seconds[COPY]), Result("float64, rounded", rounding_error(q, k, gradients))]
    return results + [Result(name, error, seconds[name]) for name, error in errors.items()]


def both_ways(rotate: Rotate, q: Tensor, k: Tensor, gradients: Pair, steps: int) -> Callable[[], None]:
    """Forward and backward, some times."""
    arguments = [x.clone().requires_grad_() for x in (q, k)]
    given = [x.clone() for x in gradients]

    def run() -> None:
        for _ in range(steps):
            torch.autograd.grad(rotate(*arguments), arguments, given)

    return run


def copies(q: Tensor, k: Tensor, steps: int) -> Callable[[], None]:
    """As many bytes as `both_ways` must move."""
    to_q, to_k = torch.empty_like(q), torch.empty_like(k)

    def run() -> None:
        for _ in range(2 * steps):
            to_q.copy_(q)
            to_k.copy_(k)

    return run


def table(steps: int, dtype: torch.dtype, results: dict[Size, list[Result]]) -> str:
    """A row a contender, a column a size."""
    rows = []
    for every in zip(*results.values(), strict=True):
        errors = [result.error for result in every if result.error is not None]
        cells = [
            cell(result, copy.seconds, steps * size.moved(dtype))
            for result, (size, (copy, *_)) in zip(every, results.items(), strict=True)
        ]
        rows.append([every[0].contender, f"{max(errors):.1e}" if errors else "-", *cells])
    return turns.table(["contender", "largest error", *(size.text() for size in results)], rows)


def cell(result: Result, copy: Sequence[float], moved: int) -> str:
    """The copy's bytes/s, and of the others the share of it that they reach."""
    if not result.seconds:
        return "-"
    if result.contender == COPY:
        return f"{moved / turns.spread(copy).median / 1e9:.1f} GB/s"
    return turns.spread(whole / own for whole, own in zip(copy, result.seconds, strict=True)).text(".2f")


def page(given: argparse.Namespace, device: torch.device, able: Sequence[Contender], tables: dict[str, str]) -> str:
    """The result for a reader."""
    packages = sorted({turns.with_version(one.package) for one in able})
    lines = [
        f"`python benchmarks/rotary.py {shlex.join(sys.argv[1:])}`, {datetime.now(UTC).date()}:",
        "",
        f"{environment.hardware(device)}, torch {torch.__version__}; {', '.join(packages)}; "
        f"{given.rounds} rounds of {given.steps} rotations. Shares of a copy's bytes/s, at BxHxTxDh.",
    ]
    for precision, drawn in tables.items():
        lines += ["", f"{precision}:", "", drawn]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", metavar="BxHxTxDh", help="by default a few, from small to large")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--compile", action="store_true", help="also through torch.compile")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="rotations of each contender in a round")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, help="a folder for rotary.md and rotary.json")
    given = parser.parse_args()
    for name in ("threads", "rounds", "steps"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name)} must be at least 1")
    try:
        given.device = turns.chosen(given.device)
    except ValueError as error:
        parser.error(str(error))
    try:
        given.sizes = [Size.read(text) for text in given.sizes or SIZES[given.device.type]]
    except ValueError as error:
        parser.error(f"--sizes {error}")
    return given


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    # One compiled function a contender: past the limit, torch would silently go on without compiling.
    torch._dynamo.config.recompile_limit = 64
    able = usable(given.device, given.compile)
    results = {
        precision: {size: measured(given, able, size, PRECISIONS[precision], given.device) for size in given.sizes}
        for precision in given.precision
    }
    tables = {name: table(given.steps, PRECISIONS[name], by_size) for name, by_size in results.items()}
    text = page(given, given.device, able, tables)
    print(text)
    if given.out:
        figures = {
            name: {size.text(): [result._asdict() for result in every] for size, every in by_size.items()}
            for name, by_size in results.items()
        }
        turns.write(given.out, "rotary", text, {"command": sys.argv[1:], "results": figures})


if __name__ == "__main__":
    main()
