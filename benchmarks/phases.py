"""Runs train.py and records the time of its imports and phases: for `benchmarks/start.py`.

    python benchmarks/phases.py SPANS.json experiment=kjv_tiny logger=csv ...

SPANS.json has the start time and a list of spans: label, start, end (null if it did not end), and the index of the
enclosing span (null if there is none). The clock is time.monotonic, which processes share.
"""

import atexit
import functools
import json
import runpy
import sys
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

STARTED = time.monotonic()

PHASES = {
    "posenc.data.prepare": ("prepare", "data", True),
    "posenc.config.instantiate": ("build_model", "model", True),
    "posenc.training.trainer": ("build_trainer", "trainer", True),
    "posenc.tracking.loggers": ("weights_and_biases", "logger", True),
    "lightning.pytorch.trainer.trainer": ("Trainer.fit", "set-up of the fit", True),
    "posenc.training.module": ("LanguageModel.training_step", "first step", False),
}
"""By module: a function, its phase, and whether the phase ends with the call. Otherwise only the first call counts."""

SUBPACKAGES = ("torch._dynamo",)
"""Packages within a package that are counted separately."""


class Spans:
    """A trace of nested spans."""

    def __init__(self) -> None:
        self.all: list[list[Any]] = []
        self.open: list[int] = []

    def start(self, label: str) -> int:
        index = len(self.all)
        self.all.append([label, time.monotonic(), None, self.open[-1] if self.open else None])
        self.open.append(index)
        return index

    def end(self, index: int) -> None:
        self.all[index][2] = time.monotonic()
        if index in self.open:
            del self.open[self.open.index(index) :]


class ImportTracer(MetaPathFinder):
    """Finds modules with the other finders, and times their execution under the name of their package."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, type):
            execute = spec.loader.exec_module
            spec.loader.exec_module = functools.partial(self.execute, execute)  # type: ignore[method-assign]
        return spec

    def execute(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        name = module.__name__
        inner = (package for package in SUBPACKAGES if name == package or name.startswith(f"{package}."))
        index = self.spans.start(f"import {next(inner, name.partition('.')[0])}")
        try:
            execute(module)
        finally:  # an optional import may fail
            self.spans.end(index)
        if name in PHASES:
            self.trace(module, *PHASES[name])

    def trace(self, module: ModuleType, path: str, phase: str, ends: bool) -> None:
        """Replace a function by one that records its calls."""
        *owner_names, name = path.split(".")
        owner: Any = functools.reduce(getattr, owner_names, module)
        function = getattr(owner, name)

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            if not ends and any(span[0] == phase for span in self.spans.all):
                return function(*args, **kwargs)
            index = self.spans.start(phase)
            try:
                return function(*args, **kwargs)
            finally:
                if ends:
                    self.spans.end(index)

        setattr(owner, name, traced)


def main() -> None:
    file, program = Path(sys.argv[1]), Path(__file__).parent.parent / "train.py"
    spans = Spans()
    atexit.register(lambda: file.write_text(json.dumps({"started": STARTED, "spans": spans.all})))
    sys.meta_path.insert(0, ImportTracer(spans))
    sys.argv = [str(program), *sys.argv[2:]]
    sys.path[0] = str(program.parent)
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
