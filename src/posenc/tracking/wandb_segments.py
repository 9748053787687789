"""W&B's local files of a run's earlier sessions.

Each session writes its own segment, wandb/offline-run-* or wandb/run-*. That of a killed session lacks the last rows,
since W&B's service (wandb 0.31) writes in blocks of 32 KiB.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NONE = -1
"""The last step of a run without steps."""


def last_step(folder: Path) -> int:
    """The last step in the segments of a run directory."""
    segments = sorted(folder.glob("wandb/*run-*/*.wandb"), key=lambda file: file.parent.name.partition("run-")[2])
    for segment in reversed(segments):
        if steps := list(_steps(segment)):
            return max(steps)
    return NONE


def _steps(segment: Path) -> Iterator[int]:
    """The steps in a segment, read with W&B's own reader up to the first damaged record."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(segment)]
    output = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    for line in output.splitlines():
        if line.startswith("{") and '"history"' in line:
            step = json.loads(line).get("history", {}).get("item", {}).get("step")
            if step is not None:
                yield int(step)
