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
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
import turns
from torch import Tensor

from posenc.positions import Rotary
from posenc.training import provenance

Pair = tuple[Tensor, Tensor]
Rotate = Callable[[Tensor, Tensor], Pair]

BASE = 10_000.0
COPY = "copy"
PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}
TOLERANCE = 0.01
"""Of the check in float32. Angles in float32 are off by up to 6e-8 T, which moves channels of size 5 by 3e-7 T."""

SIZES = {
    "cpu": ["1x4x64x32", "16x4x256x32", "8x12x1024x64"],
    "cuda": ["1x12x1024x64", "16x12x1024x64", "64x12x1024x64", "8x32x4096x128"],
}


class Size(NamedTuple):
    """Batch, heads, length and head dimension."""

    batch: int
    heads: int
    length: int
    head_dim: int

    @classmethod
    def read(cls, text: str) -> "Size":
        """From BxHxTxDh.

        Raises:
            ValueError: if it is not four positive numbers, the last of them even.
        """
        numbers = [int(number) for number in text.split("x") if number.isdecimal()]
        if text.count("x") != 3 or len(numbers) != 4 or min(numbers) < 1 or numbers[3] % 2:
            raise ValueError(f"{text} must be like 16x4x256x32, with an even head dimension")
        return cls(*numbers)

    def text(self) -> str:
        return "x".join(map(str, self))

    def moved(self, dtype: torch.dtype) -> int:
        """Bytes: q and k, read and written, forward and backward."""
        return 2 * 2 * 2 * self.batch * self.heads * self.length * self.head_dim * dtype.itemsize


class Layout(NamedTuple):
    """Which channels form a plane: x (.., Dh) -> (.., Dh/2, 2), and back."""

    pairs: Callable[[Tensor], Tensor]
    channels: Callable[[Tensor], Tensor]


LAYOUTS = {
    "half": Layout(lambda x: x.unflatten(-1, (2, -1)).mT, lambda pairs: pairs.mT.flatten(-2)),
    "interleaved": Layout(lambda x: x.unflatten(-1, (-1, 2)), lambda pairs: pairs.flatten(-2)),
}


def exact(x: Tensor, layout: Layout, backward: bool = False) -> Tensor:
    """x (B, H, T, Dh) turned as RoFormer's equation 34 says, in float64 and complex numbers; backward turns back."""
    length, head_dim = x.shape[-2:]
    theta = BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=x.device) / head_dim)
    angle = torch.arange(length, dtype=torch.float64, device=x.device)[:, None] * theta
    turn = torch.polar(torch.ones_like(angle), -angle if backward else angle)
    planes = torch.view_as_complex(layout.pairs(x.double()).contiguous())
    return layout.channels(torch.view_as_real(planes * turn))


class Contender(NamedTuple):
    """A way to turn q and k.

    Attributes:
        name: in the table.
        module: what must be importable.
        package: what it is called in the package index, for its version.
        layout: which channels form a plane.
        devices: where it runs.
        compiles: whether torch.compile has something to do.
        build: q (B, H, T, Dh), for its size, type and device -> the rotation.
    """

    name: str
    module: str
    package: str
    layout: str
    devices: Sequence[str]
    compiles: bool
    build: Callable[[Tensor], Rotate]


def ours(q: Tensor, layout: str) -> Rotate:
    """pos=rope, as attention calls it."""
    scheme = Rotary(q.shape[-1], base=BASE, layout=layout).to(q.device)  # type: ignore[arg-type]
    positions = torch.arange(q.shape[-2], device=q.device)
    return lambda q, k: scheme.rotate(q, k, positions)


def rotary_embedding_torch(q: Tensor) -> Rotate:
    """Its module, which keeps the angles after the first call."""
    from rotary_embedding_torch import RotaryEmbedding

    module = RotaryEmbedding(q.shape[-1], theta=BASE, cache_max_seq_len=q.shape[-2]).to(q.device)
    return lambda q, k: (module.rotate_queries_or_keys(q), module.rotate_queries_or_keys(k))


def _llama_table(q: Tensor) -> Pair:
    """cos and sin of transformers' Llama, (1, T, Dh), in the type of q, as in a model with weights of that type."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    heads, length, head_dim = q.shape[1:]
    rope = {"rope_type": "default", "rope_theta": BASE}
    config = LlamaConfig(num_attention_heads=heads, hidden_size=heads * head_dim, rope_parameters=rope)
    return LlamaRotaryEmbedding(config).to(q.device)(q, torch.arange(length, device=q.device)[None])


def transformers(q: Tensor) -> Rotate:
    """Llama's function, with its table made before."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = _llama_table(q)
    return lambda q, k: apply_rotary_pos_emb(q, k, cos, sin)


def liger(q: Tensor) -> Rotate:
    """liger-kernel's, with the same table. It turns q and k, and their gradients, in place."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    cos, sin = _llama_table(q)
    return lambda q, k: liger_rotary_pos_emb(q, k, cos, sin)


ANYWHERE = ("cpu", "cuda")
CONTENDERS = [
    *(
        Contender(f"posenc, {layout}", "posenc", "posenc", layout, ANYWHERE, True, partial(ours, layout=layout))
        for layout in LAYOUTS
    ),
    Contender(
        "rotary-embedding-torch",
        "rotary_embedding_torch",
        "rotary-embedding-torch",
        "interleaved",
        ANYWHERE,
        True,
        rotary_embedding_torch,
    ),
    Contender("transformers (Llama)", "transformers", "transformers", "half", ANYWHERE, True, transformers),
    Contender("liger-kernel", "liger_kernel", "liger-kernel", "half", ("cuda",), False, liger),
]


def vectors(size: Size, dtype: torch.dtype, device: torch.device, seed: int) -> Pair:
    """Two normal (B, H, T, Dh) that lie as (B, T, H, Dh)."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (2, size.batch, size.length, size.heads, size.head_dim)
    first, second = torch.randn(shape, generator=generator, device=device).to(dtype).transpose(2, 3)
    return first, second


def largest_error(rotate: Rotate, layout: Layout, q: Tensor, k: Tensor, gradients: Pair) -> float:
    """Of any channel of q, k and their gradients against float64."""
    arguments = [x.clone().requires_grad_() for x in (q, k)]
    turned = rotate(*arguments)
    wanted = [exact(x, layout) for x in (q, k)] + [exact(x, layout, backward=True) for x in gradients]
    back = torch.autograd.grad(turned, arguments, [x.clone() for x in gradients])
    return max((got.double() - true).abs().max().item() for got, true in zip([*turned, *back], wanted, strict=True))


def rounding_error(q: Tensor, k: Tensor, gradients: Pair) -> float:
    """What `largest_error` cannot go below: the exact result in the type of q."""
    layout = LAYOUTS["half"]
    every = [exact(x, layout) for x in (q, k)] + [exact(x, layout, backward=True) for x in gradients]
    return max((true.to(q.dtype).double() - true).abs().max().item() for true in every)


def usable(device: torch.device, compiled: bool) -> list[Contender]:
    """The contenders that work here; of the others, a sentence is printed."""
    able = []
    for contender in CONTENDERS:
        fault = fault_of(contender, device, compiled)
        if fault is None:
            able.append(contender)
        else:
            print(f"{contender.name} is left out: {fault}", file=sys.stderr)
    return able


def fault_of(contender: Contender, device: torch.device, compiled: bool) -> str | None:
    """Why a contender cannot be compared, or None if it can."""
    if device.type not in contender.devices:
        return f"it does not run on {device.type}"
    if find_spec(contender.module) is None:
        return f"{contender.package} is not installed"
    try:
        error = max(alike(contender, device, through) for through in {False, compiled and contender.compiles})
    except Exception as error_of_theirs:
        return f"{type(error_of_theirs).__name__}: {str(error_of_theirs).partition(chr(10))[0]}"
    return f"in float32 it is {error:.2g} from the rotation" if error > TOLERANCE else None


def alike(contender: Contender, device: torch.device, compiled: bool) -> float:
    """Its largest error in float32, at a small size."""
    size = Size(2, 4, 512, 64)
    q, k = vectors(size, torch.float32, device, seed=0)
    gradients = vectors(size, torch.float32, device, seed=1)
    rotate = contender.build(q)
    if compiled:
        rotate = torch.compile(rotate, dynamic=False)
    return largest_error(rotate, LAYOUTS[contender.layout], q, k, gradients)


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
    errors = {
        name: largest_error(rotate, LAYOUTS[layout], q, k, gradients) for (name, layout), rotate in rotations.items()
    }
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
        f"{provenance.hardware(device)}, torch {torch.__version__}; {', '.join(packages)}; "
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
