"""What a sweep gains from training several runs at a time on one device: `python benchmarks/together.py`.

The same sweep through the real command line, one run after the other and several at a time (processes that share the
device), each in a fresh folder; then how many of their curves are those of the runs alone, digit for digit. On a CPU,
at as many threads, all are. On a GPU atomic additions come in any order, beside another process or not: there it is
counted, and nothing is promised.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
AT_A_TIME = ["hydra/launcher=joblib"]


def seconds(arguments: list[str], environment: dict[str, str] | None = None) -> float:
    """How long a train.py takes, start to end."""
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "train.py", "logger=csv", "name=together", *arguments],
        cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return time.perf_counter() - begun


def losses(folder: Path) -> dict[str, list[str]]:
    """Of each run, under its scheme and seed, the losses in its metrics.csv as they are written there."""
    files = sorted(folder.glob("*/*/metrics.csv"))
    rows = {file: [line.split(",") for line in file.read_text().splitlines()] for file in files}
    named = {f"{file.parts[-3]} {file.parts[-2]}": table for file, table in rows.items()}
    return {name: [row[column] for row in table[1:] for column in (3, 4)] for name, table in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="the sweep, as for train.py -m: model=tiny seed=0,1")
    parser.add_argument("--at-a-time", default="2", help="how many: 2,4,8")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    sweep = given.overrides or ["pos=sinusoidal,rope", "seed=0,1", "steps=60"]
    counts = [int(count) for count in given.at_a_time.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        times: dict[int, list[float]] = {count: [] for count in (1, *counts)}
        for turn in range(given.rounds):
            for count, measured in times.items():
                launcher = [*AT_A_TIME, f"hydra.launcher.n_jobs={count}"] if count > 1 else []
                measured.append(seconds(["-m", *sweep, *launcher, f"runs={temporary}/{turn}-{count}"]))
        print("| runs at a time | seconds for the sweep | times faster |\n|---|---|---|")
        alone = min(times[1])
        for count, measured in times.items():
            print(f"| {count} | {min(measured):.1f} | {alone / min(measured):.2f} |")
        for count in counts:
            threads = max(1, (os.cpu_count() or 1) // count)
            one_by_one = f"{temporary}/alone-{threads}"
            if not Path(one_by_one).exists():
                seconds(["-m", *sweep, f"runs={one_by_one}"], {"OMP_NUM_THREADS": str(threads)})
            beside, by_itself = (losses(Path(runs) / "together") for runs in (f"{temporary}/0-{count}", one_by_one))
            same = sum(beside[run] == by_itself[run] for run in by_itself)
            print(f"\n{count} at a time: {same} of {len(by_itself)} curves are those of the run alone, digit for digit")


if __name__ == "__main__":
    main()
