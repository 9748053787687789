"""A scheme that wraps another and delegates to it, unless an intervention overrides the hook."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posenc.positions.base import LayerScheme, PositionScheme

NEVER_CALLED = {"rotate", "bias", "content_bias", "rotate_around", "bias_around"}
"""Methods that nothing calls on an intervention; the last two are the former names of its own hooks."""


class Intervention(PositionScheme):
    """Wraps a scheme, and delegates to it what a subclass does not override.

    The model calls `embed`, `encoding`, `at_step` and `initialise` on the intervention, and the hooks of attention on
    what its `layer` returns: an `InLayer`, which calls `layer_rotate` and `layer_bias` with the wrapped scheme of that
    layer. `check_effect` checks the intervention's own arguments; that of the wrapped scheme is called separately.

    Args:
        scheme: the wrapped scheme, possibly another intervention.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if unused := NEVER_CALLED & vars(cls).keys():
            raise TypeError(
                f"{cls.__name__}.{min(unused)} would never be called: override layer_rotate, layer_bias or layer"
            )

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

    def layer_rotate(self, inner: LayerScheme, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """As `PositionScheme.rotate`, in a layer whose wrapped scheme is `inner`."""
        return inner.rotate(q, k, positions)

    def layer_bias(self, inner: LayerScheme, positions: Tensor) -> Tensor | None:
        """As `PositionScheme.bias`, in a layer whose wrapped scheme is `inner`."""
        return inner.bias(positions)


@dataclass(frozen=True)
class InLayer:
    """An intervention in one layer; equal to that in another layer with the same wrapped scheme."""

    intervention: Intervention
    inner: LayerScheme

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.inner.parameters()

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.intervention.layer_rotate(self.inner, q, k, positions)

    def bias(self, positions: Tensor) -> Tensor | None:
        return self.intervention.layer_bias(self.inner, positions)

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor | None:
        return self.inner.content_bias(x, q, k, positions)


def check_layers(in_layers: Sequence[int], layers: int) -> None:
    """Check that `in_layers` are some of a model's layers.

    Raises:
        ValueError: otherwise.
    """
    if not (in_layers and len(set(in_layers)) == len(in_layers) and all(0 <= layer < layers for layer in in_layers)):
        raise ValueError(f"in_layers={list(in_layers)} must be different ones of the model's layers, 0 to {layers - 1}")


def nothing(scheme: PositionScheme) -> PositionScheme:
    """No intervention."""
    return scheme
