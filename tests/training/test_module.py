"""What a run validates on, and the learning rate that it reports."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posenc.training.module import LanguageModel


def validation_of(rank: int, world: int, predicted: torch.Tensor, batch_size: int) -> list[Any]:
    """The validation batches of one rank; a window's input is its number."""
    windows = torch.arange(len(predicted))[:, None]
    module: Any = SimpleNamespace(
        trainer=SimpleNamespace(world_size=world, global_rank=rank),
        batches=SimpleNamespace(batch_size=batch_size),
        validation_inputs=windows,
        validation_targets=windows,
        predicted=predicted,
    )
    return list(LanguageModel.validation_batches(module))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 5))
def test_each_window_is_validated_once_and_weighs_as_much_as_it_has_targets(predicted, world, per_rank):
    counts = torch.tensor(predicted)
    ranks = [validation_of(rank, world, counts, per_rank * world) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1
    counted = [(inputs[:, 0], share) for batches in ranks for inputs, _, share in batches if share]
    assert torch.cat([windows for windows, _ in counted]).sort().values.tolist() == [*range(len(predicted))]
    for windows, share in counted:
        assert len(windows) <= per_rank
        assert share == pytest.approx(int(counts[windows].sum()) / sum(predicted))


def test_a_validation_is_with_the_scheme_as_it_is_after_all_updates_so_far():
    """An intervention that ends after 7 updates does not act in the validation after them."""
    steps: list[int] = []
    scheme, trainer = SimpleNamespace(at_step=steps.append), SimpleNamespace(global_step=7)
    module: Any = SimpleNamespace(
        model=SimpleNamespace(scheme=scheme), trainer=trainer, loss=lambda inputs, targets: inputs + targets
    )
    assert LanguageModel.validation_loss(module, torch.tensor(3.0), torch.tensor(1.0), 0.25) == 1
    assert steps == [7]
