"""A model of random weights, as a finished run has it."""

import torch

from posenc.data.tokenizers import Bytes
from posenc.evaluation.load import Trained
from posenc.model import Transformer
from posenc.objectives.objective import Causal
from posenc.positions import PositionScheme

HEADS, CONTEXT = 2, 16


def trained(scheme: PositionScheme, tokenizer: Bytes | None = None) -> Trained:
    """Its weights are large enough to make losses differ."""
    model = Transformer(256, CONTEXT, layers=1, width=16, heads=HEADS, scheme=scheme)
    for weight in model.parameters():
        weight.data *= 20 if weight.ndim == 2 else 1
    config = {"context": CONTEXT, "eval_windows": 10, "model": {"heads": HEADS}}
    return Trained(model, Causal(256), tokenizer or Bytes(), config)


class ByPosition(torch.nn.Linear):
    """Has a loss of (t + 1) / tokens_per_nat nats at position t, on a text of zeros."""

    scheme = PositionScheme()

    def __init__(self, tokens_per_nat: int) -> None:
        super().__init__(1, 1)
        self.tokens_per_nat = tokens_per_nat

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(B, T) -> logits (B, T, 256)."""
        zero = torch.exp(-torch.arange(1, tokens.shape[1] + 1) / self.tokens_per_nat)
        probs = ((1 - zero) / 255)[:, None].repeat(1, 256)
        probs[:, 0] = zero
        return probs.log().expand(len(tokens), -1, -1)
