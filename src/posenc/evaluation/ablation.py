"""Ablation at evaluation: what a trained model loses when attention at one offset is forbidden.

It shows what the model uses, where a score of its heads shows what is there.
"""

from posenc.data.cache import Tokens
from posenc.evaluation.load import Trained
from posenc.evaluation.longer_windows import own_validation_loss
from posenc.interventions import OffsetMask

OFFSETS = (1, 2, 3, 17)


def losses_without(trained: Trained, tokens: Tokens) -> dict[int, float]:
    """Nats per token on the run's validation windows: by 0 as it is, by each of OFFSETS with that one masked.

    Args:
        trained: with attention that has logits to mask.
        tokens: the validation split.
    """
    model = trained.model
    scheme, heads = model.scheme, trained.config["model"]["heads"]
    losses = {0: own_validation_loss(trained, tokens)}
    try:
        for offset in OFFSETS:
            model.scheme = OffsetMask(scheme, heads, [offset])
            losses[offset] = own_validation_loss(trained, tokens)
    finally:
        model.scheme = scheme
    return losses
