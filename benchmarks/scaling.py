"""How training tokens/s change with length, width and batch: `python benchmarks/scaling.py --out benchmarks`.

All points of an axis are timed in turns in one process, so that whatever slows the machine slows all of them.
"""

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scaling_results import AXES, CONTENDERS, drawn, markdown

from posenc.config.command_line import one_sentence_errors
from posenc.errors import UserError

if TYPE_CHECKING:
    import torch

    from posenc.model import Transformer

VOCABULARY = 256


class Shape(NamedTuple):
    """What one point trains: `batch` windows of `length` tokens a step, in a model of `width`."""

    length: int
    width: int
    batch: int


@dataclass(frozen=True)
class Setting:
    """What is varied, and what it is held at while another thing is.

    Args:
        layers, head_dim: of every model.
        tokens: a step, on the axes of length and width: the batch shrinks as the length grows.
        length, width: where they are not varied.
        lengths, widths, batches: the points of the three axes, from small to large.
        section: seconds that a timed section lasts at least; it holds as many steps as that takes.
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
        layers=4, head_dim=64, tokens=32_768, length=1024, width=512,
        lengths=(256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768), widths=(128, 256, 512, 1024, 2048),
        batches=(1, 4, 16, 64, 128), section=0.4,
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--rounds", type=int, default=5, help="timed sections a point (default: 5)")
    parser.add_argument("--seconds", type=float, default=60, help="a point that takes longer is left out (default: 60)")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="default: on a GPU")
    parser.add_argument("--quick", action="store_true", help="toy sizes, in seconds: the figures mean nothing")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="gets scaling.md, scaling.json and scaling.png")
    parser.add_argument(
        "--draw", type=Path, metavar="JSON", help="measure nothing: draw the scaling.png of a scaling.json"
    )
    given = parser.parse_args()
    with one_sentence_errors():
        if given.draw is not None:
            results = _read(given.draw)
            _draw(results, given.out or given.draw.parent)
        else:
            results = measured(given)
            if given.out is not None:
                _write(results, given.out)
                _draw(results, given.out)
    print(markdown(results))


def _read(file: Path) -> dict[str, Any]:
    try:
        results = json.loads(file.read_text())
        markdown(results)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--draw={file} cannot be read as results of this script ({error})") from error
    return results


def _write(results: dict[str, Any], folder: Path) -> None:
    from posenc.storage.atomic import atomic_write

    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "scaling.json", json.dumps(results, indent=1) + "\n")
    atomic_write(folder / "scaling.md", markdown(results))


def _draw(results: dict[str, Any], folder: Path) -> None:
    from posenc.report.figures import save

    folder.mkdir(parents=True, exist_ok=True)
    save(drawn(results), folder / "scaling.png")


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """Time what the command line asks for.

    Raises:
        UserError: if an option is out of range or there is no such device.
    """
    import torch

    from posenc.training import environment
    from posenc.training.accelerator import Hardware

    if given.rounds < 1:
        raise UserError(f"--rounds={given.rounds} must be at least 1")
    if given.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device=cuda: this machine has no CUDA GPU; use auto or cpu")
    on_gpu = given.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    precision = Hardware("cuda" if on_gpu else "cpu").chosen_precision()
    compiled = on_gpu if given.compile is None else given.compile
    setting = QUICK if given.quick else SETTINGS[device.type]
    bench = Bench(device, setting, precision == "bf16-mixed", compiled, given.rounds, given.seconds)
    return {
        "command": shlex.join(["python", *sys.argv]),
        "hardware": environment.hardware(device),
        "precision": precision,
        "compiled": compiled,
        "versions": environment.versions(),
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": given.rounds,
        "layers": setting.layers,
        "head_dim": setting.head_dim,
        "axes": {axis: bench.points(axis) for axis in given.axes},
    }


@dataclass(frozen=True)
class Bench:
    """Trains models for as long as it takes to know their speed.

    Args:
        device, setting: where, and what.
        reduced: whether in bf16.
        compiled: whether models go through torch.compile.
        rounds: timed sections a point.
        seconds: a point whose sections would take longer together is left out.
    """

    device: "torch.device"
    setting: Setting
    reduced: bool
    compiled: bool
    rounds: int
    seconds: float

    def points(self, axis: str) -> list[dict[str, Any]]:
        """Every contender at every point of an axis, in turns: tokens/s of each round, or why it was left out."""
        shapes = self.setting.shapes(axis)
        points: list[dict[str, Any]] = [{**shape._asdict(), "tokens_per_s": {}, "left_out": {}} for shape in shapes]
        sections = []
        for name in AXES[axis]:
            print(f"{axis}: warming up {CONTENDERS[name].title}", file=sys.stderr, flush=True)
            for number, shape in enumerate(shapes):
                section = self._fitting(name, shape)
                if isinstance(section, str):
                    for larger in points[number:]:
                        larger["left_out"][name] = section
                    break
                sections.append((points[number]["tokens_per_s"].setdefault(name, []), section))
        for number in range(self.rounds):
            print(f"{axis}: round {number + 1} of {self.rounds}", file=sys.stderr, flush=True)
            for speeds, section in sections:
                speeds.append(round(section(), 1))
        return points

    def _fitting(self, name: str, shape: Shape) -> Callable[[], float] | str:
        """What times a section of training, or why the point is left out: memory or time."""
        import torch

        try:
            return self._section(name, shape)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
        return "out of memory"

    def _section(self, name: str, shape: Shape) -> Callable[[], float] | str:
        """What times a section of warm training -> tokens/s; or that it would take too long."""
        step = self._step(name, shape)

        def seconds(steps: int) -> float:
            self._wait()
            begun = time.perf_counter()
            for _ in range(steps):
                step()
            self._wait()
            return time.perf_counter() - begun

        seconds(1)  # compiles, and makes the optimiser's state
        once = seconds(1)
        if self.rounds * max(once, self.setting.section) > self.seconds:
            return f"a step takes {once:.2g} s"
        steps = max(1, math.ceil(self.setting.section / once))
        return lambda: steps * shape.batch * shape.length / seconds(steps)

    def _step(self, name: str, shape: Shape) -> Callable[[], object]:
        """One training step of a new model, on random bytes."""
        import torch

        from posenc.objectives.objective import loss
        from posenc.training.optim import AdamW
        from posenc.training.step import TrainingStep

        model = self._model(name, shape)
        generator = torch.Generator().manual_seed(0)
        windows = torch.randint(VOCABULARY, (shape.batch, shape.length + 1), generator=generator).to(self.device)

        autocast = self.device.type if self.reduced else None
        update = TrainingStep(model, lambda x, y: loss(model(x), y), AdamW(0.001), autocast=autocast)
        return lambda: update(windows[:, :-1], windows[:, 1:])

    def _model(self, name: str, shape: Shape) -> "Transformer":
        import torch

        from posenc.model import Linear, Softmax, Transformer
        from posenc.model.attention import AttentionOp
        from posenc.positions import PositionScheme, Rotary

        layers, size = self.setting.layers, self.setting.head_dim
        contenders: dict[str, tuple[PositionScheme, AttentionOp]] = {
            "rope": (Rotary(size), Softmax()),
            "none": (PositionScheme(), Softmax()),
            "favor": (Rotary(size), Linear(size, "favor")),
            "elu": (Rotary(size), Linear(size, "elu")),
        }
        scheme, attention = contenders[name]
        heads = shape.width // size
        model = Transformer(VOCABULARY, shape.length, layers, shape.width, heads, scheme, attention=attention)
        if self.compiled:
            torch._dynamo.config.recompile_limit = 1000  # each point is a graph of its own, of the same function
            model.compile(dynamic=False)
        return model.to(self.device)

    def _wait(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()


if __name__ == "__main__":
    main()
