"""Interventions on the token embeddings."""

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.bounds import Fraction, Positive
from posenc.interventions.base import Intervention
from posenc.positions.base import PositionScheme


class Smear(Intervention):
    """Token shift: adds to each embedding a share of the previous one (modded-nanogpt's smear, without its gate).

    The previous token is available without attention.

    Args:
        share: factor of the previous embedding, 0 to 1.
    """

    def __init__(self, scheme: PositionScheme, share: Fraction = 0.5) -> None:
        super().__init__(scheme)
        self.share = share

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.scheme.embed(x + self.share * F.pad(x, (0, 0, 1, -1)), positions)


class FollowingAmplitude(Intervention):
    """An additive encoding whose size follows that of the token embeddings, which grow during training.

    Args:
        scheme: an additive scheme, possibly inside other interventions; its own amplitude, which must not be trained,
            has no effect.
        ratio: RMS of the encoding relative to that of the same token's embedding. The RMS over the batch would leak
            information about later tokens.

    Raises:
        ValueError: if the scheme adds nothing, or its amplitude is trained: its gradient would be rounding errors, and
            AdamW would make full steps of them, until the amplitude changes its sign.
    """

    def __init__(self, scheme: PositionScheme, ratio: Positive = 1.0) -> None:
        super().__init__(scheme)
        if scheme.encoding(torch.arange(1)) is None:
            raise ValueError(
                f"following_amplitude needs an additive scheme, such as pos=sinusoidal: {type(scheme).__name__} is not"
            )
        if any(weight.shape == (1,) for weight in scheme.parameters()):
            raise ValueError("following_amplitude sets the amplitude: use another pos.scale than learned")
        self.ratio = ratio

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        encoding = self.scheme.encoding(positions)
        assert encoding is not None
        tokens = self.scheme.embed(x, positions) - encoding.to(x.dtype)
        return tokens + (self.ratio * _rms(tokens.detach()) * encoding / _rms(encoding)).to(x.dtype)

    def encoding(self, positions: Tensor) -> None:
        """None: what is added depends on the tokens."""


def _rms(x: Tensor) -> Tensor:
    return x.float().square().mean(-1, keepdim=True).sqrt()
