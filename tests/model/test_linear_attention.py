"""Linear attention: cheap sums against the quadratic form, and features against what they stand for."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from posenc.model import Linear, Transformer
from posenc.model.attention import PositionContext
from posenc.model.linear_attention import EPSILON, KERNELS, Favor, causal_products
from posenc.positions import Learned, PositionScheme, Rotary
from posenc.positions.cumulative import cumulative
from tests.model.dispatched import Dispatched

HEADS, SIZE = 3, 8
kernels = pytest.mark.parametrize("kernel", KERNELS)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def attention(kernel: Any = "favor", features: int = 1, chunk: int = 64) -> Linear:
    built = Linear(SIZE, kernel, features if kernel == "favor" else 1, chunk)
    built.initialise(torch.Generator().manual_seed(0))
    return built


def inputs(length: int, groups: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    return drawn(2, HEADS, length, SIZE), drawn(2, groups, length, SIZE, seed=1), drawn(2, groups, length, SIZE, seed=2)


@given(length=st.integers(1, 70), chunk=st.integers(1, 80), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_the_chunked_causal_products_are_those_of_the_quadratic_form(length, chunk, seed):
    q, k, v = (drawn(2, 2, length, size, seed=seed + size).double() for size in (5, 5, 3))
    assert torch.allclose(causal_products(q, k, v, chunk), (q @ k.mT).tril() @ v, atol=1e-9)
    assert torch.allclose(cumulative(k, chunk), k.cumsum(-2), atol=1e-9)


@kernels
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [1, HEADS])
def test_the_output_is_what_the_weights_say(kernel, causal, groups):
    op, scheme, positions = attention(kernel, features=2, chunk=4), Rotary(SIZE), torch.arange(19)
    q, k, v = inputs(19, groups)
    out = op(q, k, v, PositionContext(scheme, positions, None), causal)
    weights = op.weights(q, k, PositionContext(scheme, positions, None), causal)
    assert torch.allclose(out, weights @ v.expand(-1, HEADS, -1, -1), atol=1e-5)


@kernels
def test_rotation_turns_the_numerator_and_leaves_the_denominator_as_it_was(kernel):
    """Equation 19 by hand, in float64, a pair of tokens at a time."""
    op, positions = attention(kernel), torch.tensor([0, 3, 4, 11, 40])
    q, k, v = inputs(5)
    features_q, features_k = op.features(q, True).double(), op.features(k, False).double()
    theta = 10_000.0 ** (-torch.arange(0, SIZE, 2, dtype=torch.float64) / SIZE)
    expected = torch.zeros(2, HEADS, 5, SIZE, dtype=torch.float64)
    for m in range(5):
        above, below = torch.zeros(2, HEADS, SIZE, dtype=torch.float64), torch.zeros(2, HEADS, dtype=torch.float64)
        for n in range(m + 1):
            angle = (positions[m] - positions[n]) * theta
            half = SIZE // 2
            a = torch.complex(features_q[:, :, m, :half], features_q[:, :, m, half:])
            b = torch.complex(features_k[:, :, n, :half], features_k[:, :, n, half:])
            turned = (a * b.conj() * torch.polar(torch.ones_like(angle), angle)).sum(-1).real
            above += turned[..., None] * v[:, :, n]
            below += (features_q[:, :, m] * features_k[:, :, n]).sum(-1)
        expected[:, :, m] = above / below[..., None]
    out = op(q, k, v, PositionContext(Rotary(SIZE), positions, None), True)
    assert torch.allclose(out.double(), expected, atol=1e-5)


def test_random_features_have_the_softmax_kernel_as_their_mean():
    q, k = 0.5 * drawn(1, 1, 6, SIZE), 0.5 * drawn(1, 1, 6, SIZE, seed=1)
    exact = (q @ k.mT / SIZE**0.5).softmax(-1)

    def error(multiple: int) -> float:
        features = Favor(SIZE, multiple)
        features.initialise(torch.Generator().manual_seed(0))
        estimate = features(q, True) @ features(k, False).mT
        return (estimate / estimate.sum(-1, keepdim=True) - exact).abs().max().item()

    assert (exact - 1 / 6).abs().max() > 0.05  # there is something to tell apart
    assert error(5000) < 0.01
    assert error(5000) < error(4) / 3


def test_directions_are_orthogonal_in_blocks_and_as_long_as_normal_vectors():
    features = Favor(SIZE, 50)
    features.initialise(torch.Generator().manual_seed(0))
    directions = features.directions.unflatten(0, (50, SIZE))
    unit = directions / directions.norm(dim=-1, keepdim=True)
    assert torch.allclose(unit @ unit.mT, torch.eye(SIZE).expand(50, -1, -1), atol=1e-5)
    assert directions.square().sum(-1).mean().item() == pytest.approx(SIZE, rel=0.1)


@kernels
def test_a_token_does_not_see_the_future_however_loud_it_is(kernel):
    op = attention(kernel, chunk=4)
    q, k, v = inputs(10)
    places = PositionContext(Rotary(SIZE), torch.arange(10), None)
    loud_q, loud_k = q.clone(), k.clone()
    loud_q[:, :, 6:] *= 30
    loud_k[:, :, 6:] *= 30
    first, second = op(q, k, v, places, True), op(loud_q, loud_k, v, places, True)
    assert torch.equal(first[:, :, :6], second[:, :, :6])
    assert torch.isfinite(second).all()


@kernels
def test_extreme_inputs_stay_finite_forward_and_backward(kernel):
    op = attention(kernel, features=2)
    q, k, v = (40 * x for x in inputs(12))
    q.requires_grad_()
    op(q, k, v, PositionContext(Rotary(SIZE), torch.arange(12), None), True).sum().backward()
    assert q.grad is not None
    assert torch.isfinite(q.grad).all()


def test_no_tensor_of_length_by_length_is_made():
    """1.3 GB would hold one float32 T x T matrix a head; the peak of what is allocated must stay far below."""

    def largest(length: int) -> int:
        with Dispatched() as seen, torch.no_grad():
            attention()(*inputs(length), PositionContext(Rotary(SIZE), torch.arange(length), None), True)
        return seen.largest

    assert largest(4096) == 4 * largest(1024)  # linear
    assert largest(4096) < 4096 * 4096


@kernels
def test_shifting_all_positions_changes_nothing_with_rotary_positions(kernel):
    op, scheme = attention(kernel, features=3), Rotary(SIZE)
    here = op(*inputs(9), PositionContext(scheme, torch.arange(9), None), True)
    there = op(*inputs(9), PositionContext(scheme, torch.arange(9) + 1000, None), True)
    assert torch.allclose(here, there, atol=1e-4)


def test_bf16_is_left_alone_inside_and_returned_outside():
    q, k, v = (x.bfloat16() for x in inputs(9))
    places = PositionContext(Rotary(SIZE), torch.arange(9), None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention()(q, k, v, places, True)
    exact = attention()(q.float(), k.float(), v.float(), places, True)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, exact.bfloat16())


class Biased(PositionScheme):
    def bias(self, positions: Tensor) -> Tensor:
        return torch.zeros(HEADS, len(positions), len(positions))


def test_a_bias_on_logits_is_refused_because_there_are_none():
    with pytest.raises(ValueError, match="not Biased: use attention=softmax, or another pos or intervention"):
        Transformer(50, 16, 1, HEADS * SIZE, HEADS, Biased(), attention=attention())


def test_elu_has_as_many_features_as_channels():
    with pytest.raises(ValueError, match="features=2 must be 1 with kernel=elu"):
        Linear(SIZE, kernel="elu", features=2)


def test_every_layer_draws_its_own_directions_the_same_for_every_scheme():
    def directions(scheme: PositionScheme, seed: int) -> list[Tensor]:
        model = Transformer(50, 16, 2, HEADS * SIZE, HEADS, scheme, attention=Linear(SIZE), seed=seed)
        return [value for name, value in model.state_dict().items() if "directions" in name]

    first, second = directions(PositionScheme(), 0)
    assert not torch.equal(first, second)
    for scheme in (Rotary(SIZE), Learned(16, HEADS * SIZE)):  # the second draws weights of its own
        assert all(map(torch.equal, directions(scheme, 0), (first, second)))
    assert not torch.equal(directions(PositionScheme(), 1)[0], first)


@kernels
def test_a_model_with_linear_attention_compiles_to_one_graph_and_computes_the_same(kernel):
    torch.compiler.reset()
    model = Transformer(50, 16, 2, HEADS * SIZE, HEADS, Rotary(SIZE), attention=Linear(SIZE, kernel)).eval()
    tokens = torch.randint(50, (2, 16))
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.allclose(model(tokens), compiled(tokens), atol=1e-5)


@kernels
@pytest.mark.parametrize("size", [1.0, 1.5])
def test_turning_the_numerator_does_not_make_outputs_run_away(kernel, size):
    """Without a floor under the features, queries and keys of size 1.5 give outputs of 72 (FAVOR+, 32 channels)."""
    op = Linear(32, kernel)
    op.initialise(torch.Generator().manual_seed(0))
    q, k, v = size * drawn(4, 4, 256, 32), size * drawn(4, 4, 256, 32, seed=1), drawn(4, 4, 256, 32, seed=2)
    out = op(q, k, v, PositionContext(Rotary(32), torch.arange(256), None), True)
    assert out.square().mean().sqrt() < 8


@kernels
def test_attention_probs_of_negative_products_are_nonnegative_and_sum_to_one(kernel):
    (q, k, _), op = inputs(12), attention(kernel)
    places = PositionContext(Rotary(SIZE), torch.arange(12), None)
    weights = op.attention_probs(q, k, places, True)
    assert op.weights(q, k, places, True).min() < 0
    assert weights.min() >= 0
    assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)


@kernels
def test_recomputing_in_the_backward_pass_gives_the_same_gradients_and_stores_less(kernel):
    q, k, v = inputs(20)
    places, gradients = PositionContext(Rotary(SIZE), torch.arange(20), None), []
    stored: list[int] = []

    def store(tensor: torch.Tensor) -> torch.Tensor:
        stored[-1] += tensor.numel()
        return tensor

    for recompute in (False, True):
        op = Linear(SIZE, kernel, recompute=recompute)
        op.initialise(torch.Generator().manual_seed(0))
        leaf = q.clone().requires_grad_()
        stored.append(0)
        with torch.autograd.graph.saved_tensors_hooks(store, lambda tensor: tensor):
            mixed = op(leaf, k, v, places, True)
        mixed.square().sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert stored[1] < stored[0]


@kernels
def test_no_feature_is_below_the_floor(kernel):
    floor = EPSILON * (SIZE**-0.5 if kernel == "favor" else 1)
    seen = attention(kernel).features(-100 * torch.ones(1, 1, 1, SIZE), False).min().item()
    assert seen == pytest.approx(floor, rel=1e-3)


def test_a_key_along_a_direction_of_a_large_head_has_finite_features():
    features = Favor(256, 1)
    features.initialise(torch.Generator().manual_seed(0))
    keys = features.directions[None, None] * 256**0.25  # the log-feature of each is |w|^2 / 2, some 128
    assert features(keys, False).sum(-2).isfinite().all()
