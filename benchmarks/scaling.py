"""Training throughput as a function of length, width and batch size: `python benchmarks/scaling.py --out benchmarks`.

All points of an axis are timed in interleaved rounds in one process.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from options import Parser, device
from output import command, today, write
from scaling_results import AXES, VARIANTS, figure, markdown
from timing import elapsed, time_interleaved

from posenc.config.command_line import one_sentence_errors
from posenc.errors import UserError, first_line

if TYPE_CHECKING:
    import torch

    from posenc.model import Transformer

VOCAB_SIZE = 256


class Shape(NamedTuple):
    """A point: `batch` sequences of `length` tokens per step, in a model of `width`."""

    length: int
    width: int
    batch: int


class Section(NamedTuple):
    """Training steps that are timed together."""

    tokens: int
    run: Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """The points of the axes, and the values of what is not varied.

    Args:
        layers, head_dim: of every model.
        tokens: per step, on the axes of length and width: longer sequences have smaller batches.
        length, width: on the other axes.
        lengths, widths, batches: the points, in ascending order.
        section: minimum seconds of a timed section; determines its number of steps.
    """

    layers: int
    head_dim: int
    tokens: int
    length: int
    width: int
    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    batches: tuple[int, ...]
    section: float

    def shapes(self, axis: str) -> list[Shape]:
        """The points of an axis."""
        return {
            "length": [Shape(length, self.width, self.tokens // length) for length in self.lengths],
            "width": [Shape(self.length, width, self.tokens // self.length) for width in self.widths],
            "batch": [Shape(self.length, self.width, batch) for batch in self.batches],
        }[axis]


QUICK = Setting(
    layers=1, head_dim=8, tokens=128, length=32, width=16,
    lengths=(32, 64, 128), widths=(16, 32), batches=(1, 4), section=0,
)  # fmt: skip
SETTINGS = {
    "cpu": Setting(
        layers=4, head_dim=32, tokens=8192, length=256, width=128,
        lengths=(64, 128, 256, 512, 1024, 2048, 4096, 8192), widths=(64, 128, 256, 512), batches=(1, 2, 4, 8, 16, 32),
        section=0.4,
    ),
    "cuda": Setting(
        layers=2, head_dim=64, tokens=32_768, length=1024, width=512,
        lengths=(2048, 4096, 8192, 16_384), widths=(128, 256, 512, 1024, 2048),
        batches=(1, 4, 16, 64, 128), section=0.4,
    ),
}  # fmt: skip


def main() -> None:
    parser = Parser(__doc__)
    parser.add_device()
    parser.set_defaults(device=None)  # --draw does without torch
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_rounds(5)
    parser.add_argument("--seconds", type=float, default=60, help="skip points that take longer (default: 60)")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="default: on a GPU")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to test the script")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write scaling.md, scaling.json and scaling.png")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="only draw scaling.png from a scaling.json")
    given = parser.parse_args()
    with one_sentence_errors():
        results = measure(given) if given.draw is None else read(given.draw)
        text = markdown(results)
        if given.out is not None and given.draw is None:
            write(given.out, "scaling", text, results)
        if folder := given.out or (given.draw and given.draw.parent):
            draw(results, folder)
    print(text)


def read(file: Path) -> dict[str, Any]:
    """The results in a scaling.json.

    Raises:
        UserError: if it is none.
    """
    try:
        results = json.loads(file.read_text())
        markdown(results)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--draw={file} cannot be read as results of this script ({error})") from error
    return results


def draw(results: dict[str, Any], folder: Path) -> None:
    from posenc.report.figures import save

    folder.mkdir(parents=True, exist_ok=True)
    save(figure(results), folder / "scaling.png")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Time the points of all axes."""
    import torch

    from posenc.training import environment
    from posenc.training.accelerator import Hardware

    where = given.device or device("auto")
    precision = Hardware("cpu" if where.type == "cpu" else "gpu").chosen_precision()
    # Linear attention disables autocast: next to bf16 a GPU uses TF32 for it, as in a run.
    tf32 = where.type == "cuda" and precision == "bf16-mixed"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    compiled = where.type == "cuda" if given.compile is None else given.compile
    setting = QUICK if given.quick else SETTINGS[where.type]
    benchmark = Benchmark(where, setting, precision == "bf16-mixed", compiled, given.rounds, given.seconds)
    return {
        "command": command(),
        "hardware": environment.device_name(where),
        "precision": precision,
        "compiled": compiled,
        "versions": environment.versions(),
        "date": today(),
        "rounds": given.rounds,
        "layers": setting.layers,
        "head_dim": setting.head_dim,
        "axes": {axis: benchmark.points(axis) for axis in given.axes},
    }


@dataclass(frozen=True)
class Benchmark:
    """Measures training throughput.

    Args:
        device, setting: where and what.
        bf16: whether to use bf16 autocast.
        compiled: whether to use torch.compile.
        rounds: timed sections per point.
        seconds: skip points whose sections would take longer in total.
    """

    device: "torch.device"
    setting: Setting
    bf16: bool
    compiled: bool
    rounds: int
    seconds: float

    def points(self, axis: str) -> list[dict[str, Any]]:
        """Tokens/s of each variant, point and round, or the reason for skipping a point."""
        shapes = self.setting.shapes(axis)
        points: list[dict[str, Any]] = [{**shape._asdict(), "tokens_per_s": {}, "skipped": {}} for shape in shapes]
        sections: dict[tuple[str, int], Section] = {}
        for name in AXES[axis]:
            print(f"{axis}: warming up {VARIANTS[name].title}", file=sys.stderr, flush=True)
            for index, shape in enumerate(shapes):
                section = self.section_or_reason(name, shape)
                if isinstance(section, str):
                    for larger in points[index:]:
                        larger["skipped"][name] = section
                    break
                sections[name, index] = section
        print(f"{axis}: timing {self.rounds} rounds", file=sys.stderr, flush=True)
        times = time_interleaved({key: section.run for key, section in sections.items()}, self.rounds, warm_up=0)
        for (name, index), seconds in times.items():
            tokens = sections[name, index].tokens
            points[index]["tokens_per_s"][name] = [round(tokens / value, 1) for value in seconds]
        return points

    def section_or_reason(self, name: str, shape: Shape) -> Section | str:
        """A section of training, or why the point is skipped: one that fails must not lose the others' figures."""
        try:
            return self.section(name, shape)
        except RuntimeError as error:  # also of the compiler and of memory
            return f"it fails ({first_line(error)})"

    def section(self, name: str, shape: Shape) -> Section | str:
        """A section of training after a warm-up, or why it would take too long."""
        step = self.training_step(name, shape)
        step()  # compiles, and allocates the optimiser's state
        seconds = min(elapsed(step) for _ in range(2))
        if self.rounds * max(seconds, self.setting.section) > self.seconds:
            return f"a step takes {seconds:.2g} s"
        steps = max(1, math.ceil(self.setting.section / seconds))
        return Section(steps * shape.batch * shape.length, lambda: [step() for _ in range(steps)])

    def training_step(self, name: str, shape: Shape) -> Callable[[], object]:
        """A step of a new model on random bytes."""
        import torch

        from posenc.objectives.objective import loss
        from posenc.training.optim import AdamW
        from posenc.training.step import TrainingStep

        model = self.model(name, shape)
        generator = torch.Generator().manual_seed(0)
        windows = torch.randint(VOCAB_SIZE, (shape.batch, shape.length + 1), generator=generator).to(self.device)
        autocast = self.device.type if self.bf16 else None
        update = TrainingStep(model, lambda x, y: loss(model(x), y), AdamW(0.001), autocast=autocast)
        return lambda: update(windows[:, :-1], windows[:, 1:])

    def model(self, name: str, shape: Shape) -> "Transformer":
        import torch

        from posenc.model import Linear, Softmax, Transformer
        from posenc.model.attention import AttentionOp
        from posenc.positions import PositionScheme, Rotary

        layers, head_dim = self.setting.layers, self.setting.head_dim
        arms: dict[str, tuple[PositionScheme, AttentionOp]] = {
            "rope": (Rotary(head_dim), Softmax()),
            "none": (PositionScheme(), Softmax()),
            "favor": (Rotary(head_dim), Linear(head_dim, "favor")),
            "elu": (Rotary(head_dim), Linear(head_dim, "elu")),
        }
        scheme, attention = arms[name]
        heads = shape.width // head_dim
        model = Transformer(VOCAB_SIZE, shape.length, layers, shape.width, heads, scheme, attention=attention)
        if self.compiled:
            torch._dynamo.config.recompile_limit = 1000  # each point is a graph of its own, of the same function
            model.compile(dynamic=False, fullgraph=True)
        return model.to(self.device)


if __name__ == "__main__":
    main()
