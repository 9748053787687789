"""Schemes that add a bias to the attention logits that depends on the tokens: the hook `content_bias`."""

import math
from collections.abc import Iterable
from typing import Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.bounds import PositiveInt, at_least_one
from posenc.positions.base import EMBEDDING_STD, PositionScheme
from posenc.positions.cumulative import cumulative

Layer = TypeVar("Layer", bound=PositionScheme)


class PerLayer(PositionScheme, Generic[Layer]):
    """A scheme with separate parameters for each layer.

    Args:
        name: of their list in the state dict.
        layers: the scheme of each layer.
    """

    def __init__(self, name: str, layers: Iterable[Layer]) -> None:
        super().__init__()
        self.by_layer = tuple(layers)
        self.add_module(name, nn.ModuleList(self.by_layer))

    def initialise(self, generator: torch.Generator | None = None) -> None:
        for scheme in self.by_layer:
            scheme.initialise(generator)

    def layer(self, index: int) -> Layer:
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
        kept = cumulative(F.logsigmoid(gate.float())).mT
        return kept[..., :, None] - kept[..., None, :]


class Forgetting(PerLayer[ForgetGate]):
    """Forgetting attention (FoX; Lin et al. 2025, section 3): each token sets how much of the past is forgotten.

    bias_ij = sum_{l=j+1..i} log f_l with f_l = sigmoid(w_h . x_l + b_h), where x is the input of a layer's attention.
    With constant f it would be ALiBi. Weights are initialised with std 0.02, b with 0, so f is about 1/2. The additions
    of the paper's "Pro" layer (output gate, QK norm, token shift) are not included. Prefix sums are in float32.

    Args:
        width: D.
        heads: H.
        layers: number of layers, each with its own gate.

    Raises:
        ValueError: if one of them is below 1.
    """

    causal_only = True

    def __init__(self, width: int, heads: int, layers: int) -> None:
        at_least_one(width=width, heads=heads, layers=layers)
        super().__init__("gates", (ForgetGate(width, heads) for _ in range(layers)))


class ContextualTable(PositionScheme):
    """The position embeddings of one layer of `Contextual`: a vector for each count.

    Args:
        head_dim: Dh.
        longest: P, the number of counts with a vector.
    """

    def __init__(self, head_dim: int, longest: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(longest, head_dim))
        self.initialise()

    def initialise(self, generator: torch.Generator | None = None) -> None:  # noqa: ARG002
        nn.init.zeros_(self.table)

    def content_bias(self, x: Tensor, q: Tensor, k: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """q_i . e[p_ij], interpolated between the integers around p_ij: (B, H, T, T), float32."""
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        logits = (q @ k.mT).float() / math.sqrt(q.shape[-1])
        gates = logits.sigmoid().tril()
        count = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.table) - 1)
        of_counts = (q @ self.table.to(q.dtype).mT).float()
        below, share = count.floor().long(), count.frac()
        above = (below + 1).clamp(max=len(self.table) - 1)
        return of_counts.gather(-1, below) * (1 - share) + of_counts.gather(-1, above) * share


class Contextual(PerLayer[ContextualTable]):
    """Contextual position encoding (CoPE; Golovneva et al. 2024): distances count the tokens that matter to the query.

    The key at j is at distance p_ij = sum_{l=j..i} sigmoid(q_i . k_l / sqrt(Dh)), and q_i . e[p_ij] is added to its
    logit, undivided by sqrt(Dh); the authors' released code divides it too by default. The vectors e are initialised to
    0; each layer has its own, shared by its heads.

    Args:
        head_dim: Dh.
        layers: number of layers, each with its own table.
        longest: P; distances are clamped to P - 1.

    Raises:
        ValueError: if one of them is below 1.
    """

    causal_only = True

    def __init__(self, head_dim: PositiveInt, layers: PositiveInt, longest: PositiveInt = 64) -> None:
        at_least_one(head_dim=head_dim, layers=layers, longest=longest)
        super().__init__("tables", (ContextualTable(head_dim, longest) for _ in range(layers)))
