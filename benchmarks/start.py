"""Seconds from launching train.py to its first training step: `python benchmarks/start.py`.

Each round launches fresh processes, after one warm-up run that fills all caches. A run is observed from outside: its
first step is done when its row is in metrics.csv. A second run, traced by `phases.py`, shows where the time goes.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from options import Parser
from output import table, today, with_version, write
from timing import spread

from posenc.storage.csv_files import read_csv

ROOT = Path(__file__).parent.parent

STEPS = ("steps=10", "eval_every=10", "attention_every=10", "log_every=1")
"""One row per step, so that the first is written at once, and no validation before it."""

FOLDER, FITTING, STEP, END = "run directory created", "Lightning initialised", "first step done", "process exited"
"""Events, each measured in seconds since the launch."""

POLL_SECONDS = 0.005

MIN_SECONDS = 0.03
"""Imports of packages that take less are summed."""

Times = dict[str, float]
Phases = dict[str, tuple[float, float]]
"""Seconds of a phase: exclusive and inclusive of nested spans."""


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("overrides", nargs="*", help="as for train.py; by default experiment=kjv_tiny")
    parser.add_argument("--loggers", nargs="+", choices=("csv", "wandb"), default=["csv", "wandb"])
    parser.add_rounds(5)
    parser.add_out()
    given = parser.parse_intermixed_args()
    overrides = given.overrides or ["experiment=kjv_tiny"]
    environment = {**os.environ, "WANDB_MODE": "offline"}
    train = [sys.executable, "train.py"]
    loggers = {f"logger={name}": [*train, *overrides, f"logger={name}", *STEPS] for name in given.loggers}
    flags = {flag: [*train, *flag.split(), *overrides] for flag in ("--help", "--cfg job")}

    event_times(next(iter(loggers.values())), environment)
    times: dict[str, list[Times]] = defaultdict(list)
    phases: dict[str, list[Phases]] = defaultdict(list)
    for _ in range(given.rounds):
        for name, command in loggers.items():
            times[name].append(event_times(command, environment))
            phases[name].append(phase_times(command, environment))
        for name, command in flags.items():
            times[name].append(event_times(command, environment))

    text = report(" ".join(["python train.py", *overrides, *STEPS]), times, phases)
    print(text)
    if given.out:
        write(given.out, "start", text, {"seconds": times, "phases": phases})


def event_times(command: Sequence[str], environment: Mapping[str, str]) -> Times:
    """Seconds from launching train.py to each event."""
    with tempfile.TemporaryDirectory() as runs:
        start, events = observe([*command, f"runs={runs}"], environment, Path(runs))
    return {name: moment - start for name, moment in events.items()}


def observe(command: Sequence[str], environment: Mapping[str, str], runs: Path) -> tuple[float, Times]:
    """Run a command that writes to `runs`; its start and the time of each event, by time.monotonic."""
    events: Times = {}
    file = runs / "output.txt"  # a pipe that is full would block the process
    start = time.monotonic()
    with (
        file.open("w") as output,
        subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdout=output, stderr=output) as process,
    ):
        while process.poll() is None:
            now = time.monotonic()
            events = dict.fromkeys(reached(runs), now) | events
            time.sleep(POLL_SECONDS)
        now = time.monotonic()
    if process.returncode:
        sys.exit(f"start.py: {' '.join(command)} failed:\n{file.read_text()}")
    return start, dict.fromkeys([*reached(runs), END], now) | events


def reached(runs: Path) -> list[str]:
    """The events so far of the only run in a folder, in order."""
    metrics = next(runs.glob("*/*/*/metrics.csv"), None)
    if metrics is not None:
        return [FOLDER, FITTING, *([STEP] if read_csv(metrics) else [])]
    return [FOLDER] if any(runs.glob("*/*/*/config.yaml")) else []


def phase_times(command: Sequence[str], environment: Mapping[str, str]) -> Phases:
    """Where the time until the first step goes: imports by package, and phases."""
    with tempfile.TemporaryDirectory() as runs:
        file = Path(runs) / "spans.json"
        traced = [sys.executable, "benchmarks/phases.py", str(file), *command[2:], f"runs={runs}"]
        start, events = observe(traced, environment, Path(runs))
        trace = json.loads(file.read_text())
    phases = by_label(trace["spans"], until=events[STEP])
    interpreter = trace["started"] - start
    rest = events[STEP] - start - interpreter - sum(exclusive for exclusive, _ in phases.values())
    return {"interpreter start-up": (interpreter, interpreter), "configuration and other": (rest, rest), **phases}


def by_label(spans: Sequence[Sequence[Any]], until: float) -> Phases:
    """Seconds of each label, exclusive and inclusive of nested spans. Spans are those of `phases.py`."""
    exclusive: Times = defaultdict(float)
    inclusive: Times = defaultdict(float)
    for label, start, end, parent in spans:
        seconds = min(until, until if end is None else end) - min(until, start)
        exclusive[label] += seconds
        if parent is not None:
            exclusive[spans[parent][0]] -= seconds
        if not any(spans[outer][0] == label for outer in enclosing(spans, parent)):
            inclusive[label] += seconds
    return {label: (exclusive[label], inclusive[label]) for label in exclusive}


def enclosing(spans: Sequence[Sequence[Any]], index: int | None) -> Iterator[int]:
    """The span at an index, its parent, and so on."""
    while index is not None:
        yield index
        index = spans[index][3]


def report(command: str, times: Mapping[str, list[Times]], phases: Mapping[str, list[Phases]]) -> str:
    """All results as Markdown."""
    logger = ["wandb"] if "logger=wandb" in times else []
    versions = ", ".join(map(with_version, ("torch", "lightning", "hydra-core", *logger)))
    where = f"Python {platform.python_version()}, {versions}, {os.cpu_count()} cores, {today()}"
    rounds = len(next(iter(times.values())))
    rows = [
        [name, event, spread(one[event] for one in each).text(".2f")]
        for name, each in times.items()
        for event in (FOLDER, FITTING, STEP, END)
        if event in each[0]
    ]
    blocks = [f"`{command}`, {rounds} round{'s' if rounds > 1 else ''}; {where}"]
    blocks.append(table(["command", "until", "seconds"], rows, left=2))
    if {"logger=csv", "logger=wandb"} <= times.keys():
        more = [wandb[STEP] - csv[STEP] for wandb, csv in zip(times["logger=wandb"], times["logger=csv"], strict=True)]
        blocks.append(f"W&B (offline) delays the first step by {spread(more).text('.2f')} s.")
    return "\n\n".join([*blocks, *(phase_table(name, each) for name, each in phases.items())])


def phase_table(name: str, phases: Sequence[Phases]) -> str:
    """One row per phase and per package that takes long to import, by exclusive time."""
    medians = {
        label: tuple(statistics.median(one.get(label, (0.0, 0.0))[column] for one in phases) for column in (0, 1))
        for label in {label for one in phases for label in one}
    }
    named = {label for label in medians if max(medians[label]) >= MIN_SECONDS or not label.startswith("import ")}
    rest = medians.keys() - named
    longest_first = sorted(named, key=lambda label: -medians[label][0])
    rows = [[label, *(f"{seconds:.2f}" for seconds in medians[label])] for label in longest_first]
    rows.append([f"import of {len(rest)} other packages", f"{sum(medians[label][0] for label in rest):.2f}", ""])
    total = statistics.median(sum(exclusive for exclusive, _ in one.values()) for one in phases)
    rows.append(["**total**, including the tracing", f"{total:.2f}", ""])
    return table([f"{name}: seconds until the first step", "exclusive", "inclusive"], rows)


if __name__ == "__main__":
    main()
