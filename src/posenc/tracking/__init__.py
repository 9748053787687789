"""Experiment tracking: W&B and TensorBoard."""
