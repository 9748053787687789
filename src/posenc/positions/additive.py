"""Schemes that add a vector for each position to the token embeddings: the hook `encoding`."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.bounds import at_least_one
from posenc.positions.base import EMBEDDING_STD, PositionScheme
from posenc.positions.tables import POSITIONS, AngleTable, frequencies

Scale = float | Literal["matched", "learned"]
"""The size of the encoding; "matched" gives it the RMS of the token embeddings. "learned" is one trained scalar,
initialised to 1/sqrt(D): scaled sinusoidal (Hua et al. 2022; Geiping and Goldstein 2023, section 4.2)."""


def _amplitude(scale: Scale, matched: float) -> float | nn.Parameter:
    """A number, or a trained scalar of shape (1,), since FSDP does not support zero-dimensional parameters."""
    match scale:
        case "matched":
            return matched
        case "learned":
            return nn.Parameter(torch.empty(1))
        case int() | float() if scale > 0:
            return float(scale)
    raise ValueError(f"scale={scale} must be 'matched', 'learned' or a positive number")


def _initialise(amplitude: float | nn.Parameter, width: int) -> None:
    """1/sqrt(D), if it is trained."""
    if isinstance(amplitude, nn.Parameter):
        nn.init.constant_(amplitude, width**-0.5)


class Sinusoidal(PositionScheme):
    """Fixed sines and cosines (Vaswani et al. 2017, section 3.5): PE(m, 2i) = sin(m theta_i), PE(m, 2i+1) = cos.

    With token embeddings of standard deviation 0.02, the raw amplitude of 1 dominates the tokens at first, and one
    that matches them is soon dominated, since they grow. So the amplitude is `scale`; its default is the best of those
    tried (docs/protocol.md).

    Args:
        width: D, even.
        base: the longest wavelength is 2 pi base^(1 - 2/D).
        scale: amplitude; "matched" is sqrt(2) * 0.02 times `tokens`, which has the RMS of the embeddings; "learned" is
            trained, initialised to 1/sqrt(D).
        tokens: multiplier of the token embeddings; "sqrt_width" is sqrt(D), as in section 3.4.

    Raises:
        ValueError: for an odd width, or a base, scale or factor that is not positive.
    """

    max_length = POSITIONS

    def __init__(
        self,
        width: int,
        base: float = 10_000.0,
        scale: Scale = 0.1,
        tokens: float | Literal["sqrt_width"] = 1.0,
    ) -> None:
        super().__init__()
        if width < 2 or width % 2:
            raise ValueError(f"width={width} must be even: sines and cosines come in pairs")
        if tokens != "sqrt_width" and not (isinstance(tokens, int | float) and tokens > 0):
            raise ValueError(f"tokens={tokens} must be 'sqrt_width' or a positive number")
        self.tokens = math.sqrt(width) if tokens == "sqrt_width" else float(tokens)
        self.width, self.scale = width, _amplitude(scale, math.sqrt(2) * EMBEDDING_STD * self.tokens)
        self.angles = AngleTable(frequencies(width, base))
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:  # noqa: ARG002
        _initialise(self.scale, self.width)

    def encoding(self, positions: Tensor) -> Tensor:
        cos, sin = self.angles(positions)
        return self.scale * torch.stack([sin, cos], dim=-1).flatten(-2)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return super().embed(self.tokens * x, positions)


class Learned(PositionScheme):
    """A trained vector for each position (Gehring et al. 2017; used in BERT and GPT-2).

    Args:
        context: rows of the table, the maximum sequence length.
        width: D.
        scale: standard deviation at initialisation; "matched" is the token embeddings' 0.02; "learned" is a table of
            standard deviation 1 times a trained scalar, initialised to 1/sqrt(D).

    Raises:
        ValueError: for a context or width below 1, or a scale that is not positive.
    """

    def __init__(self, context: int, width: int, scale: Scale = "matched") -> None:
        super().__init__()
        at_least_one(context=context, width=width)
        self.max_length = context
        amplitude = _amplitude(scale, EMBEDDING_STD)
        self.scale = amplitude if isinstance(amplitude, nn.Parameter) else 1.0
        self.std = 1.0 if isinstance(amplitude, nn.Parameter) else amplitude
        self.table = nn.Embedding(context, width)
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:
        _initialise(self.scale, self.table.embedding_dim)
        nn.init.normal_(self.table.weight, std=self.std, generator=generator)

    def encoding(self, positions: Tensor) -> Tensor:
        return self.scale * self.table(positions)
