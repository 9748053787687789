"""The model: what a scheme may change, and what it may not."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.interventions import Smear
from posenc.model import Transformer
from posenc.model.block import Family
from posenc.positions import Learned, PositionScheme, Sinusoidal
from tests.positions.every import ABSOLUTE, schemes

CONTEXT, WIDTH, HEADS, VOCAB = 24, 32, 2, 50
SCHEMES = schemes(HEADS, WIDTH // HEADS, CONTEXT, layers=2)
OWN_PARAMETERS = {
    "learned": CONTEXT * WIDTH,
    "learned, scale learned": CONTEXT * WIDTH + 1,
    "sinusoidal, scale learned": 1,
    "rope_trained": WIDTH // HEADS // 2,
    "pope": WIDTH,
    "t5": 32 * HEADS,
    "t5 bidirectional": 32 * HEADS,
    "kerple": 2 * HEADS,
    "fire": 33 * HEADS + 66,
    "fox": 2 * HEADS * (WIDTH + 1),
    "cope": 2 * 64 * WIDTH // HEADS,
}
GRAPHS = (
    "learned", "sinusoidal", "rope", "rope_trained", "xpos", "pope", "alibi", "t5", "fire", "nope_hybrid", "fox", "cope"
)  # fmt: skip
"""A scheme for each kind of graph that the compiler sees."""
every_scheme = pytest.mark.parametrize("name", SCHEMES)
every_graph = pytest.mark.parametrize("name", GRAPHS)


def model(name: str, layers: int = 2, seed: int = 0, causal: bool = True) -> Transformer:
    built = Transformer(VOCAB, CONTEXT, layers, WIDTH, HEADS, SCHEMES[name](), causal=causal, seed=seed)
    block: Any
    for block in built.blocks:  # larger weights, so that attention is far from uniform
        block.attention.qkv.weight.data.mul_(20)
    for weight in built.scheme.parameters():
        if not weight.any():  # as it begins, it would hide what the scheme does
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(0))
    return built.eval()


def tokens(length: int = 10, seed: int = 1) -> Tensor:
    return torch.randint(VOCAB, (1, length), generator=torch.Generator().manual_seed(seed))


@every_scheme
@pytest.mark.parametrize("seed", [0, 7])
def test_weights_outside_the_scheme_are_bit_equal_for_one_seed(name, seed):
    torch.manual_seed(len(name))  # the state of the global generator must not matter
    weights = {key: value for key, value in model(name, seed=seed).state_dict().items() if "scheme" not in key}
    torch.manual_seed(99)
    reference = model("none", seed=seed).state_dict()
    assert weights.keys() == reference.keys()
    assert all(torch.equal(weights[key], reference[key]) for key in weights)


@pytest.mark.parametrize("layers", [1, 3, 8])
def test_initial_weights_have_gpt_2_s_standard_deviations(layers):
    """0.02 everywhere, but 0.02 / sqrt(2 layers) in the two projections of each layer into the residual stream."""
    built = Transformer(VOCAB, CONTEXT, layers, 64, 2, PositionScheme())
    for name, weight in built.named_parameters():
        if weight.ndim == 2:
            small = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
            expected = 0.02 / (2 * layers) ** 0.5 if small else 0.02
            assert weight.std().item() == pytest.approx(expected, rel=5 / (2 * weight.numel()) ** 0.5), name
        else:
            assert torch.equal(weight, torch.ones_like(weight)), name


def test_another_seed_gives_other_weights():
    assert not torch.equal(model("none", seed=0).embedding.weight, model("none", seed=1).embedding.weight)


@every_scheme
def test_parameters_differ_by_the_scheme_s_own_only(name):
    count = {key: sum(p.numel() for p in model(key).parameters()) for key in (name, "none")}
    assert count[name] - count["none"] == OWN_PARAMETERS.get(name, 0)


@every_scheme
def test_shifting_all_positions_changes_the_logits_of_absolute_schemes_only(name):
    here = model(name)(tokens(), torch.arange(10))
    there = model(name)(tokens(), torch.arange(10) + 14)
    assert torch.allclose(here, there, atol=1e-4) == (name not in ABSOLUTE)


@every_scheme
def test_in_one_layer_the_order_of_the_prefix_matters_to_all_but_none(name):
    shuffled = tokens()
    shuffled[0, :9] = shuffled[0, torch.tensor([4, 2, 0, 8, 1, 7, 3, 6, 5])]
    last, last_shuffled = (model(name, layers=1)(ids)[0, -1] for ids in (tokens(), shuffled))
    assert torch.allclose(last, last_shuffled, atol=1e-4) == (name == "none")


@every_scheme
def test_a_causal_model_does_not_see_the_future(name):
    changed = tokens()
    changed[0, 6:] = 0
    assert torch.equal(model(name)(tokens())[0, :6], model(name)(changed)[0, :6])
    if not SCHEMES[name]().causal_only:
        encoder = model(name, causal=False)
        assert not torch.allclose(encoder(tokens())[0, :6], encoder(changed)[0, :6])


@every_scheme
@pytest.mark.parametrize("positions", [torch.tensor([7]), torch.arange(10)[None]])
def test_positions_that_a_bias_would_broadcast_are_refused(name, positions):
    with pytest.raises(ValueError, match=r"^positions must be \(10,\), the same for the whole batch, not \(1"):
        model(name)(tokens(), positions)


def test_a_scheme_without_meaning_where_the_future_is_seen_is_refused_there():
    with pytest.raises(ValueError, match="Xpos needs a causal model"):
        model("xpos", causal=False)


@pytest.mark.parametrize(
    ("hook", "returned", "sentence"),
    [
        ("encoding", lambda _, positions: torch.zeros(len(positions), 3), r"encoding returns shape \(2, 3\), not"),
        ("embed", lambda _, x, __: x.mean(0), r"embed returns shape \(2, \d+\), not"),
        ("bias", lambda _, positions: torch.zeros(len(positions), len(positions)), r"bias returns shape \(2, 2\), not"),
        ("content_bias", lambda _, x, *__: x, r"content_bias returns shape \(1, 2, .*\), not"),
        ("rotate", lambda _, q, k, __: (q, k.mean(1)), r"rotate returns shape \(1, 2, 1\), not"),
    ],
)
def test_a_hook_that_returns_another_shape_is_named(hook, returned, sentence):
    mine = type("Mine", (PositionScheme,), {hook: returned})
    with pytest.raises(ValueError, match=f"Mine.{sentence}"):
        Transformer(50, 12, 1, WIDTH, HEADS, mine())


def test_a_wrong_hook_of_a_wrapped_scheme_is_named_with_its_layer():
    mine = type("Mine", (PositionScheme,), {"bias": lambda _, positions: torch.zeros(len(positions), len(positions))})
    with pytest.raises(ValueError, match=r"layer 0 of Smear: bias returns shape \(2, 2\), not"):
        Transformer(50, 12, 1, WIDTH, HEADS, Smear(mine()))


def test_keys_have_fewer_heads_than_queries_with_grouped_query_attention():
    mine = type("Mine", (PositionScheme,), {"rotate": lambda _, q, *__: (q, q)})
    with pytest.raises(ValueError, match=rf"Mine.rotate returns shape \(1, {HEADS}, 2, 1\), not \(1, 1, 2, 1\)"):
        Transformer(50, 12, 1, WIDTH, HEADS, mine(), Family(queries_per_key="all"))


class Distance(PositionScheme):
    """A bias that forbids all but the previous token: a scheme at the third hook."""

    def bias(self, positions: Tensor) -> Tensor:
        offset = positions[:, None] - positions[None, :]
        return torch.where(offset.abs() <= 1, 0.0, -torch.inf).expand(HEADS, -1, -1)


def test_the_attention_probabilities_of_a_layer_depend_on_the_layers_below_it():
    model = Transformer(50, 8, 2, 16, 2, PositionScheme())
    tokens = torch.randint(0, 50, (1, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = list(model.attention_probs(tokens))
        dict(model.named_parameters())["blocks.0.feed_forward.down.weight"].add_(torch.randn(16, 64))
        first, second = model.attention_probs(tokens)
    assert torch.equal(first, before[0])
    assert not torch.allclose(second, before[1])


def test_a_bias_reaches_the_attention_and_keeps_the_future_hidden():
    SCHEMES["distance"] = Distance
    near = model("distance", layers=1)
    del SCHEMES["distance"]
    far, future = tokens(), tokens()
    far[0, 3] = 0
    future[0, 6:] = 0
    assert torch.equal(near(tokens())[0, 5:], near(far)[0, 5:])
    assert not torch.equal(near(tokens())[0, 4], near(far)[0, 4])
    assert torch.equal(near(tokens())[0, :6], near(future)[0, :6])


@every_scheme
def test_the_share_of_the_first_norm_s_input_variance_is_measured_where_something_is_added(name):
    measured = model(name).position_share(tokens())
    assert (measured is not None) == (name in ABSOLUTE)


@pytest.mark.parametrize("tokens_scale", [1.0, 5.0])
def test_the_share_is_the_encoding_s_variance_over_that_of_the_sum(tokens_scale):
    """Embeddings and encoding are not correlated at the start, so that their variances add up."""
    scheme = Sinusoidal(256, scale=0.05, tokens=tokens_scale)
    share = Transformer(VOCAB, 64, 1, 256, 2, scheme).position_share(tokens(64))
    encoding = scheme.encoding(torch.arange(64)).var(-1, correction=0).mean().item()
    assert share == pytest.approx(encoding / (encoding + (0.02 * tokens_scale) ** 2), rel=0.05)


class Doubled(PositionScheme):
    """Twice the channels, the new ones empty, so that no logit changes."""

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return torch.cat([q, 0 * q], -1), torch.cat([k, 0 * k], -1)


@pytest.mark.parametrize("low", [False, True])  # torch's own kernel, and products in bfloat16
def test_logits_are_divided_by_the_root_of_the_head_dimension_however_many_channels_a_scheme_returns(low):
    SCHEMES["doubled"] = Doubled
    one, other = model("none"), model("doubled")
    del SCHEMES["doubled"]
    with torch.autocast("cpu", torch.bfloat16, enabled=low), torch.no_grad():
        torch.testing.assert_close(one(tokens()), other(tokens()), rtol=0, atol=0.02 if low else 1e-5)
        for probs, others in zip(one.attention_probs(tokens()), other.attention_probs(tokens()), strict=True):
            torch.testing.assert_close(probs, others, rtol=0, atol=0.02 if low else 1e-5)


def test_the_initial_loss_is_that_of_a_uniform_guess():
    logits = Transformer(VOCAB, CONTEXT, 2, WIDTH, HEADS, PositionScheme())(tokens())
    assert logits.std() < 0.2


def test_a_context_of_one_token_is_possible():
    one = Transformer(VOCAB, 1, 2, WIDTH, HEADS, Learned(1, WIDTH))
    assert one(torch.zeros(1, 1, dtype=torch.long)).shape == (1, 1, VOCAB)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"width": 33}, "width=33 must be a multiple of heads=2"),
        ({"layers": 0}, "layers=0 must be at least 1"),
        ({"context": 25}, "context=25 is longer than the 24 positions"),
    ],
)
def test_impossible_shapes_are_refused(arguments, sentence):
    shape = {
        "vocab_size": VOCAB,
        "context": CONTEXT,
        "layers": 2,
        "width": WIDTH,
        "heads": HEADS,
        **arguments,
    }
    with pytest.raises(ValueError, match=sentence):
        Transformer(**shape, scheme=Learned(CONTEXT, 32))


@every_graph
def test_the_model_compiles_to_one_graph_and_computes_the_same(name):
    torch.compiler.reset()  # there is a limit to the schemes that one process compiles
    eager, compiled = model(name), torch.compile(model(name), fullgraph=True, backend="eager")
    assert torch.allclose(eager(tokens()), compiled(tokens()), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler does it
# Not held to it: pope, whose gradient aot_eager cannot compute, and fire, which has gradients so near 0 that bf16
# rounds them to noise, compiled or not.
@pytest.mark.parametrize("name", [name for name in GRAPHS if name not in ("pope", "fire")])
def test_it_compiles_to_one_graph_in_bfloat16_too_with_its_gradient(name):
    torch.compiler.reset()
    one, other = model(name), model(name)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        logits, reference = compiled(tokens()), one(tokens())
    assert (logits - reference).norm() < 0.02 * reference.norm()
    targets = tokens().roll(-1, 1).flatten()
    for of_model in (logits, reference):
        F.cross_entropy(of_model.flatten(0, 1).float(), targets).backward()
    for ours, theirs in zip(other.parameters(), one.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert (ours.grad - theirs.grad).norm() <= 0.02 * theirs.grad.norm() + 1e-6


@pytest.mark.parametrize("name", OWN_PARAMETERS)
def test_every_parameter_of_a_scheme_is_trained(name):
    made = model(name)
    F.cross_entropy(made(tokens()).flatten(0, 1), tokens().roll(-1, 1).flatten()).backward()
    for key, weight in made.scheme.named_parameters():
        if key != "outer.bias":  # FIRE's, which cancels in the softmax
            assert weight.grad is not None, key
            assert weight.grad.abs().max() > 1e-8, key


@pytest.mark.parametrize("name", OWN_PARAMETERS)
def test_the_seed_determines_the_scheme_s_own_weights_too(name):
    torch.manual_seed(1)
    one = model(name)
    torch.manual_seed(2)
    assert all(map(torch.equal, one.scheme.parameters(), model(name).scheme.parameters()))
