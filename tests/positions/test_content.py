"""Forgetting attention is the formula of its paper, through every path that attention takes."""

import pytest
import torch
from torch import Tensor

from posenc.interventions import OffsetBias
from posenc.model import Linear, Transformer
from posenc.model.attention import Attention, PositionContext
from posenc.positions import Contextual, Forgetting, Polar, TrainedFrequencies

WIDTH, HEADS, LENGTH = 16, 2, 9
POSITIONS = torch.arange(LENGTH)


def gate_and_input() -> tuple[Forgetting, Tensor]:
    scheme = Forgetting(WIDTH, HEADS, layers=2)
    scheme.initialise(torch.Generator().manual_seed(0))
    for gate in map(scheme.layer, range(2)):
        gate.weight.data.mul_(20)
        gate.shift.data.copy_(torch.tensor([0.5, -1.0]))
    return scheme, torch.randn(3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))


def formula(weight: Tensor, shift: Tensor, x: Tensor) -> Tensor:
    """sum_{l=j+1..i} log sigmoid(w_h . x_l + b_h) for j <= i, term by term, in float64; -inf for the future."""
    bias = torch.full((len(x), HEADS, LENGTH, LENGTH), -torch.inf, dtype=torch.float64)
    for b, h in ((b, h) for b in range(len(x)) for h in range(HEADS)):
        logs = [torch.sigmoid(weight[h].double() @ token.double() + shift[h].double()).log() for token in x[b]]
        for i in range(LENGTH):
            for j in range(i + 1):
                bias[b, h, i, j] = sum(logs[j + 1 : i + 1], torch.zeros((), dtype=torch.float64))
    return bias


@torch.no_grad()
def test_the_bias_is_the_sum_of_the_logarithms_of_the_gates_between_key_and_query():
    scheme, x = gate_and_input()
    gate, q = scheme.layer(1), torch.zeros(3, HEADS, LENGTH, WIDTH // HEADS)
    seen = gate.content_bias(x, q, q, POSITIONS).masked_fill(torch.ones(LENGTH, LENGTH).triu(1) > 0, -torch.inf)
    torch.testing.assert_close(seen.double(), formula(gate.weight, gate.shift, x), rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # torch's own kernel, and plain products
@pytest.mark.parametrize("kv_heads", [1, HEADS])
def test_attention_is_softmax_of_the_logits_with_that_bias(dtype, kv_heads):
    scheme, x = gate_and_input()
    attention = Attention(WIDTH, HEADS, causal=True, num_kv_heads=kv_heads)
    context = PositionContext(scheme.layer(0), POSITIONS, None)
    q, k, v = (
        part.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2).double().expand(-1, HEADS, -1, -1)
        for part in attention.qkv(x).split(attention.qkv_sizes, -1)
    )
    gate = scheme.layer(0)
    probs = (q @ k.mT * (WIDTH // HEADS) ** -0.5 + formula(gate.weight, gate.shift, x)).softmax(-1)
    expected = (probs @ v).transpose(1, 2).flatten(-2) @ attention.out.weight.double().mT
    atol = 1e-5 if dtype == torch.float32 else 0.03
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        torch.testing.assert_close(attention(x, context).double(), expected, rtol=0, atol=atol)
        torch.testing.assert_close(attention.attention_probs(x, context).double(), probs, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda scheme: Transformer(50, LENGTH, 2, WIDTH, HEADS, scheme, attention=Linear(8)),
            "use attention=softmax",
        ),
        (lambda scheme: Transformer(50, LENGTH, 2, WIDTH, HEADS, scheme, causal=False), "use objective=causal"),
        (lambda _: Forgetting(WIDTH, HEADS, layers=0), "layers=0 must be at least 1"),
        (lambda _: Contextual(4, layers=1, longest=0), "longest=0 must be at least 1"),
    ],
)
def test_where_it_has_no_meaning_it_is_refused_in_a_sentence(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(Forgetting(WIDTH, HEADS, layers=2))


@torch.no_grad()
def test_a_scheme_may_wrap_another_know_its_layer_and_the_step_compiled_or_not():
    def built(scheme: Forgetting | OffsetBias) -> Transformer:
        return Transformer(50, LENGTH, 2, WIDTH, HEADS, scheme, seed=3)

    plain, wrapped = (
        built(gate_and_input()[0]),
        built(OffsetBias(gate_and_input()[0], HEADS, [1], 6.0, in_layers=[1], stop=10)),
    )
    wrapped.scheme.scheme.load_state_dict(plain.scheme.state_dict())  # type: ignore[union-attr]
    tokens = torch.randint(50, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    torch.compiler.reset()
    compiled = torch.compile(wrapped, fullgraph=True, backend="eager")
    for step, on in ((0, True), (10, False)):
        wrapped.scheme.at_step(step)
        probs = [*wrapped.attention_probs(tokens)], [*plain.attention_probs(tokens)]
        assert torch.equal(probs[0][0], probs[1][0])
        assert torch.equal(probs[0][1], probs[1][1]) == (not on)
        assert torch.allclose(compiled(tokens), wrapped(tokens), atol=1e-5)


@torch.no_grad()
def test_the_gates_of_a_long_text_in_bfloat16_are_added_up_in_float32():
    x, q = torch.zeros(1, 1000, WIDTH, dtype=torch.bfloat16), torch.zeros(1, HEADS, 1000, WIDTH // HEADS)
    bias = Forgetting(WIDTH, HEADS, 1).layer(0).content_bias(x, q, q, torch.arange(1000))
    torch.testing.assert_close(bias.diagonal(-1, 2, 3), torch.full((1, HEADS, 999), 0.5).log(), rtol=0, atol=1e-3)


def test_a_gate_starts_by_keeping_a_half():
    gate, q = Forgetting(WIDTH, HEADS, 1).layer(0), torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS)
    bias = gate.content_bias(torch.zeros(1, LENGTH, WIDTH), q, q, POSITIONS)
    torch.testing.assert_close(bias[0, 0], (POSITIONS[:, None] - POSITIONS) * torch.tensor(0.5).log())


def test_the_gates_of_cope_are_trained_through_its_counts():
    table, k = Contextual(8, 1).layer(0), torch.randn(1, 1, 5, 8, requires_grad=True)
    table.table.data.normal_()
    table.content_bias(k, k.detach(), k, torch.arange(5)).sum().backward()
    assert k.grad is not None
    assert k.grad.abs().max() > 0


@pytest.mark.parametrize("scheme", [Contextual(8, 1), Polar(2, 8), TrainedFrequencies(8)])
def test_what_the_papers_start_at_zero_does(scheme):
    for weight in scheme.parameters():
        weight.data.fill_(1)
    scheme.initialise(torch.Generator())
    assert not any(weight.any() for weight in scheme.parameters())


def test_the_gates_of_fox_start_with_a_standard_deviation_of_0_02():
    assert Forgetting(1000, 4, 1).layer(0).weight.std().item() == pytest.approx(0.02, rel=0.05)


@torch.no_grad()
def test_the_counts_of_a_long_text_in_bfloat16_are_added_up_in_float32():
    table, q = Contextual(8, 1).layer(0), torch.ones(1, 1, 120, 8, dtype=torch.bfloat16)
    table.table.data[:, 0] = torch.arange(64)  # so that q.e is the count
    counts = table.content_bias(q, q, q / -4, torch.arange(120)).diagonal(-100, 2, 3)
    gate = torch.tensor(-2 / 8**0.5).sigmoid()
    torch.testing.assert_close(counts, (101 * gate).expand_as(counts), rtol=0, atol=1e-3)
