"""What the earlier sessions of a run have left on this disk for W&B.

Each session writes a segment of its own, wandb/offline-run-* or wandb/run-*. One that was killed lacks its last rows,
which W&B's service (wandb 0.31) writes down in blocks of 32 KiB.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NONE = -1
"""The last step of a run that has none."""


def last_step(folder: Path) -> int:
    """The last step of the curve that the segments of a run directory hold."""
    segments = sorted(folder.glob("wandb/*run-*/*.wandb"), key=lambda file: file.parent.name.partition("run-")[2])
    for segment in reversed(segments):
        if steps := list(_steps(segment)):
            return max(steps)
    return NONE


def _steps(segment: Path) -> Iterator[int]:
    """Read with W&B's own reader, which goes as far as a damaged file is whole."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(segment)]
    shown = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    for line in shown.splitlines():
        if line.startswith("{") and '"history"' in line:
            step = json.loads(line).get("history", {}).get("item", {}).get("step")
            if step is not None:
                yield int(step)
