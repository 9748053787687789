"""Validation of a model during its training."""

import math
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Trainer


@torch.no_grad()
def validate(trainer: Trainer, pl_module: Any, shift: float, postponed: Callable[[], bool]) -> dict[str, float] | None:
    """Mean loss over all validation windows and its standard error, as in metrics.csv. All ranks must call this.

    The standard error is over batches, weighted by their number of targets; undefined for a single batch.

    Args:
        shift: a loss close to the mean, subtracted since squares of the losses themselves would cancel in fp32.
        postponed: asked before each batch whether to give up, in which case nothing is returned.
    """
    moments = torch.zeros(4, device=pl_module.device)  # mean; mean and mean square minus `shift`; number of batches
    for inputs, targets, share in pl_module.validation_batches():
        if postponed():
            return None
        with trainer.precision_plugin.forward_context():
            part = pl_module.validation_loss(inputs, targets, share)
        if share:
            shifted = part - share * shift
            moments += torch.stack([part, shifted, shifted.square() / share, torch.ones_like(part)])
    loss, first, second, batches = trainer.strategy.reduce(moments, reduce_op="sum").tolist()
    if batches == 1:
        return {"val_loss": loss}
    return {"val_loss": loss, "val_loss_se": math.sqrt(max(0.0, second - first**2) / (batches - 1))}
