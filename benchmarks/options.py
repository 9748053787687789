"""Command-line options that benchmarks share; an invalid one is reported in one sentence."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")


class Parser(argparse.ArgumentParser):
    """An argument parser with the shared options.

    Args:
        description: the docstring of the benchmark.
    """

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add_device(self, default: str | None = "auto") -> None:
        self.add_argument("--device", type=device, default=default, metavar="{auto,cpu,cuda}")

    def add_threads(self) -> None:
        import torch

        self.add_argument("--threads", type=positive, default=torch.get_num_threads(), help="of the CPU")

    def add_rounds(self, rounds: int, steps: int | None = None) -> None:
        """Rounds and, if given, steps per round."""
        self.add_argument("--rounds", type=positive, default=rounds, help="(default: %(default)s)")
        if steps is not None:
            self.add_argument("--steps", type=positive, default=steps, help="per round (default: %(default)s)")

    def add_out(self) -> None:
        self.add_argument("--out", type=Path, metavar="FOLDER", help="write the results here, as Markdown and JSON")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def positive(text: str) -> int:
    """An integer of at least 1, as the type of an option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return number


def integers(text: str) -> list[int]:
    """Comma-separated integers of at least 1, as the type of an option."""
    return [positive(one) for one in text.split(",")]


def device(text: str) -> "torch.device":
    """auto, cpu or cuda, as the type of an option."""
    import torch

    if text not in DEVICES:
        raise argparse.ArgumentTypeError(f"{text} is not one of {', '.join(DEVICES)}")
    if text == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("this machine has no CUDA GPU; use auto or cpu")
    return torch.device("cuda" if text != "cpu" and torch.cuda.is_available() else "cpu")
