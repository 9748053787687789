"""benchmarks/together.py compares runs that have the same number of threads."""

import pytest

from tests.benchmarks.scripts import module


@pytest.mark.parametrize(("inherited", "cores"), [("3", 8), ("", 8), ("", 1)])
def test_a_parallel_run_is_compared_with_a_sequential_one_of_as_many_threads(inherited, cores, monkeypatch, capsys):
    together = module("together")

    def train(arguments, environment=None):
        """A sweep of four runs whose losses are their numbers of threads."""
        count = max((int(one.partition("n_jobs=")[2]) for one in arguments if "n_jobs=" in one), default=1)
        threads = (environment or {}).get("OMP_NUM_THREADS") or inherited or max(1, cores // min(count, 4))
        runs = next(one.removeprefix("runs=") for one in arguments if one.startswith("runs="))
        for seed in range(4):
            folder = together.Path(runs, "together", "rope", str(seed))
            folder.mkdir(parents=True)
            (folder / "metrics.csv").write_text(f"train_loss,val_loss\n{threads},{threads}\n")
        return 1.0

    monkeypatch.setattr(together, "train", train)
    monkeypatch.setattr(together.os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(together.os, "cpu_count", lambda: 64)  # a container or a SLURM job may use fewer
    monkeypatch.setenv("OMP_NUM_THREADS", inherited)
    monkeypatch.setattr("sys.argv", ["together.py", "pos=rope", "seed=0,1,2,3", "--at-a-time", "2,8"])
    together.main()
    printed = capsys.readouterr().out
    assert printed.count("4 of 4 curves bitwise equal") == 2, printed
