"""Every figure that needs a GPU: `python benchmarks/gpu.py --out DIR`; the same line again takes what is missing.

Each part is a command of its own, killed at its cap. What came out of it is written at once to DIR/PART.json, and
DIR/gpu.md is made again of all parts there. A part that succeeded for the same source, chip and torch is passed over.
"""

import argparse
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from posenc.storage.atomic import atomic_write
from posenc.training.accelerator import best_device
from posenc.training.environment import hardware

ROOT = Path(__file__).parent.parent
TAIL = 6000
"""Characters kept of what a part prints."""


@dataclass(frozen=True)
class Part:
    """A command and what is hoped of it.

    Args:
        cap: seconds after which it is killed.
        aim: what its figures should reach.
        command: after `python`; {runs} is a folder that is deleted afterwards.
        quick: the same at toy size, for a CPU.
    """

    name: str
    cap: int
    aim: str
    command: str
    quick: str


TRAIN = "train.py runs={runs} logger=csv"
BASE = "model=base trainer.compile=true"
GPU_TESTS = "-m pytest -q tests/training/test_gpu.py"
TOY = "experiment=smoke trainer=cpu"
PARTS = (
    Part("test_gpu", 240, "all pass", GPU_TESTS, f"{GPU_TESTS} --collect-only"),
    Part("train", 150, ">= 580k tokens/s and >= 50 % of the peak",
         f"{TRAIN} {BASE} steps=100 batch_size=32 context=1024", f"{TRAIN} {TOY}"),
    Part("schemes", 120, "RoPE <= 1.01x the sinusoid", f"benchmarks/schemes.py {BASE} batch_size=32 context=1024",
         f"benchmarks/schemes.py {TOY} --rounds 2 --schemes sinusoidal,rope"),
    Part("sweep", 120, "<= 2 min", f"{TRAIN} -m", f"{TRAIN} -m {TOY} pos=rope seed=0"),
    Part("sweep_compiled", 240, "slower than not compiled", f"{TRAIN} -m trainer.compile=true",
         f"{TRAIN} -m {TOY} pos=rope seed=0"),
    Part("loop", 120, "1.0x a bare loop", "benchmarks/loop.py logger=csv",
         f"benchmarks/loop.py {TOY} logger=csv --steps 10 --rounds 2"),
    Part("start", 60, "first step in a few seconds", "benchmarks/start.py --loggers csv --rounds 3",
         f"benchmarks/start.py {TOY} --loggers csv --rounds 1"),
)  # fmt: skip


def made_with(quick: bool) -> dict[str, Any]:
    """What a figure belongs to: the source's contents, the chip, torch, and whether it is a toy's."""
    files = [
        *ROOT.glob("*.py"),
        *(file for room in ("src", "conf", "benchmarks") for file in (ROOT / room).rglob("*.*")),
    ]
    sums = [file.read_bytes() for file in sorted(files) if file.suffix in (".py", ".yaml")]
    source = hashlib.sha256(b"\0".join(sums)).hexdigest()[:16]
    return {"source": source, "chip": hardware(best_device()), "torch": torch.__version__, "quick": quick}


def taken(part: Part, cap: float, made: dict[str, Any]) -> dict[str, Any]:
    """Run a part -> what came out of it."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as runs, tempfile.TemporaryFile("w+") as printed:
        line = (part.quick if made["quick"] else part.command).replace("{runs}", runs)
        command = [sys.executable, *shlex.split(line)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = "done" if process.wait(cap) == 0 else f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            status = f"killed after {cap:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        printed.seek(0)
        came_out = printed.read()[-TAIL:]
    seconds = round(time.perf_counter() - begun, 1)
    told = {"name": part.name, "aim": part.aim, "command": f"python {line.replace(runs, 'runs')}"}
    return {**told, **made, "status": status, "seconds": seconds, "came_out": came_out}


def page(out: Path) -> str:
    """All parts that are there, in their order."""
    files = [out / f"{part.name}.json" for part in PARTS]
    parts = [json.loads(file.read_text()) for file in files if file.exists()]
    told = [
        f"## {one['name']}: {one['status']}, {one['seconds']} s\n\n`{one['command']}` on {one['chip']}, torch"
        f" {one['torch']}. Aim: {one['aim']}.\n\n```\n{one['came_out'].strip()}\n```\n"
        for one in parts
    ]
    return "\n".join(["# What only a GPU can show\n", *told])


def there(part: Part, folder: Path | None, made: dict[str, Any]) -> bool:
    """Whether a folder has a part's figures, from this very source, chip and torch."""
    if folder is None or not (file := folder / f"{part.name}.json").exists():
        return False
    found = json.loads(file.read_text())
    return found["status"] == "done" and made.items() <= found.items()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="where the figures go")
    parser.add_argument("--budget", type=float, default=570, help="seconds for all parts of this call")
    parser.add_argument("--parts", help="some of them, comma-separated")
    parser.add_argument("--from", dest="old", type=Path, help="a folder whose figures are taken over where they fit")
    parser.add_argument("--quick", action="store_true", help="toy sizes: the figures mean nothing")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    given = parser.parse_args()
    names = given.parts.split(",") if given.parts else [part.name for part in PARTS]
    if unknown := set(names) - {part.name for part in PARTS}:
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}")
    wanted = [part for part in PARTS if part.name in names]
    if given.list:
        print("\n".join(f"{part.name:16}{part.cap:5} s  {part.aim}" for part in wanted))
        return
    made = made_with(given.quick)
    ends = time.perf_counter() + given.budget
    given.out.mkdir(parents=True, exist_ok=True)
    for part in wanted:
        file = given.out / f"{part.name}.json"
        if there(part, given.out, made):
            print(f"{part.name}: there", flush=True)
            continue
        if there(part, given.old, made):
            atomic_write(file, (given.old / file.name).read_text())
        elif (left := ends - time.perf_counter()) > 0:
            atomic_write(file, json.dumps(taken(part, min(part.cap, left), made), indent=1) + "\n")
        else:
            print(f"{part.name}: no time is left; the same command takes it", flush=True)
            continue
        atomic_write(given.out / "gpu.md", page(given.out))
        print(f"{part.name}: {json.loads(file.read_text())['status']}", flush=True)


if __name__ == "__main__":
    main()
