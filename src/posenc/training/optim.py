"""The optimiser and its schedule, the same for every scheme."""

import math
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Lt
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from posenc.bounds import Fraction, NonNegative, Positive

Beta = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True)
class AdamWCosine:
    """AdamW (Loshchilov and Hutter 2019), linear warm-up, then a cosine to a share of the peak.

    Args:
        lr: the peak.
        warmup: share of the steps in the warm-up.
        final: learning rate at the last step, as a share of the peak.
        betas: decay of the two moments.
        weight_decay: on matrices only; not on gains.
        clip: largest norm of the gradient.
    """

    lr: Positive
    warmup: Fraction
    final: Fraction
    betas: tuple[Beta, Beta]
    weight_decay: NonNegative
    clip: Positive

    def share_of_peak(self, step: int, steps: int) -> float:
        """The learning rate of update `step` (from 0) of `steps`, as a share of the peak."""
        warm = round(self.warmup * steps)
        if step < warm:
            return (step + 1) / warm
        progress = (step - warm) / max(1, steps - 1 - warm)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * min(1.0, progress))) / 2

    def build(self, model: nn.Module, steps: int) -> tuple[AdamW, LambdaLR]:
        """The optimiser of a model and its schedule over `steps` updates."""
        matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
        gains = [weight for weight in model.parameters() if weight.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay},
            {"params": gains, "weight_decay": 0.0},
        ]
        optimiser = AdamW(groups, lr=self.lr, betas=(self.betas[0], self.betas[1]), fused=True)
        return optimiser, LambdaLR(optimiser, lambda step: self.share_of_peak(step, steps))
