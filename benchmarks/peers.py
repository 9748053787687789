"""Training throughput of posenc (pos=rope) and other implementations, in one process: `python benchmarks/peers.py`.

All train on the same batch, in the same precision, with the same loss over the same positions, our AdamW (fused; weight
decay on matrices only) and gradients clipped to a norm of 1. They run in interleaved rounds, and figures are medians
over rounds. benchmarks/implementations.py states how each is built and how it differs from ours. "our speed-up"
compares an implementation with the one of our models that has the same architecture.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import implementations
import torch
import yaml
from implementations import Implementation, Shape
from options import Parser, positive
from output import command, environment, table, today, with_version, write
from timing import ratios, spread, time_interleaved
from torch import Tensor

from posenc.config.files import CONF
from posenc.errors import first_line
from posenc.objectives.objective import Causal, Masked, Objective
from posenc.training.efficiency import peak_flops
from posenc.training.optim import AdamW
from posenc.training.step import TrainingStep

VOCAB_SIZES = {"tiny": 256, "small": 256, "base": 50_257}
"""Tokens of the tokenizer: bytes, or GPT-2's."""

IMPLEMENTATIONS = {"causal": implementations.CAUSAL, "masked": implementations.MASKED}

PADDING = 64
"""Every model's vocabulary is padded to a multiple of it."""

WARM_UP = 3
"""Steps before the measurement, for the compiler and the allocator."""

Row = dict[str, Any]
"""The results of an implementation."""


class Training:
    """Trains an implementation on one batch, repeatedly.

    Args:
        implementation, shape: what is built.
        batch: inputs and targets, (B, T) each, on the device.
        precision: bf16 or fp32.
        compiler: a mode of torch.compile; None for eager.

    Attributes:
        memory: peak bytes of its own tensors on the GPU, after the first step; None on the CPU.
        losses: of the warm-up steps.
    """

    def __init__(
        self,
        implementation: Implementation,
        shape: Shape,
        batch: tuple[Tensor, Tensor],
        precision: str,
        compiler: str | None,
    ) -> None:
        device = batch[0].device
        gc.collect()
        square = torch.ones(8, 8, device=device, requires_grad=True)
        (square @ square).sum().backward()  # cuBLAS allocates a workspace for each of the two threads
        before = torch.cuda.memory_allocated()
        torch.manual_seed(0)
        self.implementation, self.batch = implementation, batch
        self.model = model = implementation.build(shape).to(device).train()

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            return implementation.loss(model, inputs, targets)

        compiled = loss if compiler is None else torch.compile(loss, dynamic=False, mode=compiler)
        autocast = device.type if precision == "bf16" else None
        self.training_step = TrainingStep(model, compiled, AdamW(lr=1e-3), autocast=autocast)
        self.losses = [self.step().item()]
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.losses += [self.step().item() for _ in range(WARM_UP - 1)]
        self.memory = torch.cuda.max_memory_allocated() - before or None  # 0 on the CPU

    def step(self) -> Tensor:
        """One update; the loss before it, ()."""
        torch.compiler.cudagraph_mark_step_begin()
        return self.training_step(*self.batch)

    def parameters(self, min_ndim: int = 0) -> int:
        """Trained parameters, in tensors of at least so many dimensions; a tied matrix counts once."""
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        return sum(weight.numel() for weight in trained if weight.ndim >= min_ndim)

    def flops_per_token(self, shape: Shape) -> int:
        """Of forward and backward: 6 per matrix weight, 12 L D T for attention (Chowdhery et al. 2022, appendix B).

        The output matrix counts; the embedding tied to it does not. As is usual, attention counts in full even where
        half of it is masked.
        """
        return 6 * self.parameters(min_ndim=2) + 12 * shape.layers * shape.width * shape.context


def shape_of(given: argparse.Namespace, objective: Objective) -> Shape:
    """The shape of conf/model/NAME.yaml, with a padded vocabulary."""
    model = yaml.safe_load((CONF / "model" / f"{given.model}.yaml").read_text())
    vocab_size = -(-objective.vocab_size // PADDING) * PADDING
    return Shape(vocab_size, given.context, model["layers"], model["width"], model["heads"], objective.causal)


def random_batch(given: argparse.Namespace, objective: Objective) -> tuple[Tensor, Tensor]:
    """Random tokens: inputs and targets, (B, T) each."""
    generator = torch.Generator().manual_seed(0)
    size = (given.batch, given.context + objective.lookahead)
    window = torch.randint(VOCAB_SIZES[given.model], size, generator=generator)
    noise = torch.rand(*size, objective.noise_per_token, generator=generator)
    inputs, targets = objective.inputs_and_targets(window, noise)
    return inputs.contiguous().to(given.device), targets.contiguous().to(given.device)


def selected(given: argparse.Namespace) -> list[Implementation]:
    """Those whose names start as --only says, and the models of ours that they are compared with."""
    every = IMPLEMENTATIONS[given.objective]
    chosen = [one for one in every if one.name.lower().startswith(tuple(given.only))]
    references = {one.reference for one in chosen}
    return [one for one in every if one in chosen or one.name in references]


def prepare(given: argparse.Namespace, shape: Shape, batch: tuple[Tensor, Tensor]) -> list[Training]:
    """Build and warm up all implementations that work here; prints why others are skipped."""
    ready = []
    for implementation in selected(given):
        if not implementation.installed:
            print(f"{implementation.name} skipped: {implementation.package} is not installed", file=sys.stderr)
            continue
        start = time.perf_counter()
        try:
            ready.append(Training(implementation, shape, batch, given.precision, given.compile))
            breaks = sum(torch._dynamo.utils.counters.pop("graph_break", {}).values())
            ready_after = f"ready after {time.perf_counter() - start:.0f} s, {breaks} graph breaks"
            print(f"{implementation.name}: {ready_after}", file=sys.stderr)
        except Exception as error:
            if implementation.package == "posenc":
                raise
            reason = f"{type(error).__name__}: {first_line(error)}"
            print(f"{implementation.name} skipped: {reason}", file=sys.stderr)
    return ready


def measure(given: argparse.Namespace, shape: Shape, ready: Sequence[Training]) -> list[Row]:
    """One row per implementation."""
    tokens = given.batch * given.context
    times = time_interleaved({one.implementation.name: one.step for one in ready}, given.rounds, given.steps)
    peak = peak_flops(given.device, "bf16-mixed" if given.precision == "bf16" else "32-true")
    rows = []
    for one in ready:
        implementation, seconds = one.implementation, times[one.implementation.name]
        tokens_per_s = spread(tokens / value for value in seconds).median
        rows.append(
            {
                "implementation": implementation.name,
                "package": with_version(implementation.package),
                "settings": implementation.settings,
                "parameters": one.parameters(),
                "seconds": seconds,
                "tokens_per_s": tokens_per_s,
                "reference": implementation.reference,
                "our_speed_up": spread(ratios(seconds, times[implementation.reference])),
                "memory": one.memory,
                "mfu": None if peak is None else tokens_per_s * one.flops_per_token(shape) / peak,
                "losses": one.losses,
            }
        )
    return rows


COLUMNS: dict[str, Callable[[Row], str]] = {
    "implementation": lambda row: row["implementation"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "tokens/s": lambda row: f"{row['tokens_per_s']:,.0f}",
    "our speed-up": lambda row: row["our_speed_up"].text(".2f"),
    "loss": lambda row: f"{row['losses'][0]:.2f} to {row['losses'][-1]:.2f}",
    "memory": lambda row: "" if row["memory"] is None else f"{row['memory'] / 2**30:.2f} GiB",
    "MFU": lambda row: "" if row["mfu"] is None else f"{row['mfu']:.1%}",
}


def result_table(rows: Sequence[Row]) -> str:
    """One row per implementation; empty columns are left out."""
    cells = {header: [text(row) for row in rows] for header, text in COLUMNS.items()}
    filled = {header: column for header, column in cells.items() if any(column)}
    return table(list(filled), list(zip(*filled.values(), strict=True)))


def page(given: argparse.Namespace, shape: Shape, rows: Sequence[Row]) -> str:
    """The results as Markdown."""
    compiled = f"compiled ({given.compile})" if given.compile else "not compiled"
    return "\n".join(
        [
            f"`{command()}`, {today()}:",
            "",
            f"{environment(given.device)}, {given.precision}, {compiled}.",
            f"{given.model}: {shape.layers} layers, width {shape.width}, {shape.heads} heads; vocabulary "
            f"{shape.vocab_size}, context {shape.context}, batch {given.batch}, {given.objective}; "
            f"{given.rounds} rounds of {given.steps} steps.",
            "",
            result_table(rows),
            "",
            *(
                f"- {row['implementation']}: {row['package']}, {row['settings']}; compared with {row['reference']}; "
                f"ms per step: {', '.join(f'{1e3 * seconds:.1f}' for seconds in row['seconds'])}"
                for row in rows
            ),
        ]
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = Parser(__doc__)
    parser.add_argument("--model", choices=VOCAB_SIZES, default="tiny", help="a shape of conf/model")
    parser.add_argument("--context", type=positive, default=256)
    parser.add_argument("--batch", type=positive, default=16, help="sequences per step")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16", help="bf16 uses autocast")
    parser.add_argument("--objective", choices=IMPLEMENTATIONS, default="causal")
    parser.add_argument("--compile", nargs="?", const="default", help="a mode of torch.compile, for all")
    parser.add_argument("--only", nargs="+", default=[""], type=str.lower, help="those whose names start like this")
    parser.add_device()
    parser.add_threads()
    parser.add_rounds(15, steps=4)
    parser.add_out()
    given = parser.parse_args()
    names = [one.name for one in IMPLEMENTATIONS[given.objective]]
    for only in given.only:
        if not any(name.lower().startswith(only) for name in names):
            parser.error(f"--only {only} matches none of {'; '.join(names)}")
    return given


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    # One compiled function per implementation: above the limit, torch would silently stop compiling.
    torch._dynamo.config.recompile_limit = 64
    objective = {"causal": Causal, "masked": Masked}[given.objective](VOCAB_SIZES[given.model])
    shape = shape_of(given, objective)
    rows = measure(given, shape, prepare(given, shape, random_batch(given, objective)))
    text = page(given, shape, rows)
    print(text)
    if given.out:
        settings = {name: str(value) for name, value in vars(given).items()}
        write(given.out, "peers", text, {"settings": settings, "shape": shape._asdict(), "rows": rows})
    missing = [one.name for one in selected(given) if one.name not in {row["implementation"] for row in rows}]
    if given.only != [""] and missing:
        sys.exit(f"not measured: {', '.join(missing)}")


if __name__ == "__main__":
    main()
