"""What sets the published families of transformers apart, at any size."""

import math
from dataclasses import dataclass
from typing import Literal

from torch import nn


@dataclass(frozen=True)
class Family:
    """The choices inside a layer.

    Args:
        norm: layer (LayerNorm), bare (LayerNorm without gains) or rms (RMSNorm).
        bias: where vectors are added: none, norm (in the norms) or all (in every projection too).
        queries_per_key: query heads that share a head of keys and values: 1 is full attention, all is multi-query.
        parallel: whether attention and feed-forward read the same normalised input.
        activation: gelu, or swiglu with a third matrix as a gate (Shazeer 2020).
        ratio: width of the feed-forward network over D.
        tied: whether the output's matrix is the embedding's.

    Raises:
        ValueError: if a value is out of range, or two contradict each other.
    """

    norm: Literal["layer", "bare", "rms"] = "layer"
    bias: Literal["none", "norm", "all"] = "none"
    queries_per_key: int | Literal["all"] = 1
    parallel: bool = False
    activation: Literal["gelu", "swiglu"] = "gelu"
    ratio: float = 4.0
    tied: bool = True

    def __post_init__(self) -> None:
        if self.queries_per_key != "all" and self.queries_per_key < 1:
            raise ValueError(f"queries_per_key={self.queries_per_key} must be all or at least 1")
        if not self.ratio > 0:
            raise ValueError(f"ratio={self.ratio} must be above 0")
        if self.bias == "norm" and self.norm != "layer":
            raise ValueError(f"bias=norm needs norm=layer: norm={self.norm} has none")

    def normalisation(self, width: int) -> nn.Module:
        """(..., D) -> (..., D)."""
        if self.norm == "rms":
            return nn.RMSNorm(width, eps=1e-5)
        return nn.LayerNorm(width, elementwise_affine=self.norm == "layer", bias=self.bias != "none")

    def key_heads(self, heads: int) -> int:
        """Heads of keys and values.

        Raises:
            ValueError: if the query heads cannot be shared out evenly.
        """
        shared = heads if self.queries_per_key == "all" else self.queries_per_key
        if heads % shared:
            raise ValueError(f"heads={heads} must be a multiple of family.queries_per_key={shared}")
        return heads // shared

    def inner_width(self, width: int) -> int:
        """Of the feed-forward network: ratio x D, up to a multiple of D / 16, which is LLaMA's 256 at width 4,096."""
        multiple = max(1, width // 16)
        return math.ceil(round(self.ratio * width) / multiple) * multiple
