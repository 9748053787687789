"""What is predicted from a window of text, and the loss of the prediction."""

import torch.nn.functional as F
from torch import Tensor


class Causal:
    """Predict every token from those before it (GPT).

    Attributes:
        causal: the attention this objective needs.
        lookahead: tokens that a window holds beyond the context length.
    """

    causal = True
    lookahead = 1

    def inputs_and_targets(self, window: Tensor) -> tuple[Tensor, Tensor]:
        """window (B, T+1) -> what the model reads (B, T), what it must predict (B, T)."""
        return window[:, :-1], window[:, 1:]

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """logits (B, T, V), targets (B, T) -> mean nats per predicted token, float32, shape ()."""
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
