"""Training objectives, sampling, and n-gram baselines."""

from posenc.objectives.objective import IGNORE_INDEX, Causal, Masked, Objective
