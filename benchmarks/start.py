"""Seconds from launching train.py to its first training step: `python benchmarks/start.py`.

Each round launches fresh processes, after one warm-up run that fills all caches. A run is observed from outside: its
first step is done when its row is in metrics.csv. Another run, with Python's -X importtime, shows what importing takes.
"""

import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

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

OUTPUT = "output.txt"

MIN_SECONDS = 0.03
"""Imports of packages that take less are summed."""

IMPORT = re.compile(r"import time: +(\d+) \| +\d+ \| +([\w.]+)$", re.MULTILINE)
"""A line of -X importtime: microseconds of a module, without those that it imports, and its name."""

Times = dict[str, float]


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
    imports: list[Times] = []
    for _ in range(given.rounds):
        for name, command in loggers.items():
            times[name].append(event_times(command, environment))
        imports.append(import_times(next(iter(loggers.values())), environment))
        for name, command in flags.items():
            times[name].append(event_times(command, environment))

    text = report(" ".join(["python train.py", *overrides, *STEPS]), times, imports)
    print(text)
    if given.out:
        write(given.out, "start", text, {"seconds": times, "imports": imports})


def event_times(command: Sequence[str], environment: Mapping[str, str]) -> Times:
    """Seconds from launching train.py to each event."""
    with tempfile.TemporaryDirectory() as runs:
        start, events = observe([*command, f"runs={runs}"], environment, Path(runs))
    return {name: moment - start for name, moment in events.items()}


def observe(command: Sequence[str], environment: Mapping[str, str], runs: Path) -> tuple[float, Times]:
    """Run a command that writes to `runs`; its start and the time of each event, by time.monotonic."""
    events: Times = {}
    file = runs / OUTPUT  # a pipe that is full would block the process
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


def import_times(command: Sequence[str], environment: Mapping[str, str]) -> Times:
    """Seconds that a run takes to import each package, without the packages that this imports."""
    python, *arguments = command
    with tempfile.TemporaryDirectory() as runs:
        observe([python, "-X", "importtime", *arguments, f"runs={runs}"], environment, Path(runs))
        found = IMPORT.findall((Path(runs) / OUTPUT).read_text())
    seconds: Times = defaultdict(float)
    for microseconds, module in found:
        seconds[module.partition(".")[0]] += int(microseconds) / 1e6
    return seconds


def report(command: str, times: Mapping[str, list[Times]], imports: Sequence[Times]) -> str:
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
    return "\n\n".join([*blocks, import_table(imports)])


def import_table(imports: Sequence[Times]) -> str:
    """One row for each package that takes long to import, medians over rounds."""
    packages = {package for one in imports for package in one}
    medians = {package: statistics.median(one.get(package, 0.0) for one in imports) for package in packages}
    named = sorted((one for one in medians if medians[one] >= MIN_SECONDS), key=lambda one: -medians[one])
    rows = [[package, f"{medians[package]:.2f}"] for package in named]
    rest = packages.difference(named)
    rows.append([f"{len(rest)} other packages", f"{sum(medians[package] for package in rest):.2f}"])
    rows.append(["**total**", f"{sum(medians.values()):.2f}"])
    return table(["import (-X importtime)", "seconds"], rows)


if __name__ == "__main__":
    main()
