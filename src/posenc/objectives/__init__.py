"""What a model predicts, what is sampled from it, and the n-gram baselines."""

from posenc.objectives.objective import UNSEEN, Causal, Masked, Objective

__all__ = ["UNSEEN", "Causal", "Masked", "Objective"]
