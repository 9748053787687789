"""Training tokens/s of posenc (pos=rope) and of its peers, in one process: `python benchmarks/peers.py`.

All contenders train on the same batch, in the same precision, with the same loss over the same positions, our AdamW
(fused; weight decay on matrices only) and gradients clipped to a norm of 1. They take turns, and each figure is the
median over the turns. benchmarks/contenders.py says how each is built, and how it differs from ours. "ours over it"
compares a peer with the one of our models that computes the same.
"""

import argparse
import gc
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import contenders
import torch
import turns
import yaml
from contenders import Contender, Shape
from torch import Tensor, nn

from posenc.errors import first_line
from posenc.objectives.objective import Causal, Masked, Objective
from posenc.training import environment
from posenc.training.efficiency import DENSE_BF16
from posenc.training.optim import AdamW
from posenc.training.step import TrainingStep

MODELS = Path(__file__).parent.parent / "conf" / "model"
VOCABULARY = {"tiny": 256, "small": 256, "base": 50_257}
"""Tokens that the tokenizer has: bytes, or GPT-2's."""

ENTRANTS = {"causal": contenders.CAUSAL, "masked": contenders.MASKED}

PADDING = 64
"""The vocabulary of every model is a multiple of it."""

WARM_UP = 3
"""Steps of a contender before it is measured: the compiler and the allocator settle."""

Row = dict[str, Any]
"""A contender's figures."""


class WithLoss(nn.Module):
    """A model and the loss of its predictions in one module, so that a compiler sees both."""

    def __init__(self, contender: Contender, shape: Shape, precision: str) -> None:
        super().__init__()
        self.model, self.loss, self.autocast = contender.build(shape), contender.loss, precision == "bf16"

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """(B, T) each -> mean nats per predicted token."""
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.autocast):
            return self.loss(self.model, inputs, targets)


class PeakMemory:
    """The bytes of tensors on a GPU, at their most, beyond those that were there before: those of one contender."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        gc.collect()
        if device.type == "cuda":
            torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)  # has the library take its workspace
            self.before = torch.cuda.memory_allocated(device)

    def begin(self) -> None:
        """Forget what was taken until now, as for compiling."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def read(self) -> int | None:
        """None where there is no CUDA."""
        if self.device.type != "cuda":
            return None
        turns.wait_for(self.device)
        return torch.cuda.max_memory_allocated(self.device) - self.before


class Training:
    """A contender that is trained on one batch over and over.

    Args:
        contender, shape: what is built.
        batch: inputs and targets, (B, T) each, on the device.
        precision: bf16 or fp32.
        compiler: a mode of torch.compile, or None to do without.

    Attributes:
        memory: the most bytes that its tensors took of the GPU, after the first step; None elsewhere.
        losses: of the steps of the warm-up.
    """

    def __init__(
        self, contender: Contender, shape: Shape, batch: tuple[Tensor, Tensor], precision: str, compiler: str | None
    ) -> None:
        memory = PeakMemory(batch[0].device)
        torch.manual_seed(0)
        self.contender, self.batch = contender, batch
        self.objective = WithLoss(contender, shape, precision).to(batch[0].device).train()
        if compiler is not None:
            self.objective.compile(mode=compiler)
        self.update = TrainingStep(self.objective, self.objective, AdamW(lr=1e-3))
        self.losses = [self.step().item()]
        memory.begin()
        self.losses += [self.step().item() for _ in range(WARM_UP - 1)]
        self.memory = memory.read()

    def step(self) -> Tensor:
        """One update; the loss before it, ()."""
        torch.compiler.cudagraph_mark_step_begin()
        return self.update(*self.batch)

    def steps(self, count: int) -> None:
        """Updates."""
        for _ in range(count):
            self.step()

    def parameters(self, least_dimensions: int = 0) -> int:
        """How many numbers are trained, in tensors of so many dimensions; a tied matrix counts once."""
        trained = [weight for weight in self.objective.parameters() if weight.requires_grad]
        return sum(weight.numel() for weight in trained if weight.ndim >= least_dimensions)

    def flops_a_token(self, shape: Shape) -> int:
        """Of forward and backward: 6 a weight of a matrix, 12 L D T for attention (Chowdhery et al. 2022, appendix B).

        The output's matrix counts and, tied to it, the embedding does not. Attention counts in full, as is usual,
        also where half of it is masked.
        """
        return 6 * self.parameters(least_dimensions=2) + 12 * shape.layers * shape.width * shape.context


def shape_of(given: argparse.Namespace, objective: Objective) -> Shape:
    """The shape that conf/model has under this name, with a padded vocabulary."""
    model = yaml.safe_load((MODELS / f"{given.model}.yaml").read_text())
    vocabulary = -(-objective.vocab_size // PADDING) * PADDING
    return Shape(vocabulary, given.context, model["layers"], model["width"], model["heads"], objective.causal)


def batch_of(given: argparse.Namespace, objective: Objective, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random tokens: inputs and targets, (B, T) each."""
    generator = torch.Generator().manual_seed(0)
    size = (given.batch, given.context + objective.lookahead)
    window = torch.randint(VOCABULARY[given.model], size, generator=generator)
    inputs, targets = objective.inputs_and_targets(
        window, torch.rand(*size, objective.noise_per_token, generator=generator)
    )
    return inputs.contiguous().to(device), targets.contiguous().to(device)


def asked_for(names: Sequence[str], entrants: Sequence[Contender]) -> list[Contender]:
    """The contenders whose names begin so, each with the one of our models beside it."""
    peers = [one for one in entrants if one.name.lower().startswith(tuple(names))]
    beside = {one.beside for one in peers} | {"posenc"}
    return [one for one in entrants if one in peers or one.name in beside]


def prepared(given: argparse.Namespace, shape: Shape, batch: tuple[Tensor, Tensor]) -> list[Training]:
    """The contenders that are installed and work here; of the others, a sentence is printed."""
    ready = []
    for contender in asked_for(given.only, ENTRANTS[given.objective]):
        if not contender.installed:
            print(f"{contender.name} is left out: {contender.package} is not installed", file=sys.stderr)
            continue
        begun = time.perf_counter()
        try:
            ready.append(Training(contender, shape, batch, given.precision, given.compile))
            print(f"{contender.name} is ready after {time.perf_counter() - begun:.0f} s", file=sys.stderr)
        except Exception as error:
            if contender.package == "posenc":
                raise
            reason = f"{type(error).__name__}: {first_line(error)}"
            print(f"{contender.name} is left out: {reason}", file=sys.stderr)
    return ready


def measured(given: argparse.Namespace, shape: Shape, device: torch.device, ready: Sequence[Training]) -> list[Row]:
    """A row a contender: what it is, tokens/s of every round, and how our tokens/s compare."""
    tokens = given.steps * given.batch * given.context
    parts = {one.contender.name: (lambda one=one: one.steps(given.steps)) for one in ready}
    seconds = turns.in_turns(parts, given.rounds, device)
    peak = DENSE_BF16.get(environment.hardware(device)) if given.precision == "bf16" else None
    rows = []
    for one in ready:
        taken, ours = seconds[one.contender.name], seconds[one.contender.beside]
        speed = turns.spread(tokens / value for value in taken)
        rows.append(
            {
                "contender": one.contender.name,
                "package": turns.with_version(one.contender.package),
                "settings": one.contender.settings,
                "parameters": one.parameters(),
                "seconds": taken,
                "tokens_per_s": speed.median,
                "beside": one.contender.beside,
                "ours_over_it": turns.spread(theirs / own for theirs, own in zip(taken, ours, strict=True)),
                "memory": one.memory,
                "mfu": None if peak is None else speed.median * one.flops_a_token(shape) / peak,
                "losses": one.losses,
            }
        )
    return rows


COLUMNS: dict[str, Callable[[Row], str]] = {
    "contender": lambda row: row["contender"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "tokens/s": lambda row: f"{row['tokens_per_s']:,.0f}",
    "ours over it": lambda row: row["ours_over_it"].text(".2f"),
    "loss": lambda row: f"{row['losses'][0]:.2f} to {row['losses'][-1]:.2f}",
    "memory": lambda row: "" if row["memory"] is None else f"{row['memory'] / 2**30:.2f} GiB",
    "MFU": lambda row: "" if row["mfu"] is None else f"{row['mfu']:.1%}",
}


def table(rows: Sequence[Row]) -> str:
    """A row a contender, without the columns that have nothing in them."""
    cells = {header: [write(row) for row in rows] for header, write in COLUMNS.items()}
    told = {header: column for header, column in cells.items() if any(column)}
    return turns.table(list(told), list(zip(*told.values(), strict=True)))


def page(given: argparse.Namespace, shape: Shape, device: torch.device, rows: Sequence[Row]) -> str:
    """The result for a reader."""
    compiled = f"compiled ({given.compile})" if given.compile else "not compiled"
    return "\n".join(
        [
            f"`python benchmarks/peers.py {shlex.join(sys.argv[1:])}`, {datetime.now(UTC).date()}:",
            "",
            f"{environment.hardware(device)}, torch {torch.__version__}, {given.precision}, {compiled}.",
            f"{given.model}: {shape.layers} layers, width {shape.width}, {shape.heads} heads; vocabulary "
            f"{shape.vocabulary}, context {shape.context}, batch {given.batch}, {given.objective}; "
            f"{given.rounds} rounds of {given.steps} steps.",
            "",
            table(rows),
            "",
            *(f"- {row['contender']}: {row['package']}, {row['settings']}; beside {row['beside']}" for row in rows),
        ]
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=VOCABULARY, default="tiny", help="a shape of conf/model")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16, help="windows of text a step")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16", help="bf16 is by autocast")
    parser.add_argument("--objective", choices=ENTRANTS, default="causal")
    parser.add_argument("--compile", nargs="?", const="default", help="a mode of torch.compile, for all contenders")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="of each contender in a round")
    parser.add_argument("--only", nargs="+", default=[""], type=str.lower, help="peers whose names begin so")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, help="a folder for peers.md and peers.json")
    given = parser.parse_args()
    for name in ("context", "batch", "threads", "rounds", "steps"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name)} must be at least 1")
    names = [one.name for one in ENTRANTS[given.objective]]
    for only in given.only:
        if not any(name.lower().startswith(only) for name in names):
            parser.error(f"--only {only} is no contender; there are {'; '.join(names)}")
    try:
        given.device = turns.chosen(given.device)
    except ValueError as error:
        parser.error(str(error))
    return given


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    # One compiled function a contender: past the limit, torch would silently go on without compiling.
    torch._dynamo.config.recompile_limit = 64
    objective = {"causal": Causal, "masked": Masked}[given.objective](VOCABULARY[given.model])
    shape = shape_of(given, objective)
    ready = prepared(given, shape, batch_of(given, objective, given.device))
    rows = measured(given, shape, given.device, ready)
    text = page(given, shape, given.device, rows)
    print(text)
    if given.out:
        settings: dict[str, Any] = {name: str(value) for name, value in vars(given).items()}
        turns.write(given.out, "peers", text, {"settings": settings, "shape": shape._asdict(), "rows": rows})


if __name__ == "__main__":
    main()
