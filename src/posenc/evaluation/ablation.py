"""Ablation at evaluation: the loss of a trained model when attention at one offset is masked.

It shows what the model uses, whereas the scores of its heads only show what they attend to.
"""

from typing import Any

from posenc.data.cache import Tokens
from posenc.errors import UserError
from posenc.evaluation.load import Trained
from posenc.evaluation.longer_windows import own_validation_loss
from posenc.interventions import OffsetMask

OFFSETS = (1, 2, 3, 17)


def losses_without(trained: Trained, tokens: Tokens) -> dict[int, float]:
    """Nats per token on the run's validation windows: unmodified under key 0, and with each of OFFSETS masked.

    Raises:
        UserError: if the model is not causal, or its attention has no logits to mask.
    """
    model: Any = trained.model
    if not trained.objective.causal or not all(block.attention.op.has_logits for block in model.blocks):
        raise UserError("only causal models with softmax attention can be evaluated with masked offsets")
    scheme, heads = model.scheme, trained.config["model"]["heads"]
    losses = {0: own_validation_loss(trained, tokens)}
    try:
        for offset in OFFSETS:
            model.scheme = OffsetMask(scheme, heads, [offset])
            losses[offset] = own_validation_loss(trained, tokens)
    finally:
        model.scheme = scheme
    return losses
