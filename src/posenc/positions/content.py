"""Schemes that add to the attention logits what the tokens say: the door `content_bias`."""

import math
from collections.abc import Iterable
from typing import Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.bounds import PositiveInt
from posenc.positions.base import EMBEDDING_STD, PositionScheme

OfLayer = TypeVar("OfLayer", bound=PositionScheme)


class PerLayer(PositionScheme, Generic[OfLayer]):
    """A scheme whose layers each have parameters of their own.

    Args:
        name: what the state dict calls their list.
        layers: what stands in each, from the first.
    """

    def __init__(self, name: str, layers: Iterable[OfLayer]) -> None:
        super().__init__()
        self.by_layer = tuple(layers)
        self.add_module(name, nn.ModuleList(self.by_layer))

    def initialise(self, generator: torch.Generator | None = None) -> None:
        for scheme in self.by_layer:
            scheme.initialise(generator)

    def layer(self, index: int) -> OfLayer:
        return self.by_layer[index]


class ForgetGate(PositionScheme):
    """The gate of one layer of `Forgetting`: f_t = sigmoid(w_h . x_t + b_h) for head h.

    Args:
        width: D.
        heads: H.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.empty(heads, width)), nn.Parameter(torch.empty(heads))
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:
        nn.init.normal_(self.weight, std=EMBEDDING_STD, generator=generator)
        nn.init.zeros_(self.shift)

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """sum_{l=j+1..i} log f_l, as the difference of two prefix sums: (B, H, T, T), float32."""
        gate = F.linear(x, self.weight.to(x.dtype), self.shift.to(x.dtype))
        kept = F.logsigmoid(gate.float()).cumsum(1).mT
        return kept[..., :, None] - kept[..., None, :]


class Forgetting(PerLayer[ForgetGate]):
    """Forgetting attention (FoX; Lin et al. 2025, section 3): each token says how much of the past is forgotten.

    bias_ij = sum_{l=j+1..i} log f_l with f_l = sigmoid(w_h . x_l + b_h), where x is the input of a layer's attention.
    Were f constant, it would be ALiBi. Weights start at std 0.02, b at 0: f is about 1/2. What the paper's "Pro" layer
    adds (output gate, norms of q and k, token shift) is not part of this. Prefix sums are taken in float32.

    Args:
        width: D.
        heads: H.
        layers: a gate each.

    Raises:
        ValueError: if one of them is below 1.
    """

    causal_only = True

    def __init__(self, width: int, heads: int, layers: int) -> None:
        for name, value in (("width", width), ("heads", heads), ("layers", layers)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        super().__init__("gates", (ForgetGate(width, heads) for _ in range(layers)))


class ContextualTable(PositionScheme):
    """The positions of one layer of `Contextual`: a vector for each count.

    Args:
        head_dim: Dh.
        longest: P, counts with a vector.
    """

    def __init__(self, head_dim: int, longest: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(longest, head_dim))
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:  # noqa: ARG002
        nn.init.zeros_(self.table)

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """q_i . e[p_ij], interpolated between the counts on both sides of p_ij: (B, H, T, T), float32."""
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        logits = (q @ k.mT).float() / math.sqrt(q.shape[-1])
        gates = logits.sigmoid().tril()
        count = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.table) - 1)
        of_counts = (q @ self.table.to(q.dtype).mT).float()
        below, share = count.floor().long(), count.frac()
        above = (below + 1).clamp(max=len(self.table) - 1)
        return of_counts.gather(-1, below) * (1 - share) + of_counts.gather(-1, above) * share


class Contextual(PerLayer[ContextualTable]):
    """Contextual position encoding (CoPE; Golovneva et al. 2024): a token counts the tokens that matter to it.

    The key at j is p_ij = sum_{l=j..i} sigmoid(q_i . k_l / sqrt(Dh)) away, and its logit grows by q_i . e[p_ij]. The
    vectors e start at 0, each layer has its own, and all its heads share them.

    Args:
        head_dim: Dh.
        layers: a table each.
        longest: P: what is counted farther is at P - 1.
    """

    causal_only = True

    def __init__(self, head_dim: PositiveInt, layers: PositiveInt, longest: PositiveInt = 64) -> None:
        super().__init__("tables", (ContextualTable(head_dim, longest) for _ in range(layers)))
