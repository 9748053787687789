"""Seconds from a command to its first training step, as a user types it: `python benchmarks/start.py`.

Fresh processes run train.py in turns, after one run that does not count and warms all caches. They are watched from
outside: the first step is over when its row stands in metrics.csv. Further runs, under `phases.py`, say what the time
went into.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from posenc.storage.atomic import atomic_write
from posenc.storage.csv_files import read_csv

ROOT = Path(__file__).parent.parent

STEPS = ("steps=10", "eval_every=10", "attention_every=10", "log_every=1")
"""A row a step, so that the first is written at once, and nothing is validated before it."""

FOLDER, FITTING, STEP, END = "run's folder written", "Lightning set up", "first step done", "command ended"
"""What is waited for, each in seconds since the command."""

OFTEN = 0.005
"""Seconds between two looks at a run."""

SHORTEST = 0.03
"""Seconds under which a package is not named on its own."""

Times = dict[str, float]
Phases = dict[str, tuple[float, float]]
"""Seconds of a phase: alone, and with what happened inside it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="what train.py is given; by default experiment=kjv_tiny")
    parser.add_argument("--loggers", nargs="+", choices=("csv", "wandb"), default=["csv", "wandb"])
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a folder for the tables, as Markdown and JSON")
    given = parser.parse_args()
    overrides = given.overrides or ["experiment=kjv_tiny"]
    environment = {**os.environ, "WANDB_MODE": "offline"}
    if given.threads:
        environment["OMP_NUM_THREADS"] = str(given.threads)
    train = [sys.executable, "train.py"]
    loggers = {f"logger={name}": [*train, *overrides, f"logger={name}", *STEPS] for name in given.loggers}
    questions = {flag: [*train, *flag.split(), *overrides] for flag in ("--help", "--cfg job")}

    training_run(next(iter(loggers.values())), environment)
    times: dict[str, list[Times]] = defaultdict(list)
    phases: dict[str, list[Phases]] = defaultdict(list)
    for _ in range(given.rounds):
        for name, command in loggers.items():
            times[name].append(training_run(command, environment))
            phases[name].append(phases_of(command, environment))
        for name, command in questions.items():
            times[name].append({END: answered(command, environment)})

    text = report(" ".join(["python train.py", *overrides, *STEPS]), times, phases)
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        atomic_write(given.out / "start.md", text + "\n")
        atomic_write(given.out / "start.json", json.dumps({"seconds": times, "phases": phases}, indent=1) + "\n")


def training_run(command: Sequence[str], environment: Mapping[str, str]) -> Times:
    """When a run reached what is waited for, in seconds since its command."""
    with tempfile.TemporaryDirectory() as runs:
        begun, seen = watch([*command, f"runs={runs}"], environment, Path(runs))
    return {name: moment - begun for name, moment in seen.items()}


def watch(command: Sequence[str], environment: Mapping[str, str], runs: Path) -> tuple[float, Times]:
    """Run a command that writes to `runs`; when it began, and when it was where, by the clock time.monotonic."""
    seen: Times = {}
    begun = time.monotonic()
    # Its output goes to a file: a pipe that nobody reads would stop it.
    with (runs / "output.txt").open("w+") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            now = time.monotonic()
            seen = dict.fromkeys(reached(runs), now) | seen
            time.sleep(OFTEN)
        now = time.monotonic()
        seen = dict.fromkeys([*reached(runs), END], now) | seen
        output.seek(0)
        fail_unless_done(process.returncode, command, output.read())
    return begun, seen


def reached(runs: Path) -> list[str]:
    """What the one run in a folder has done so far, in its order."""
    metrics = next(runs.glob("*/*/*/metrics.csv"), None)
    if metrics is not None:
        return [FOLDER, FITTING, *([STEP] if read_csv(metrics) else [])]
    return [FOLDER] if any(runs.glob("*/*/*/config.yaml")) else []


def answered(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Seconds that a command takes which trains nothing."""
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=dict(environment), capture_output=True, text=True)
    seconds = time.monotonic() - begun
    fail_unless_done(done.returncode, command, done.stderr)
    return seconds


def fail_unless_done(code: int, command: Sequence[str], said: str) -> None:
    if code:
        sys.exit(f"start.py: {' '.join(command)} failed:\n{said}")


def phases_of(command: Sequence[str], environment: Mapping[str, str]) -> Phases:
    """What the seconds until the first step is done went into: imports by package, and phases."""
    with tempfile.TemporaryDirectory() as runs:
        file = Path(runs) / "spans.json"
        watched = [sys.executable, "benchmarks/phases.py", str(file), *command[2:], f"runs={runs}"]
        begun, seen = watch(watched, environment, Path(runs))
        noted = json.loads(file.read_text())
    phases = by_label(noted["spans"], until=seen[STEP])
    started = noted["started"] - begun
    rest = seen[STEP] - begun - started - sum(own for own, _ in phases.values())
    return {"start of the interpreter": (started, started), "configuration, and the rest": (rest, rest), **phases}


def by_label(spans: Sequence[Sequence[Any]], until: float) -> Phases:
    """Seconds of each label: alone, without the spans inside its own, and with them. Spans are those of `phases.py`."""
    own: Times = defaultdict(float)
    whole: Times = defaultdict(float)
    for label, begun, ended, within in spans:
        seconds = min(until, until if ended is None else ended) - min(until, begun)
        own[label] += seconds
        if within is not None:
            own[spans[within][0]] -= seconds
        if not any(spans[outer][0] == label for outer in around(spans, within)):
            whole[label] += seconds
    return {label: (own[label], whole[label]) for label in own}


def around(spans: Sequence[Sequence[Any]], place: int | None) -> Iterator[int]:
    """The span at a place, the one that it lies in, and so on."""
    while place is not None:
        yield place
        place = spans[place][3]


def report(command: str, times: Mapping[str, list[Times]], phases: Mapping[str, list[Phases]]) -> str:
    """Everything as Markdown."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning", "hydra-core", "wandb"))
    where = f"Python {platform.python_version()}, {versions}, {os.cpu_count()} cores, {datetime.now(UTC).date()}"
    rounds = len(next(iter(times.values())))
    blocks = [f"`{command}`, {rounds} round{'s' if rounds > 1 else ''}; {where}", table(times)]
    if {"logger=csv", "logger=wandb"} <= times.keys():
        more = [wandb[STEP] - csv[STEP] for wandb, csv in zip(times["logger=wandb"], times["logger=csv"], strict=True)]
        blocks.append(f"W&B, offline, takes {spread(more)} s more before the first step is done.")
    return "\n\n".join([*blocks, *(phase_table(name, each) for name, each in phases.items())])


def table(times: Mapping[str, list[Times]]) -> str:
    """A line a command and event."""
    lines = ["| command | until | seconds |", "|---|---|---:|"]
    for name, rounds in times.items():
        for event in (FOLDER, FITTING, STEP, END):
            if event in rounds[0]:
                lines.append(f"| {name} | {event} | {spread([one[event] for one in rounds])} |")
    return "\n".join(lines)


def phase_table(name: str, phases: Sequence[Phases]) -> str:
    """A line a phase, and a line for each package that takes long to import; the longest first."""
    medians = {
        label: tuple(statistics.median(one.get(label, (0.0, 0.0))[column] for one in phases) for column in (0, 1))
        for label in {label for one in phases for label in one}
    }
    named = {label for label in medians if max(medians[label]) >= SHORTEST or not label.startswith("import ")}
    rest = medians.keys() - named
    lines = [f"| {name}: until the first step, seconds | itself | with what it brings in |", "|---|---:|---:|"]
    for label in sorted(named, key=lambda label: -medians[label][0]):
        own, whole = medians[label]
        lines.append(f"| {label} | {own:.2f} | {whole:.2f} |")
    lines.append(f"| import of {len(rest)} other packages | {sum(medians[label][0] for label in rest):.2f} | |")
    total = statistics.median(sum(own for own, _ in one.values()) for one in phases)
    return "\n".join([*lines, f"| **together**, with the cost of looking | {total:.2f} | |"])


def spread(values: Iterable[float]) -> str:
    every = list(values)
    return f"{statistics.median(every):.2f} ({min(every):.2f} to {max(every):.2f})"


if __name__ == "__main__":
    main()
