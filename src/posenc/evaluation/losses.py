"""The loss of a trained model on windows of text, token by token."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.data.batches import validation_windows
from posenc.data.tokens import Tokens
from posenc.evaluation.load import Trained

TOKENS_PER_BATCH = 8_192
"""Tokens per forward pass, at least one window."""


def own_windows(trained: Trained, tokens: Tokens) -> Tensor:
    """The windows of the run's last validation, (N, T + lookahead)."""
    window = trained.config["context"] + trained.objective.lookahead
    return validation_windows(tokens, trained.config["eval_windows"], window)


def own_validation_loss(trained: Trained, tokens: Tokens) -> float:
    """The loss of a causal model on its run's own validation windows, in nats per token."""
    return float(losses_on(trained, own_windows(trained, tokens)).mean())


def losses_on(trained: Trained, windows: Tensor) -> Tensor:
    """windows (N, T + lookahead) -> nats (N, T), float64, on the CPU. Causal only."""
    return torch.cat([losses for losses, _ in token_losses(trained, windows)])


@torch.no_grad()
def token_losses(trained: Trained, windows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """windows (N, T + lookahead) -> nats (B, T), float64, and targets (B, T) of each batch, on the CPU. Causal only."""
    trained.model.eval()
    device = next(trained.model.parameters()).device
    for batch in windows.split(max(1, TOKENS_PER_BATCH // windows.shape[1])):
        inputs, targets = trained.objective.inputs_and_targets(batch.to(device), batch.new_empty(*batch.shape, 0))
        # Logits have no name, which would keep those of one batch in memory during the next.
        losses = F.cross_entropy(trained.model(inputs).float().flatten(0, 1), targets.flatten(), reduction="none")
        yield losses.view_as(targets).cpu().double(), targets.cpu()
