"""Schemes that add a bias to the attention logits, from positions alone: the hook `bias`."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.bounds import Distance, Positive, PositiveInt, at_least_one, positive
from posenc.compat import without_autocast
from posenc.positions.base import EMBEDDING_STD, PositionScheme
from posenc.positions.tables import ExactTable


def relative_positions(positions: Tensor) -> Tensor:
    """positions (T,) -> i - j for query i and key j, (T, T): positive if the key precedes the query."""
    return positions[:, None] - positions[None, :]


def slopes(heads: int) -> list[float]:
    """One slope per head, 2^(-8/H), 2^(-16/H) .. 2^-8 (Press et al. 2021, section 3).

    If H is not a power of two, the slopes are those of the next lower power, then every second one of twice that
    power, as in the authors' code.
    """

    def geometric(count: int) -> list[float]:
        return [2.0 ** (-8 * head / count) for head in range(1, count + 1)]

    lower = 1 << (heads.bit_length() - 1)
    return geometric(lower) + geometric(2 * lower)[::2][: heads - lower]


class Alibi(PositionScheme):
    """Attention with linear biases: a head's logits decrease by its slope per token of distance (Press et al. 2021).

    The paper defines -slope (i - j) for the keys j <= i of a causal model. This is -slope |i - j|, which is the same
    there, since the future is masked, and its symmetric form in a bidirectional model. As in the paper, it is added
    after the division by sqrt(Dh).

    Args:
        heads: H.

    Raises:
        ValueError: for fewer than one head.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        at_least_one(heads=heads)
        self.slopes = ExactTable(torch.tensor(slopes(heads), dtype=torch.float64))

    def bias(self, positions: Tensor) -> Tensor:
        return -self.slopes.table[:, None, None] * relative_positions(positions).abs()


def bucket_starts(buckets: int, max_distance: int) -> list[int]:
    """The distances at which buckets 1, 2 .. of one direction begin (Raffel et al. 2020, section 2.1).

    The first half of the buckets hold one distance each; bucket half + k begins at
    half (max_distance / half)^(k / rest), and the last one is unbounded.
    """
    half = buckets // 2
    rest = buckets - half
    starts = list(range(1, half + 1))
    for k in range(1, rest):
        near = round(half * (max_distance / half) ** (k / rest))  # may miss by one, so integers decide
        starts.append(next(d for d in (near - 1, near, near + 1) if d**rest >= half ** (rest - k) * max_distance**k))
    return starts


class T5(PositionScheme):
    """A trained scalar per head and distance bucket, shared by all layers (Raffel et al. 2020, section 2.1).

    The scalars are multiplied by sqrt(Dh), as in GPT-NeoX and x-transformers, not in T5. Under AdamW this multiplies
    their learning rate by sqrt(Dh): at that of the other weights a short training could hardly change them. They are
    initialised like the model's other weights (std 0.02; T5's own code has 1/sqrt(D)).

    Args:
        heads: H.
        buckets: trained scalars per head. A bidirectional model uses half of them for each direction.
        max_distance: distances from here on share the last bucket.
        bidirectional: whether attention is bidirectional. If not, offsets into the future, which are masked, share the
            bucket of distance 0.
        head_dim: Dh; with 1, the default, the scalars are not multiplied, as in T5.

    Raises:
        ValueError: for fewer than one head; for fewer than 2 buckets per direction, or an odd number if bidirectional;
            or if max_distance falls into the buckets that hold one distance each.
    """

    starts: Tensor

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: Distance = 128,
        bidirectional: bool = False,
        head_dim: int = 1,
    ) -> None:
        super().__init__()
        at_least_one(heads=heads, head_dim=head_dim)
        if bidirectional and buckets % 2:
            raise ValueError(f"buckets={buckets} must be even: half of them for each direction")
        directions = 2 if bidirectional else 1
        if buckets < 2 * directions:
            raise ValueError(f"buckets={buckets} must be at least {2 * directions}")
        each = buckets // directions
        if max_distance <= each // 2:
            raise ValueError(
                f"max_distance={max_distance} must be above {each // 2}, the number of single-distance buckets"
            )
        self.bidirectional, self.scale = bidirectional, math.sqrt(head_dim)
        self.table = nn.Embedding(buckets, heads)
        self.register_buffer("starts", torch.tensor(bucket_starts(each, max_distance)), persistent=False)
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:
        nn.init.normal_(self.table.weight, std=EMBEDDING_STD, generator=generator)

    def bias(self, positions: Tensor) -> Tensor:
        offsets = relative_positions(positions)
        distances = offsets.abs() if self.bidirectional else offsets.clamp(min=0)
        buckets = torch.bucketize(distances, self.starts, right=True)
        if self.bidirectional:
            buckets = buckets + (offsets < 0) * (self.table.num_embeddings // 2)
        biases = self.scale * self.table(buckets)
        return biases.permute(2, 0, 1).contiguous()  # fused attention kernels need adjacent keys


class Kerple(PositionScheme):
    """A bias that decreases with log distance, at two trained rates per head (Chi et al. 2022).

    bias_ij = -r1 log(1 + r2 |i - j|), their KERPLE-log. r1 and r2 are initialised uniformly in (0, 2) and (0, 1), and
    clamped to at least 0.01. The clamp is straight-through: a rate below 0.01 acts as 0.01 and keeps its gradient, so
    it must first climb back as far as it fell; the authors' code resets it to 0.01. All layers share the rates.

    Args:
        heads: H.

    Raises:
        ValueError: for fewer than one head.
    """

    MIN_RATE = 0.01

    def __init__(self, heads: PositiveInt) -> None:
        super().__init__()
        at_least_one(heads=heads)
        self.r1, self.r2 = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads))
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:
        nn.init.uniform_(self.r1, 0, 2, generator)
        nn.init.uniform_(self.r2, 0, 1, generator)

    def bias(self, positions: Tensor) -> Tensor:
        r1, r2 = (self._clamped(rate.float())[:, None, None] for rate in (self.r1, self.r2))
        return -r1 * torch.log1p(r2 * relative_positions(positions).abs())

    def _clamped(self, rate: Tensor) -> Tensor:
        return rate + (rate.clamp(min=self.MIN_RATE) - rate).detach()


class Fire(PositionScheme):
    """FIRE: a trained function of the relative distance, normalised by the query's position (Li et al. 2023).

    bias_ij = f(psi(i - j) / psi(max(L, i))) with psi(x) = log(1 + c x), and f a network with one ReLU hidden layer
    and one output per head. c, the threshold L and f are trained, and shared by all layers (FIRE-S). Below L the bias
    depends on the offset alone; above, distances are normalised to [0, 1] at any length.

    Args:
        heads: H.
        hidden: hidden units of f.
        c: initial value.
        threshold: initial value of L, in positions.

    Raises:
        ValueError: for fewer than one head or hidden unit, or a c or threshold that is not positive.
    """

    causal_only = True

    def __init__(
        self, heads: PositiveInt, hidden: PositiveInt = 32, c: Positive = 0.1, threshold: Positive = 512.0
    ) -> None:
        super().__init__()
        at_least_one(heads=heads, hidden=hidden)
        positive(c=c, threshold=threshold)
        self.initial = c, threshold
        self.c, self.log_threshold = (nn.Parameter(torch.empty(1)) for _ in range(2))  # FSDP needs a dimension
        self.inner, self.outer = nn.Linear(1, hidden), nn.Linear(hidden, heads)
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:
        c, threshold = self.initial
        nn.init.constant_(self.c, c)
        nn.init.constant_(self.log_threshold, math.log(threshold))
        for linear in (self.inner, self.outer):
            bound = linear.in_features**-0.5
            for weight in linear.parameters():
                nn.init.uniform_(weight, -bound, bound, generator)

    def bias(self, positions: Tensor) -> Tensor:
        longest = torch.maximum(self.log_threshold.float().exp(), positions.float())
        c = self.c.float().abs()
        distance = torch.log1p(c * relative_positions(positions).clamp(min=0)) / torch.log1p(c * longest)[:, None]
        with without_autocast(positions):
            inner = F.linear(distance[..., None], self.inner.weight.float(), self.inner.bias.float()).relu()
            # The output's bias cancels in the softmax; FIRE has one, so it is kept.
            return F.linear(inner, self.outer.weight.float(), self.outer.bias.float()).permute(2, 0, 1)
