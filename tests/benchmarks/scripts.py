"""Running the scripts of benchmarks/ as a user does."""

import subprocess
import sys
from importlib import import_module
from typing import Any

from tests.conftest import ROOT, python

Process = subprocess.CompletedProcess[str]


def script(name: str, *arguments: object, timeout: float = 240) -> Process:
    """Run `python benchmarks/NAME.py ARGUMENTS` on one CPU thread; returns the finished process."""
    return python(f"benchmarks/{name}.py", *arguments, timeout=timeout)


def cells(text: str) -> dict[str, list[str]]:
    """The rows of every Markdown table in a text, by their first cell."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def module(name: str) -> Any:
    """Import benchmarks/NAME.py, which imports others in its folder."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
