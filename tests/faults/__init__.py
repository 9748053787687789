"""Real faults, tried for real: `python -m tests.faults --out results/reliability.md`."""
