from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from posenc.training.validation import validate

TRAINER: Any = SimpleNamespace(
    strategy=SimpleNamespace(reduce=lambda moments, **_: moments),
    precision_plugin=SimpleNamespace(forward_context=nullcontext),
)


def module(*batches: tuple[float, float]) -> Any:
    """A module whose batches have these losses and shares of all targets."""
    return SimpleNamespace(
        device=torch.device("cpu"),
        validation_batches=lambda: [(torch.tensor(loss), None, share) for loss, share in batches],
        validation_loss=lambda loss, _, share: loss * share,
    )


@pytest.mark.parametrize("near", [0.0, 1.5, 4.0])
def test_batches_count_by_their_share_of_the_targets_and_padding_not_at_all(near):
    measured = validate(TRAINER, module((1, 0.25), (2, 0.75), (9, 0)), near, lambda: False)
    error = (0.25 * 1 + 0.75 * 4 - 1.75**2) ** 0.5
    assert measured == {"val_loss": 1.75, "val_loss_se": pytest.approx(error, rel=1e-5)}


def test_a_single_batch_has_no_standard_error():
    assert validate(TRAINER, module((2, 1)), 2.0, lambda: False) == {"val_loss": 2.0}


def test_a_validation_given_up_between_two_batches_has_no_loss():
    answers = iter([False, True])
    assert validate(TRAINER, module((1, 0.5), (2, 0.5)), 1.0, lambda: next(answers)) is None
