"""The output of a benchmark: Markdown tables, and files with every round's figures."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.storage.atomic import atomic_write

if TYPE_CHECKING:
    import torch


def command() -> str:
    """The command line of this process."""
    return f"python {shlex.join([os.path.relpath(sys.argv[0]), *sys.argv[1:]])}"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def environment(device: "torch.device") -> str:
    """The hardware and torch's version."""
    import torch

    from posenc.training.environment import device_name

    return f"{device_name(device)}, torch {torch.__version__}"


def with_version(package: str) -> str:
    """Like litgpt 0.5.13; the name alone if it is not installed, as posenc may be."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table with padded cells, so that it is readable as plain text.

    Args:
        header: of the columns.
        rows: of cells.
        left: the number of left-aligned columns; the others are right-aligned.
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width if column < left else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    form = " | ".join(f"{{:{'<' if column < left else '>'}{width}}}" for column, width in enumerate(widths))
    return "\n".join(f"| {form.format(*line)} |" for line in (header, rule, *rows))


def write(folder: Path, name: str, page: str, figures: Mapping[str, Any]) -> None:
    """Write the page to FOLDER/NAME.md and the figures to FOLDER/NAME.json."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / f"{name}.md", page.rstrip("\n") + "\n")
    atomic_write(folder / f"{name}.json", json.dumps(figures, indent=1) + "\n")
    print(f"written to {folder / name}.md and .json", file=sys.stderr)
