"""Interventions on the token embeddings."""

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.interventions.base import Intervention
from posenc.positions.base import PositionScheme


class Smear(Intervention):
    """Token shift on the embeddings: each gets a share of the one before it (as in RWKV, Peng et al. 2023, section 3).

    The previous token is there without any attention.

    Args:
        scheme: the scheme within.
        share: of the embedding before, added to each.
    """

    def __init__(self, scheme: PositionScheme, share: float = 0.5) -> None:
        super().__init__(scheme)
        self.share = share

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.scheme.embed(x + self.share * F.pad(x, (0, 0, 1, 0))[..., :-1, :], positions)


class FollowingAmplitude(Intervention):
    """An additive encoding whose size follows that of the token embeddings, which grow as they train.

    Args:
        scheme: an additive scheme; its own amplitude no longer counts.
        ratio: root mean square of the encoding over that of the token's own embedding: not of the batch, which would
            let a token know of later ones.

    Raises:
        ValueError: if the scheme adds nothing, or the ratio is not positive.
    """

    def __init__(self, scheme: PositionScheme, ratio: float = 1.0) -> None:
        super().__init__(scheme)
        if scheme.encoding(torch.arange(1)) is None:
            raise ValueError(
                f"amplitude wants an additive scheme, such as pos=sinusoidal: {type(scheme).__name__} is none"
            )
        if not ratio > 0:
            raise ValueError(f"ratio={ratio} must be positive")
        self.ratio = ratio

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        encoding = self.scheme.encoding(positions)
        assert encoding is not None
        return x + (self.ratio * _rms(x.detach()) * encoding / _rms(encoding)).to(x.dtype)


def _rms(x: Tensor) -> Tensor:
    return x.float().square().mean(-1, keepdim=True).sqrt()
