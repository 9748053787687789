"""Schemes that add a vector for each position to the token embeddings: the door `embed`."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.positions.angles import AngleTable, frequencies
from posenc.positions.base import EMBEDDING_STD, PositionScheme

Scale = float | Literal["matched"]
"""The size of what is added; "matched" gives it the root mean square of the token embeddings."""


def _size(scale: Scale, matched: float) -> float:
    if scale == "matched":
        return matched
    if not (isinstance(scale, int | float) and scale > 0):
        raise ValueError(f"scale={scale} must be 'matched' or a positive number")
    return float(scale)


class Sinusoidal(PositionScheme):
    """Fixed sines and cosines (Vaswani et al. 2017, section 3.5): PE(m, 2i) = sin(m theta_i), PE(m, 2i+1) = cos.

    Beside embeddings of standard deviation 0.02 the raw amplitude of 1 drowns the tokens, and the comparison would
    measure an accident of initialisation. So the amplitude is `scale`, and its default matches the embeddings.

    Args:
        width: D, even.
        base: the longest wavelength is 2 pi base.
        scale: amplitude; "matched" is sqrt(2) * 0.02, whose root mean square is the embeddings' own.
        tokens: what the token embeddings are multiplied by; "sqrt_width" is sqrt(D), as in section 3.4.

    Raises:
        ValueError: for an odd width, or a base, scale or factor that is not positive.
    """

    def __init__(
        self,
        width: int,
        base: float = 10_000.0,
        scale: Scale = "matched",
        tokens: float | Literal["sqrt_width"] = 1.0,
    ) -> None:
        super().__init__()
        if width < 2 or width % 2:
            raise ValueError(f"width={width} must be even: sines and cosines come in pairs")
        if tokens != "sqrt_width" and not (isinstance(tokens, int | float) and tokens > 0):
            raise ValueError(f"tokens={tokens} must be 'sqrt_width' or a positive number")
        self.tokens = math.sqrt(width) if tokens == "sqrt_width" else float(tokens)
        self.scale = _size(scale, matched=math.sqrt(2) * EMBEDDING_STD)
        self.angles = AngleTable(frequencies(width, base))

    def encoding(self, positions: Tensor) -> Tensor:
        """positions (T,) -> (T, D), float32."""
        cos, sin = self.angles(positions)
        return self.scale * torch.stack([sin, cos], dim=-1).flatten(-2)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.tokens * x + self.encoding(positions).to(x.dtype)


class Learned(PositionScheme):
    """One trained vector a position (Gehring et al. 2017; the scheme of BERT and GPT-2).

    Args:
        context: rows of the table: no longer sequence can be placed.
        width: D.
        scale: standard deviation at initialisation; "matched" is the token embeddings' 0.02.

    Raises:
        ValueError: for a context or width below 1, or a scale that is not positive.
    """

    def __init__(self, context: int, width: int, scale: Scale = "matched") -> None:
        super().__init__()
        if context < 1 or width < 1:
            raise ValueError(f"context={context} and width={width} must both be at least 1")
        self.longest = context
        self.scale = _size(scale, matched=EMBEDDING_STD)
        self.table = nn.Embedding(context, width)

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.table.weight, std=self.scale, generator=generator)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions).to(x.dtype)
