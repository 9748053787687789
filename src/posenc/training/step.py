"""The training step: forward, backward, clipping, update."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from posenc.training.optim import Optimizer, build_optimizer
from posenc.training.schedule import Constant, Schedule

PHASES = ("forward", "backward", "clip", "update")

Loss = Callable[[Tensor, Tensor], Tensor]
"""Inputs and targets, (B, T) each -> mean nats per predicted token, ()."""


class TrainingStep:
    """Training steps without Lightning, for profiling and benchmarks.

    In a run Lightning calls the same parts in the same order; a test checks that the two are bitwise equal.

    Args:
        steps: length of the schedule.
        autocast: device type ("cpu", "cuda") for bf16 autocast; None for fp32.
        phase: context manager around each of PHASES, for timing.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optim: Optimizer,
        schedule: Schedule | None = None,
        steps: int = 1,
        autocast: str | None = None,
        phase: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext(),
    ) -> None:
        self.loss, self.optim, self.phase = loss, optim, phase
        self.weights = list(model.parameters())
        self.autocast = torch.autocast(autocast or "cpu", torch.bfloat16, enabled=autocast is not None)
        self.optimizer, self.lr_scheduler = build_optimizer(model, optim, schedule or Constant(), steps)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """(B, T) each -> the loss before the update, ()."""
        with self.phase("forward"), self.autocast:
            loss = self.loss(inputs, targets)
        with self.phase("backward"):
            loss.backward()
        with self.phase("clip"):
            clip_gradients(self.weights, self.optim.clip)
        with self.phase("update"):
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.lr_scheduler.step()
        return loss.detach()


def clip_gradients(weights: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Clip the gradient norm; returns the norm before clipping, over all devices."""
    norm = nn.utils.clip_grad_norm_(weights, max_norm)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
