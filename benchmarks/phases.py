"""Runs train.py and notes when it imported what and when it was in which phase: for `benchmarks/start.py`.

    python benchmarks/phases.py SPANS.json experiment=kjv_tiny logger=csv ...

SPANS.json holds when it started, and a list of spans: a label, when it began, when it ended (null: it did not), and the
place in the list of the span that it lies in (null: in none). The clock is time.monotonic, which processes share.
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
    "posenc.data.prepare": ("prepare", "data"),
    "posenc.config.instantiate": ("build_model", "model"),
    "posenc.training.trainer": ("build_trainer", "trainer"),
    "posenc.tracking.loggers": ("weights_and_biases", "logger"),
    "lightning.pytorch.trainer.trainer": ("Trainer.fit", "set-up of the fit"),
}
"""By module: a function, and the phase that a call of it is."""

FIRST_STEP = {"posenc.training.module": ("LanguageModel.training_step", "first step")}
"""Likewise, of a phase that begins with the first call and lasts."""


APART = ("torch._dynamo",)
"""Packages inside a package that count on their own."""


class Spans:
    """What happened when, one thing inside another."""

    def __init__(self) -> None:
        self.all: list[list[Any]] = []
        self.inside: list[int] = []

    def begin(self, label: str) -> int:
        place = len(self.all)
        self.all.append([label, time.monotonic(), None, self.inside[-1] if self.inside else None])
        self.inside.append(place)
        return place

    def end(self, place: int) -> None:
        self.all[place][2] = time.monotonic()
        if place in self.inside:
            del self.inside[self.inside.index(place) :]


class Imports(MetaPathFinder):
    """Lets the other finders find a module, and times its execution, under the name of its package."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None and not isinstance(spec.loader, type):
            execute = spec.loader.exec_module
            spec.loader.exec_module = functools.partial(self.timed, execute)  # type: ignore[method-assign]
        return spec

    def timed(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        name = module.__name__
        inner = (package for package in APART if name == package or name.startswith(f"{package}."))
        place = self.spans.begin(f"import {next(inner, name.partition('.')[0])}")
        try:
            execute(module)
        finally:  # some try an import and live without it
            self.spans.end(place)
        if name in PHASES:
            self.watch(module, *PHASES[name], lasts=False)
        if name in FIRST_STEP:
            self.watch(module, *FIRST_STEP[name], lasts=True)

    def watch(self, module: ModuleType, path: str, phase: str, lasts: bool) -> None:
        """Put a function that notes its calls in the place of one."""
        *owner_names, name = path.split(".")
        owner: Any = functools.reduce(getattr, owner_names, module)
        function = getattr(owner, name)

        @functools.wraps(function)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if lasts and any(span[0] == phase for span in self.spans.all):
                return function(*args, **kwargs)
            place = self.spans.begin(phase)
            try:
                return function(*args, **kwargs)
            finally:
                if not lasts:
                    self.spans.end(place)

        setattr(owner, name, noted)


def main() -> None:
    file, program = Path(sys.argv[1]), Path(__file__).parent.parent / "train.py"
    spans = Spans()
    atexit.register(lambda: file.write_text(json.dumps({"started": STARTED, "spans": spans.all})))
    sys.meta_path.insert(0, Imports(spans))
    sys.argv = [str(program), *sys.argv[2:]]
    sys.path[0] = str(program.parent)
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
