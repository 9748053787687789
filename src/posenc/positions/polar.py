"""Polar coordinate position embedding (PoPE): content sets the magnitude of each channel, position its angle."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.bounds import Positive, PositiveInt, at_least_one
from posenc.positions.base import PositionScheme
from posenc.positions.tables import POSITIONS, AngleTable, frequencies


class Polar(PositionScheme):
    """PoPE (Gopalakrishnan et al. 2025): content sets the magnitude of each channel, the offset alone its angle.

    The logit of a query at m and a key at n is, over the Dh channels c of head h,

    sum_c softplus(q_c) softplus(k_c) cos((m - n) theta_c - delta_hc), with theta_c = base^(-c/Dh).

    In RoPE the angle between q and k within a plane depends on their content too. The angles delta are trained,
    initialised to 0, unbounded (lucidrains' PoPE-pytorch clamps them to [-2 pi, 0]), and shared by all layers. Logits
    are divided by sqrt(Dh), as in RoPE, although there are twice as many channels.

    Args:
        heads: H, query heads.
        head_dim: Dh.
        base: of the frequencies.

    Raises:
        ValueError: if heads or head_dim is below 1, or the base is not positive.
    """

    rotates = False

    max_length = POSITIONS

    def __init__(self, heads: PositiveInt, head_dim: PositiveInt, base: Positive = 10_000.0) -> None:
        super().__init__()
        at_least_one(heads=heads, head_dim=head_dim)
        self.angles = AngleTable(frequencies(2 * head_dim, base))
        self.delta = nn.Parameter(torch.empty(heads, 1, head_dim))
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:  # noqa: ARG002
        nn.init.zeros_(self.delta)

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q (.., H, T, Dh) and k (.., G, T, Dh) -> the same with 2 Dh channels."""
        cos, sin = self.angles(positions)
        delta_cos, delta_sin = self.delta.float().cos(), self.delta.float().sin()
        # delta is applied to the queries, since there may be fewer key heads; only the difference matters.
        q_cos, q_sin = cos * delta_cos + sin * delta_sin, sin * delta_cos - cos * delta_sin
        return _to_cartesian(q, q_cos, q_sin), _to_cartesian(k, cos, sin)


def _to_cartesian(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Vectors of magnitude softplus(x) at the angles of cos and sin, in Cartesian coordinates and the dtype of x."""
    magnitude = F.softplus(x.float())
    return torch.cat([magnitude * cos, magnitude * sin], dim=-1).to(x.dtype)
