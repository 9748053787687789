"""Speed-up of a sweep from training several runs in parallel on one device: `python benchmarks/together.py`.

The same sweep is run through the command line, sequentially and with several processes that share the device, each time
in a fresh folder. Then the curves are compared with those of sequential runs. On a CPU, with the same number of
threads, all are bitwise equal. On a GPU atomic additions run in any order, so equality is counted but not promised, and
the number of threads does not matter.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from options import Parser, integers
from output import table

from hydra_plugins.posenc_joblib import Processes
from posenc.storage.csv_files import read_csv

ROOT = Path(__file__).parent.parent


def train(arguments: list[str], environment: dict[str, str] | None = None) -> float:
    """Run train.py; wall-clock seconds. If it fails, which it explains on stderr, exits with its code."""
    start = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "train.py", "-m", "logger=csv", "name=together", *arguments],
        cwd=ROOT, check=False, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    if process.returncode:
        sys.exit(process.returncode)
    return time.perf_counter() - start


def losses(runs: Path) -> dict[str, list[tuple[str, str]]]:
    """Training and validation losses of each run, as written in its metrics.csv, by scheme and seed."""
    files = sorted((runs / "together").glob("*/*/metrics.csv"))
    return {
        "/".join(file.parts[-3:-1]): [(row["train_loss"], row["val_loss"]) for row in read_csv(file)] for file in files
    }


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("overrides", nargs="*", help="the sweep, as for train.py -m: model=tiny seed=0,1")
    parser.add_argument("--at-a-time", type=integers, default="2", help="numbers of parallel runs: 2,4,8")
    parser.add_rounds(1)
    given = parser.parse_intermixed_args()
    from posenc.config.command_line import one_sentence_errors
    from posenc.config.compose import composed
    from posenc.config.files import CONF
    from posenc.config.instantiate import build
    from posenc.config.overrides import parsed

    sweep = given.overrides or ["pos=sinusoidal,rope", "seed=0,1", "steps=60"]
    with one_sentence_errors():
        fixed = [str(one.input_line) for one in parsed(sweep) if not one.is_sweep_override()]
    with one_sentence_errors(fixed, CONF):
        config, _ = composed(CONF, fixed)
        on_gpu = build(config, "trainer").device.type != "cpu"
    with tempfile.TemporaryDirectory() as folder:
        times: dict[int, list[float]] = {count: [] for count in (1, *given.at_a_time)}
        for index in range(given.rounds):
            for count, seconds in times.items():
                launcher = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={count}"] if count > 1 else []
                seconds.append(train([*sweep, *launcher, f"runs={folder}/{index}-{count}"]))
        fastest = {count: min(seconds) for count, seconds in times.items()}
        rows = [[str(count), f"{best:.1f}", f"{fastest[1] / best:.2f}"] for count, best in fastest.items()]
        print(table(["parallel runs", "seconds per sweep", "speed-up"], rows))
        inherited = os.environ.get("OMP_NUM_THREADS", "")
        sequential = {"" if on_gpu else inherited: Path(folder, "0-1")}
        runs = len(losses(Path(folder, "0-1")))
        for count in given.at_a_time:
            threads = "" if on_gpu else inherited or str(Processes(count).threads(runs))
            if threads not in sequential:
                sequential[threads] = Path(folder, f"sequential-{threads}")
                train([*sweep, f"runs={sequential[threads]}"], {"OMP_NUM_THREADS": threads})
            parallel, alone = losses(Path(folder, f"0-{count}")), losses(sequential[threads])
            equal = sum(parallel[run] == alone[run] for run in alone)
            print(f"\n{count} in parallel: {equal} of {len(alone)} curves bitwise equal to sequential runs'")


if __name__ == "__main__":
    main()
