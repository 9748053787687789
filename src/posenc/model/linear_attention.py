"""Linear attention that can be combined with RoPE."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from posenc.bounds import PositiveInt
from posenc.compat import without_autocast
from posenc.model.attention import PositionContext, repeat_kv
from posenc.positions.cumulative import cumulative

MAX_LOG = 60.0
"""Log-features are clamped to it, so that sums of features stay finite in float32."""

EPSILON = 1e-3
"""Added to every feature, as the Performer's code adds 1e-4 or 1e-3. Without it the denominator could vanish where the
numerator does not: features are rotated in the numerator only, so this would put rotary schemes at a disadvantage."""


class Elu(nn.Module):
    """elu(x) + 1: the simplest positive features (Katharopoulos et al. 2020, equation 7)."""

    def __init__(self, head_dim: int, multiple: int) -> None:  # noqa: ARG002
        super().__init__()
        if multiple != 1:
            raise ValueError(f"features={multiple} must be 1 with kernel=elu, which has as many features as channels")

    def initialise(self, generator: torch.Generator) -> None:
        """There is no random state."""

    def forward(self, x: Tensor, queries: bool) -> Tensor:  # noqa: ARG002
        """x (B, H, T, Dh) -> the same shape, above 0."""
        return F.elu(x) + (1 + EPSILON)


class Favor(nn.Module):
    """FAVOR+ (Choromanski et al. 2021, lemma 1, section 2.4): the mean of phi(q).phi(k) is exp(q.k / sqrt(Dh)).

    phi_i(x) = (exp(w_i.x - |x|^2 / 2) + EPSILON) / sqrt(m) for x = q / Dh^(1/4), with m Gaussian directions w_i,
    orthogonal in blocks of Dh. They are sampled once and saved with the weights; the published code also resamples
    them from time to time.

    Args:
        head_dim: Dh.
        multiple: m / Dh.
    """

    directions: Tensor

    def __init__(self, head_dim: int, multiple: int) -> None:
        super().__init__()
        self.register_buffer("directions", torch.zeros(multiple * head_dim, head_dim))

    def initialise(self, generator: torch.Generator) -> None:
        """Sample directions that are orthogonal in blocks of Dh, with the norms of independent Gaussian vectors."""
        for block in self.directions.split(self.directions.shape[-1]):
            nn.init.orthogonal_(block, generator=generator)
        normal = torch.randn(self.directions.shape, generator=generator)
        self.directions.mul_(normal.norm(dim=-1, keepdim=True))

    def forward(self, x: Tensor, queries: bool) -> Tensor:
        """x (B, H, T, Dh) -> (B, H, T, m), above 0.

        Queries are divided by their largest feature, which cancels between numerator and denominator. Keys are not,
        since their largest feature may be in the future.
        """
        x = x * x.shape[-1] ** -0.25
        log_features = x @ self.directions.mT - x.square().sum(-1, keepdim=True) / 2
        if queries:
            log_features = log_features - log_features.detach().amax(-1, keepdim=True)
        return (log_features.clamp(max=MAX_LOG).exp() + EPSILON) * len(self.directions) ** -0.5


KERNELS: dict[str, type[Elu] | type[Favor]] = {"elu": Elu, "favor": Favor}


class Linear(nn.Module):
    """Linear attention with rotary positions (Su et al. 2021, equation 19).

    out_m = sum_n (R_m phi(q_m)).(R_n phi(k_n)) v_n / sum_n phi(q_m).phi(k_n): the numerator is rotated, the denominator
    is not, so weights may be negative and need not sum to 1. Every Dh features are rotated like the channels of a head.
    Everything is computed in float32; on a CUDA GPU in bf16-mixed, with TF32 matmuls.

    Args:
        head_dim: Dh.
        kernel: the features: favor (Performer) or elu.
        features: number of features as a multiple of Dh; 1 for elu.
        chunk: tokens per chunk: attention is quadratic within a chunk, and only sums pass from one chunk to the next.
        recompute: whether features and sums are recomputed in the backward pass: slower, but a layer stores only
            queries, keys and values.

    Raises:
        ValueError: for features above 1 with kernel=elu.
    """

    has_logits = False

    def __init__(
        self,
        head_dim: int,
        kernel: Literal["favor", "elu"] = "favor",
        features: PositiveInt = 1,
        chunk: PositiveInt = 64,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.chunk, self.recompute = chunk, recompute
        self.features = KERNELS[kernel](head_dim, features)

    def initialise(self, generator: torch.Generator) -> None:
        """Sample the directions of the features."""
        self.features.initialise(generator)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, context: PositionContext, causal: bool) -> Tensor:
        """See `AttentionOp`; there is no bias."""
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._attend, q, k, v, context, causal, use_reentrant=False)
        return self._attend(q, k, v, context, causal)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, context: PositionContext, causal: bool) -> Tensor:
        with without_autocast(q):
            q, k, rotated_q, rotated_k = self._features(q, k, context)
            values = repeat_kv(v, q).float()
            if causal:
                numerator = causal_products(rotated_q, rotated_k, values, self.chunk)
                key_sums = cumulative(k, self.chunk)
            else:
                numerator, key_sums = rotated_q @ (rotated_k.mT @ values), k.sum(-2, keepdim=True)
            return (numerator / (q * key_sums).sum(-1, keepdim=True)).to(v.dtype)

    def attention_probs(self, q: Tensor, k: Tensor, context: PositionContext, causal: bool) -> Tensor:
        """Absolute weights, normalised by row: rotated weights may be negative, and need not sum to 1."""
        magnitudes = self.weights(q, k, context, causal).abs()
        return magnitudes / magnitudes.sum(-1, keepdim=True)

    def weights(self, q: Tensor, k: Tensor, context: PositionContext, causal: bool) -> Tensor:
        """The attention weights in quadratic form, (B, H, T, T)."""
        with without_autocast(q):
            q, k, rotated_q, rotated_k = self._features(q, k, context)
            numerator, denominator = rotated_q @ rotated_k.mT, q @ k.mT
            if causal:
                numerator, denominator = numerator.tril(), denominator.tril()
            return numerator / denominator.sum(-1, keepdim=True)

    def _features(self, q: Tensor, k: Tensor, context: PositionContext) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q (B, H, T, Dh), k (B, G, T, Dh) -> features of q and k, then these rotated, each (B, H, T, m) float32."""
        size, heads = q.shape[-1], q.shape[1]
        q, k = self.features(q.float(), queries=True), self.features(repeat_kv(k, q).float(), queries=False)
        pieces = [x.unflatten(-1, (-1, size)).transpose(2, 3).flatten(1, 2) for x in (q, k)]
        rotated = context.scheme.rotate(pieces[0], pieces[1], context.positions)
        rotated_q, rotated_k = (x.unflatten(1, (heads, -1)).transpose(2, 3).flatten(-2) for x in rotated)
        return q, k, rotated_q, rotated_k


def causal_products(q: Tensor, k: Tensor, v: Tensor, chunk: int) -> Tensor:
    """sum_{n <= m} (q_m.k_n) v_n, q and k (B, H, T, m), v (B, H, T, Dh) -> (B, H, T, Dh), without a T x T matrix."""
    length = q.shape[-2]
    chunk = min(chunk, length)
    padding = (0, 0, 0, -length % chunk)
    q, k, v = (F.pad(x, padding).unflatten(-2, (-1, chunk)) for x in (q, k, v))
    states = (k.mT @ v).cumsum(2)
    before = F.pad(states, (0, 0, 0, 0, 1, -1))
    return (q @ before + (q @ k.mT).tril() @ v).flatten(2, 3)[:, :, :length]
