"""Training one model; `run.py` is the entry point."""
