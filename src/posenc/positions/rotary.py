"""Rotary position embedding (Su et al. 2021): the hook `rotate`."""

import math

import torch
from torch import Tensor, nn

from posenc.bounds import Fraction, at_least_one, positive
from posenc.positions.apply_rotary import LAYOUTS, Layout, apply_rotary
from posenc.positions.base import LayerScheme, PositionScheme
from posenc.positions.tables import POSITIONS, AngleTable, ExactTable, TrainedAngles, frequencies

LARGEST_GROWTH = 116
"""Powers of two by which xPos may scale a product: float32 has 128, and products of 2^12 must still fit."""

LONGEST = 2**17
"""Positions that xPos spans at most, with any decay: they are in a table."""


class Rotary(PositionScheme):
    """Rotate each plane of q and k by m theta_i, so that q.k depends on the offset alone (section 3.2.2, equation 16).

    Subclasses take the same arguments and raise the same errors, besides their own.

    Args:
        head_dim: Dh.
        base: theta_i = base^(-2i/d), d the number of rotated channels.
        layout: which channels form a plane; the layouts differ only by a permutation of the channels.
        fraction: fraction of each head's channels that is rotated, the first ones; the rest has no position.

    Raises:
        ValueError: if the rotated channels are not an even number between 2 and Dh, the layout is unknown, or the
            base is not positive.
    """

    max_length: int | None = POSITIONS
    table: type[AngleTable] | type[TrainedAngles] = AngleTable

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        layout: Layout = "half",
        fraction: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction={fraction} must be above 0 and at most 1")
        self.rotated = round(head_dim * fraction)
        if self.rotated < 2 or self.rotated % 2:
            raise ValueError(
                f"head_dim={head_dim} with fraction={fraction} rotates {self.rotated} channels, "
                "which must be an even number, at least 2"
            )
        if layout not in LAYOUTS:
            raise ValueError(f"layout={layout} must be one of {', '.join(LAYOUTS)}")
        self.head_dim, self.layout, self.base = head_dim, layout, base
        self.angles = self.table(frequencies(self.rotated, base))

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """q (.., T, Dh) and k (.., T, Dh), with any number of heads each, positions (T,) -> the same shapes.

        Raises:
            ValueError: if positions are not (T,), or q and k have another head size.
        """
        self.check_shapes(q, k, positions)
        cos, sin = self.angles(positions)
        return apply_rotary(q, cos, sin, self.layout), apply_rotary(k, cos, sin, self.layout)

    def check_shapes(self, q: Tensor, k: Tensor, positions: Tensor) -> None:
        """Check what would otherwise broadcast, or leave channels without a rotation."""
        if positions.shape != q.shape[-2:-1]:
            shape = tuple(q.shape[-2:-1])
            raise ValueError(f"positions must be {shape}, the same for the whole batch, not {tuple(positions.shape)}")
        if q.shape[-1] != self.head_dim or k.shape[-1] != self.head_dim:
            raise ValueError(f"heads must have {self.head_dim} channels, not {q.shape[-1]} and {k.shape[-1]}")


class Bounded(Rotary):
    """Rotary angles that stay below pi for all offsets in the longest sequence (He and Xu 2023).

    Tokens farther apart should influence each other less, but with theta_0 = 1 the fastest plane completes a turn
    between distances 6 and 7. So they scale the angles by the longest length n. Their exact formula is not
    available to us: theta_i = (pi / n) base^(-2i/d) is our interpretation, the simplest with this property. Positions
    beyond n are possible; their offsets exceed pi.

    Args:
        longest: n. Offsets in a sequence of n tokens are at most n - 1.

    Raises:
        ValueError: if longest is below 1.
    """

    def __init__(
        self,
        head_dim: int,
        longest: int,
        base: float = 10_000.0,
        layout: Layout = "half",
        fraction: float = 1.0,
    ) -> None:
        super().__init__(head_dim, base, layout, fraction)
        at_least_one(longest=longest)
        self.angles = AngleTable(math.pi / longest * frequencies(self.rotated, base))


class Truncated(Rotary):
    """Rotary without the slowest planes, which are not rotated: p-RoPE (Barbero et al. 2024).

    Slow planes can carry content at any distance only approximately; planes that are not rotated carry it exactly.

    Args:
        kept: p, the fraction of planes that is rotated: the fastest. 1 is RoPE, 0 is no positions.

    Raises:
        ValueError: if kept is not between 0 and 1, or not 0 and too small for one plane.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        layout: Layout = "half",
        fraction: float = 1.0,
        kept: Fraction = 0.75,
    ) -> None:
        super().__init__(head_dim, base, layout, fraction)
        if not 0 <= kept <= 1:
            raise ValueError(f"kept={kept} must be at least 0 and at most 1")
        theta = frequencies(self.rotated, base)
        planes = round(kept * len(theta))
        if kept and not planes:
            raise ValueError(f"kept={kept} rotates none of the {len(theta)} planes: use a larger one, or pos=none")
        theta[planes:] = 0
        self.angles = AngleTable(theta)


class TrainedFrequencies(Rotary):
    """Rotary with trained frequencies, theta_i exp(w_i) with w_i initialised to 0; shared by all heads and layers.

    LeRoPE's parametrisation is not available to us; in the logarithm no frequency changes its sign, and an optimiser
    step changes fast and slow frequencies by the same factor. Angles are in float64, which MPS lacks.
    """

    table = TrainedAngles
    max_length = None

    def initialise(self, generator: torch.Generator | None = None) -> None:  # noqa: ARG002
        for weight in self.angles.parameters():
            nn.init.zeros_(weight)


class NopeHybrid(Rotary):
    """Rotary except in every fourth layer, which has no positions (Yang et al. 2025, "Rope to Nope and back").

    Layers without positions attend by content alone, at any length. SmolLM3 uses this pattern. The sliding windows of
    the cited paper's rotary layers, and the chunks of Llama 4's, are not included.

    Args:
        every: every `every`-th layer has no positions.

    Raises:
        ValueError: if every is below 2.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        layout: Layout = "half",
        fraction: float = 1.0,
        every: int = 4,
    ) -> None:
        super().__init__(head_dim, base, layout, fraction)
        if every < 2:
            raise ValueError(f"every={every} must be at least 2; with 1 no layer would have positions: use pos=none")
        self.every = every
        self.without = PositionScheme()

    def layer(self, index: int) -> LayerScheme:
        return self.without if (index + 1) % self.every == 0 else self


class Xpos(Rotary):
    """Rotary with scores that decay by zeta_i^((m-n)/S) in plane i, for causal models (Sun et al. 2022, section 3).

    Plane i of a query at m is scaled by zeta_i^(m/S), that of a key at n by zeta_i^(-n/S), with zeta_i = (2i/d + gamma)
    / (1 + gamma). Only products matter, so m and n are counted from the middle of the given positions, which keeps
    both factors small. Queries and keys from different calls must not be combined.

    A key n - m ahead of its query is scaled by zeta_0^((m-n)/S): it is masked, but computed. So that it stays finite in
    float32 or bfloat16, a sequence spans at most `max_length` positions: 32,861 with the default gamma and scale_base,
    never over 131,072; in float16 about 2,000. Blockwise attention (section 3.3) is not included.

    Args:
        gamma: smaller values make the fast planes decay faster.
        scale_base: S, in positions; larger values make all planes decay slower.

    Raises:
        ValueError: if gamma or scale_base is not positive.
    """

    causal_only = True
    rotates = False  # linear attention's sums of weights would not decay with the weights

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        layout: Layout = "half",
        fraction: float = 1.0,
        gamma: float = 0.4,
        scale_base: float = 512.0,
    ) -> None:
        super().__init__(head_dim, base, layout, fraction)
        positive(gamma=gamma, scale_base=scale_base)
        planes = torch.arange(0, self.rotated, 2, dtype=torch.float64) / self.rotated
        gamma, scale_base = float(gamma), float(scale_base)
        zeta = (planes + gamma) / (1 + gamma)
        growth = -math.log2(gamma / (1 + gamma)) / scale_base  # powers of two per position
        self.max_length = int(min(LONGEST, LARGEST_GROWTH / max(growth, 1e-9)))
        self.reach = self.max_length // 2
        offsets = torch.arange(-self.reach, self.reach + 1, dtype=torch.float64)
        self.decay = ExactTable(zeta ** (offsets[:, None] / scale_base))

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        self.check_shapes(q, k, positions)
        cos, sin = self.angles(positions)
        middle = torch.div(positions.amin() + positions.amax(), 2, rounding_mode="floor")
        decay = self.decay.table[positions - middle + self.reach]
        rotated_k = apply_rotary(k, cos / decay, sin / decay, self.layout)
        return apply_rotary(q, cos * decay, sin * decay, self.layout), rotated_k


def permute_layout(weight: Tensor, heads: int, to: Layout) -> Tensor:
    """Permute the rows of a query or key projection from the other layout of RoPE to layout `to`.

    A model with permuted projections has the same logits with layout `to` as before with the other layout, as in the
    conversion of LLaMA's weights. The two directions are inverse to each other, and all heads are permuted alike.

    Args:
        weight: (H Dh, D), or a bias (H Dh,).
        heads: H of this projection; keys of grouped-query attention have fewer.
        to: the target layout.

    Raises:
        ValueError: if the rows are not H heads of an even size, or the layout is unknown.
    """
    if to not in LAYOUTS:
        raise ValueError(f"to={to} must be one of {', '.join(LAYOUTS)}")
    rows = weight.shape[0]
    if heads < 1 or rows % (2 * heads):
        raise ValueError(f"heads={heads} must divide the {rows} rows of the weight into heads of an even size")
    (from_,) = LAYOUTS.keys() - {to}
    split, join = LAYOUTS[from_].split, LAYOUTS[to].join
    channels_last = weight.unflatten(0, (heads, -1)).movedim(1, -1)
    return join(*split(channels_last)).movedim(-1, 1).flatten(0, 1)
