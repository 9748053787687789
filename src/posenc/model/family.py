"""What sets the published families of transformers apart, at any size."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import nn


class Biases(NamedTuple):
    """Where vectors are added."""

    norms: bool
    projections: bool


BIASES: Mapping[str, Biases] = {
    "none": Biases(norms=False, projections=False),
    "norm": Biases(norms=True, projections=False),
    "all": Biases(norms=True, projections=True),
}

NORMS: Mapping[str, Callable[[int, bool], nn.Module]] = {
    "layer": lambda width, bias: nn.LayerNorm(width, bias=bias),
    "bare": lambda width, bias: nn.LayerNorm(width, elementwise_affine=False),  # noqa: ARG005
    "rms": lambda width, bias: nn.RMSNorm(width, eps=1e-5),  # noqa: ARG005
}


@dataclass(frozen=True)
class Family:
    """The choices inside a layer.

    Args:
        norm: layer (LayerNorm), bare (LayerNorm without weights) or rms (RMSNorm).
        bias: where vectors are added: none, norm (in the norms) or all (in every projection too).
        queries_per_key: query heads that share a head of keys and values: 1 is full attention, all is multi-query.
        parallel: whether attention and feed-forward read the same normalised input.
        activation: gelu, gelu_tanh (its tanh form), or swiglu with a third matrix as a gate (Shazeer 2020).
        ratio: width of the feed-forward network over D.
        tied: whether the output's matrix is the embedding's.

    Raises:
        ValueError: if a value is out of range, or two contradict each other.
    """

    norm: Literal["layer", "bare", "rms"] = "layer"
    bias: Literal["none", "norm", "all"] = "none"
    queries_per_key: int | Literal["all"] = 1
    parallel: bool = False
    activation: Literal["gelu", "gelu_tanh", "swiglu"] = "gelu"
    ratio: float = 4.0
    tied: bool = True

    def __post_init__(self) -> None:
        if self.queries_per_key != "all" and self.queries_per_key < 1:
            raise ValueError(f"queries_per_key={self.queries_per_key} must be all or at least 1")
        if not self.ratio > 0:
            raise ValueError(f"ratio={self.ratio} must be above 0")
        if self.biases == BIASES["norm"] and self.norm != "layer":
            raise ValueError(f"bias=norm needs norm=layer: norm={self.norm} has none")

    @property
    def biases(self) -> Biases:
        return BIASES[self.bias]

    def normalisation(self, width: int) -> nn.Module:
        """(..., D) -> (..., D)."""
        return NORMS[self.norm](width, self.biases.norms)

    def num_kv_heads(self, heads: int) -> int:
        """Heads of keys and values.

        Raises:
            ValueError: if the query heads cannot be shared out evenly.
        """
        group = heads if self.queries_per_key == "all" else self.queries_per_key
        if heads % group:
            raise ValueError(f"heads={heads} must be a multiple of family.queries_per_key={group}")
        return heads // group

    def d_ff(self, width: int) -> int:
        """Of the feed-forward network: ratio x D.

        Where that is not whole, up to a multiple of D / 16, which is LLaMA's 256 at width 4,096.
        """
        if (self.ratio * width).is_integer():
            return int(self.ratio * width)
        multiple = max(1, width // 16)
        return math.ceil(round(self.ratio * width) / multiple) * multiple
