"""Try every fault and write down what came of it: `python -m tests.faults --out results/reliability.md`."""

import argparse
import importlib
import itertools
import pkgutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import tests.faults
from tests.faults.outcome import Outcome

AT_ONCE = 2
"""Families; most of their time is spent waiting."""

HEAD = """# What a run survives

Each fault was injected: processes were killed, files damaged, disks filled, servers cut off. "Survived" means
that every run that could go on had the curve of an uninterrupted run, bit for bit (seconds and tokens/s aside), that
nothing half-written was left, and that one sentence said what the user must know.

```bash
{command}
```

{where}

| fault | tried | survived | what was lost |
|---|---|---|---|
"""


def families() -> list[str]:
    """Every module of this package that tries faults."""
    names = [module.name for module in pkgutil.iter_modules(tests.faults.__path__)]
    modules = {name: importlib.import_module(f"tests.faults.{name}") for name in names if name != "__main__"}
    return [name for name, module in modules.items() if hasattr(module, "outcomes")]


def row(outcome: Outcome) -> str:
    return f"| {outcome.fault} | {outcome.tried} | {outcome.survived} | {outcome.lost} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.faults")
    parser.add_argument("families", nargs="*", default=families(), help="all if none is named")
    parser.add_argument("--times", type=int, default=5, help="of each fault; random kills are six times as many")
    parser.add_argument("--out", type=Path, help="the table's file")
    given = parser.parse_args()
    rows: dict[str, list[str]] = {family: [] for family in given.families}

    def tried(family: str) -> None:
        module = importlib.import_module(f"tests.faults.{family}")
        for outcome in module.outcomes(Path(folder) / family, given.times):
            rows[family].append(row(outcome))
            print(rows[family][-1], flush=True)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(tried, given.families))
    if given.out is not None:
        from posenc.training import environment
        from posenc.training.accelerator import best_device

        versions = ", ".join(f"{package} {version}" for package, version in environment.versions().items())
        where = f"{environment.device_name(best_device())}; {versions}; {datetime.now(UTC).date().isoformat()}."
        command = f"python -m tests.faults --times {given.times} --out {given.out}"
        given.out.write_text(
            HEAD.format(command=command, where=where) + "\n".join(itertools.chain.from_iterable(rows.values())) + "\n"
        )


if __name__ == "__main__":
    main()
