"""Learning-rate schedules: a factor of the peak learning rate for each step."""

import math
from dataclasses import dataclass
from typing import Annotated, Protocol

from annotated_types import Ge, Lt

from posenc.bounds import Fraction
from posenc.errors import UserError

Span = Annotated[int, Ge(0)] | Annotated[float, Ge(0), Lt(1)]
"""A part of a run: an integer is a number of steps, any other number a fraction of them. 1.0, which the hash of a
run does not distinguish from 1, is refused; `${steps}` is the whole run."""


class Schedule(Protocol):
    """The interface of schedules."""

    def lr_factor(self, step: int, steps: int) -> float:
        """The factor of the peak learning rate for update `step` (from 0) of `steps`."""
        ...


def steps_of(span: Span, steps: int) -> int:
    """The number of steps in a span.

    Raises:
        UserError: if it is longer than the run.
    """
    if isinstance(span, int) and span > steps:
        raise UserError(f"the schedule's warm-up and cool-down must each be at most steps={steps}, not {span}")
    return span if isinstance(span, int) else round(span * steps)


@dataclass(frozen=True)
class Constant:
    """Linear warm-up, then a constant learning rate."""

    warmup: Span = 0.0

    def lr_factor(self, step: int, steps: int) -> float:
        return min(1.0, (step + 1) / max(1, steps_of(self.warmup, steps)))


@dataclass(frozen=True)
class Cosine(Constant):
    """Linear warm-up, then half a cosine down to `min_lr_ratio` (Loshchilov and Hutter 2017, without restarts)."""

    min_lr_ratio: Fraction = 0.1
    """Final learning rate as a fraction of the peak."""

    def lr_factor(self, step: int, steps: int) -> float:
        warm = steps_of(self.warmup, steps)
        progress = min(1.0, max(0.0, (step - warm) / max(1, steps - 1 - warm)))
        decayed = self.min_lr_ratio + (1 - self.min_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2
        return min(super().lr_factor(step, steps), decayed)


@dataclass(frozen=True)
class WSD(Constant):
    """Warm-up, stable, decay (Hu et al. 2024, MiniCPM): a linear cool-down over the last steps, to `min_lr_ratio`.

    Where the two overlap, the lower factor applies, so that the peak is not reached. With the warm-up in steps, runs of
    different lengths are the same run, to the bit, until the shorter one cools down.
    """

    min_lr_ratio: Fraction = 0.0
    cooldown: Span = 0.2

    def lr_factor(self, step: int, steps: int) -> float:
        decay_steps = steps_of(self.cooldown, steps)
        progress = min(1.0, max(0, step + 1 - (steps - decay_steps)) / max(1, decay_steps))
        return min(super().lr_factor(step, steps), 1 - (1 - self.min_lr_ratio) * progress)
