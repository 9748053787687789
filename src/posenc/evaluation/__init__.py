"""Finished runs: loaded, and read in longer windows."""
