"""The end of a sweep, and the states of its SLURM jobs."""
