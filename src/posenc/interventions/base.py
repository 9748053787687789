"""A scheme that wraps another and delegates every hook to it, unless an intervention overrides the hook."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posenc.positions.base import LayerScheme, PositionScheme


class Intervention(PositionScheme):
    """Delegates every hook. Subclasses override `embed`, `rotate_around` or `bias_around`.

    Args:
        scheme: the wrapped scheme, possibly another intervention.
    """

    def __init__(self, scheme: PositionScheme) -> None:
        super().__init__()
        self.scheme = scheme
        self.max_length, self.causal_only = scheme.max_length, scheme.causal_only
        self.rotates = type(self).rotates and scheme.rotates

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.scheme.embed(x, positions)

    def encoding(self, positions: Tensor) -> Tensor | None:
        return self.scheme.encoding(positions)

    def layer(self, index: int) -> LayerScheme:
        return InLayer(self, self.scheme.layer(index))

    def at_step(self, step: int) -> None:
        self.scheme.at_step(step)

    def initialise(self, generator: torch.Generator | None = None) -> None:
        self.scheme.initialise(generator)

    def rotate_around(self, within: LayerScheme, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """As `PositionScheme.rotate`, in a layer whose wrapped scheme is `within`."""
        return within.rotate(q, k, positions)

    def bias_around(self, within: LayerScheme, positions: Tensor) -> Tensor | None:
        """As `PositionScheme.bias`, in a layer whose wrapped scheme is `within`."""
        return within.bias(positions)


@dataclass(frozen=True)
class InLayer:
    """An intervention in one layer; equal to that in another layer with the same wrapped scheme."""

    intervention: Intervention
    within: LayerScheme

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.within.parameters()

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.intervention.rotate_around(self.within, q, k, positions)

    def bias(self, positions: Tensor) -> Tensor | None:
        return self.intervention.bias_around(self.within, positions)

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor | None:
        return self.within.content_bias(x, q, k, positions)


def nothing(scheme: PositionScheme) -> PositionScheme:
    """No intervention."""
    return scheme
