"""What happens when a sweep ends, and what SLURM says of its jobs."""
