"""Schemes that add to the attention logits what the tokens say: the door `content_bias`."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.positions.base import EMBEDDING_STD, PositionScheme


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


class Forgetting(PositionScheme):
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
        super().__init__()
        for name, value in (("width", width), ("heads", heads), ("layers", layers)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        self.gates = nn.ModuleList(ForgetGate(width, heads) for _ in range(layers))

    def initialise(self, generator: torch.Generator | None = None) -> None:
        for index in range(len(self.gates)):
            self.layer(index).initialise(generator)

    def layer(self, index: int) -> ForgetGate:
        gate = self.gates[index]
        assert isinstance(gate, ForgetGate)
        return gate
