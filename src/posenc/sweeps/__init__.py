"""Checks before a sweep, its progress, the comparison at its end, and the states of SLURM jobs."""
