"""Runs train.py and kills it, with SIGKILL, at the Nth call of something: `kill_at.py MOMENT N key=value ...`."""

import functools
import importlib
import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

MOMENTS: dict[str, tuple[str, str, Callable[[], bool]]] = {
    "a step": ("posenc.training.accelerator", "loss_of", torch.is_grad_enabled),
    "an update": ("torch.optim", "AdamW.step", lambda: True),
    "a validation": ("posenc.training.accelerator", "loss_of", lambda: not torch.is_grad_enabled()),
    "a row": ("posenc.storage.csv_files", "MetricsFile.append", lambda: True),
    "a checkpoint's writing": ("os", "fsync", lambda: True),
    "a renaming": ("os", "replace", lambda: True),
    "the removal of an old checkpoint": ("pathlib", "Path.unlink", lambda: True),
    "a cache's building": ("tqdm", "tqdm.update", lambda: True),
    "the look for a summary": ("posenc.storage.run_directory", "RunDirectory.finished", lambda: True),
    "the building of the model": ("posenc.config.instantiate", "build_model", lambda: True),
    "the sample": ("posenc.objectives.objective", "Causal.sample", lambda: True),
    "the summary": ("posenc.storage.run_directory", "RunDirectory.finish", lambda: True),
}
"""By name: a module, a function in it, and which of its calls count."""


def main() -> None:
    moment, number = sys.argv[1], int(sys.argv[2])
    module, path, counts = MOMENTS[moment]
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    function, calls = getattr(owner, name), 0

    @functools.wraps(function)
    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += counts()
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(owner, name, deadly)
    program = Path(__file__).parents[2] / "train.py"
    sys.argv = [str(program), *sys.argv[3:]]
    sys.path[0] = str(program.parent)
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
