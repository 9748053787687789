"""The chunked cross-entropy of large vocabularies, against torch's own over whole logits."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from posenc.model import Transformer
from posenc.model.cross_entropy import CHUNK, LARGE_VOCAB, summed_cross_entropy
from posenc.objectives.objective import IGNORE_INDEX, loss, loss_of
from posenc.positions import Rotary
from tests.model.dispatched import Dispatched

SUMMED = 1e-5
"""Of float32 sums of positive terms in another order: 2^-24 for each of 48 rows, and as much for 8,192 exponentials."""


def example(rows: int, vocab: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 8, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(vocab, 8, generator=generator, dtype=dtype).requires_grad_()
    targets = torch.randint(vocab, (rows,), generator=generator)
    return x, weight, targets.masked_fill(torch.arange(rows) % 7 == 3, IGNORE_INDEX)


@pytest.mark.parametrize("rows", [1, CHUNK, CHUNK + 1, 2 * CHUNK + 100])
def test_values_and_gradients_are_those_of_whole_logits(rows):
    x, weight, targets = example(rows, 11)
    ours = summed_cross_entropy(x, weight, targets, IGNORE_INDEX)
    theirs = F.cross_entropy(x @ weight.T, targets, ignore_index=IGNORE_INDEX, reduction="sum")
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)  # it is summed in float32
    for one, other in zip(
        torch.autograd.grad(3 * ours, (x, weight)), torch.autograd.grad(3 * theirs, (x, weight)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_logits_are_made_in_multiples_of_64_and_the_rest_is_neither_in_the_loss_nor_in_a_gradient():
    made = {}
    for vocab in (65, 128, 129):
        x, weight, targets = example(20, vocab)
        with FlopCounterMode(display=False) as counter:
            summed = summed_cross_entropy(x, weight, targets, IGNORE_INDEX)
        made[vocab] = counter.get_total_flops()
        theirs = F.cross_entropy(x @ weight.T, targets, ignore_index=IGNORE_INDEX, reduction="sum")
        assert summed.item() == pytest.approx(theirs.item(), rel=1e-6)
        assert torch.autograd.grad(summed, weight)[0].shape == weight.shape
    assert made[65] == made[128] < made[129]


def test_a_row_that_does_not_count_gets_no_gradient():
    x, weight, targets = example(20, 11)
    (gradient,) = torch.autograd.grad(summed_cross_entropy(x, weight, targets, IGNORE_INDEX), x)
    assert (gradient[targets == IGNORE_INDEX] == 0).all()
    assert (gradient[targets != IGNORE_INDEX] != 0).any(dim=1).all()


def large_model() -> tuple[Transformer, torch.Tensor, torch.Tensor]:
    tokens = torch.randint(LARGE_VOCAB, (3, 17), generator=torch.Generator().manual_seed(1))
    return Transformer(LARGE_VOCAB, 16, 1, 16, 2, Rotary(8)), tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("reduced", [False, True])
def test_a_model_with_a_large_vocabulary_learns_the_same(reduced):
    model, inputs, targets = large_model()
    weights = list(model.parameters())
    with torch.autocast("cpu", torch.bfloat16, enabled=reduced):
        chunked, whole = loss_of(model, inputs, targets), loss(model(inputs), targets)
    assert chunked.item() == pytest.approx(whole.item(), rel=1e-3 if reduced else SUMMED)
    for one, other in zip(torch.autograd.grad(chunked, weights), torch.autograd.grad(whole, weights), strict=True):
        assert (one - other).norm() <= (0.02 if reduced else 1e-5) * other.norm()


def test_its_logits_are_never_whole(monkeypatch):
    monkeypatch.setattr("posenc.model.cross_entropy.CHUNK", 16)
    model, inputs, targets = large_model()
    with Dispatched() as seen:
        loss_of(model, inputs, targets).backward()
    assert seen.largest < inputs.numel() * LARGE_VOCAB


def test_no_logits_are_kept_for_the_backward_pass():
    model, inputs, targets = large_model()
    kept = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(model, inputs, targets)
    assert max(kept) <= model.output.weight.numel()


def test_a_validation_makes_no_gradient():
    model, inputs, targets = large_model()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        loss_of(model, inputs, targets)
    with FlopCounterMode(display=False) as plain, torch.no_grad():
        model(inputs)
    assert counter.get_total_flops() == plain.get_total_flops()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler does it
def test_it_compiles_to_one_graph_with_the_same_loss():
    model, inputs, targets = large_model()
    torch.compiler.reset()
    compiled = torch.compile(lambda *batch: loss_of(model, *batch), fullgraph=True, backend="aot_eager")
    value, reference = compiled(inputs, targets), loss_of(model, inputs, targets)
    assert value.item() == pytest.approx(reference.item(), rel=SUMMED)
    weights = list(model.parameters())
    for one, other in zip(torch.autograd.grad(value, weights), torch.autograd.grad(reference, weights), strict=True):
        torch.testing.assert_close(one, other, rtol=SUMMED, atol=SUMMED)


def test_the_loss_of_logits_in_bfloat16_is_in_float32():
    x, weight, targets = (part.detach() for part in example(20, 11, torch.bfloat16))
    summed = summed_cross_entropy(0 * x, weight, targets, IGNORE_INDEX)
    assert summed.item() == pytest.approx((targets != IGNORE_INDEX).sum().item() * math.log(11), rel=1e-6)


def test_the_gradient_of_the_weights_is_added_up_in_float32(monkeypatch):
    monkeypatch.setattr("posenc.model.cross_entropy.CHUNK", 8)
    x, weight, targets = example(4096, 11)
    truth, ours = (
        torch.autograd.grad(summed_cross_entropy(x.to(dtype), weight.float(), targets, IGNORE_INDEX), weight)[0]
        for dtype in (torch.float64, torch.bfloat16)
    )
    assert (ours - truth).norm() < 0.005 * truth.norm()


def test_under_autocast_the_products_are_in_its_dtype():
    x, weight, targets = example(20, 11, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        summed = summed_cross_entropy(x, weight, targets, IGNORE_INDEX)
    (gradient,) = torch.autograd.grad(summed, x)
    assert torch.equal(gradient, gradient.bfloat16().float())
