"""What holds for every scheme, whichever hook it uses."""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from posenc.positions import PositionScheme
from posenc.positions.content import ContextualTable, ForgetGate, PerLayer
from tests.positions.every import ABSOLUTE, schemes

HEADS, HEAD_DIM, LENGTH, LAYERS = 4, 16, 12, 2
SCHEMES = schemes(HEADS, HEAD_DIM, LENGTH, LAYERS)
RELATIVE = SCHEMES.keys() - {"fire", *ABSOLUTE}
ROTARY = [name for name in SCHEMES if name.startswith(("rope", "xpos", "nope"))]
every_scheme = pytest.mark.parametrize("name", SCHEMES)
every_relative_scheme = pytest.mark.parametrize("name", sorted(RELATIVE))
every_scheme_by_offset = pytest.mark.parametrize(
    "name", sorted(RELATIVE - {"fox", "cope"})
)  # these read what stands between
every_rotary_scheme = pytest.mark.parametrize("name", ROTARY)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def built(name: str) -> PositionScheme:
    scheme = SCHEMES[name]()
    scheme.initialise(torch.Generator().manual_seed(0))
    return scheme


built_once = functools.cache(built)
"""For examples that do not change it."""


def logits(scheme: PositionScheme, positions: Tensor, vectors: Tensor) -> Tensor:
    """What attention would turn into weights; vectors (2, T, Dh) holds a query and a key a token -> (H, T, T)."""
    query, key = (x.expand(1, HEADS, -1, -1) for x in vectors)
    x = vectors.sum(0).repeat(1, HEADS)[None]
    here = scheme.layer(0)
    q, k = here.rotate(query, key, positions)
    added = (here.bias(positions), here.content_bias(x, query, key, positions))
    return sum((part for part in added if part is not None), q @ k.mT)[0]


@every_scheme
def test_every_parameter_has_a_dimension_along_which_fsdp_can_shard_it(name):
    assert all(weight.ndim for weight in built(name).parameters())


@given(shift=st.integers(0, 900_000))
@every_relative_scheme
def test_a_shift_of_all_positions_leaves_the_logits_of_relative_schemes(name, shift):
    positions, vectors = torch.arange(LENGTH), randn(2, LENGTH, HEAD_DIM)
    here, there = (logits(built_once(name), at, vectors) for at in (positions, positions + shift))
    assert torch.allclose(here, there, atol=1e-4)


@given(positions=st.lists(st.integers(0, 20_000), min_size=2, max_size=8))
@every_scheme_by_offset
def test_a_logit_depends_on_its_two_positions_only_whatever_gaps_and_order_the_others_have(name, positions):
    vectors = randn(2, len(positions), HEAD_DIM)
    together = logits(built_once(name), torch.tensor(positions), vectors)
    alone = logits(built_once(name), torch.tensor([positions[1], positions[0]]), vectors[:, [1, 0]])
    assert torch.allclose(together[:, 1, 0], alone[:, 0, 1], rtol=1e-4, atol=1e-4)


@every_rotary_scheme
def test_queries_and_keys_may_have_any_number_of_heads(name):
    scheme, positions = built(name), torch.arange(LENGTH)
    q, k = randn(2, 6, LENGTH, HEAD_DIM), randn(2, 2, LENGTH, HEAD_DIM, seed=1)
    turned_q, turned_k = scheme.rotate(q, k, positions)
    assert (turned_q.shape, turned_k.shape) == (q.shape, k.shape)
    one_q, one_k = scheme.rotate(q[:, :1], k[:, -1:], positions)
    assert torch.equal(turned_q[:, :1], one_q)
    assert torch.equal(turned_k[:, -1:], one_k)


@every_rotary_scheme
def test_position_zero_is_the_identity(name):
    q, k = randn(1, 1, 1, HEAD_DIM), randn(1, 1, 1, HEAD_DIM, seed=1)
    turned_q, turned_k = built(name).rotate(q, k, torch.tensor([0]))
    assert torch.equal(turned_q, q)
    assert torch.equal(turned_k, k)


@pytest.mark.parametrize("name", [name for name in ROTARY if name.startswith("rope")])
def test_rotation_preserves_norms(name):
    x = randn(1, HEADS, LENGTH, HEAD_DIM)
    turned, _ = built(name).rotate(x, x, torch.arange(LENGTH) * 70_000)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-5)


@every_scheme
def test_casting_the_model_rounds_its_weights_only(name):
    """Weights that bfloat16 holds exactly come through a cast unchanged, and so must all the rest."""
    scheme, positions = built(name), torch.arange(LENGTH)
    for weight in scheme.parameters():
        weight.data = weight.data.bfloat16().float()
    x, q = randn(1, LENGTH, HEADS * HEAD_DIM), randn(1, HEADS, LENGTH, HEAD_DIM)

    def hooks() -> list[Tensor]:
        here = scheme.layer(0)
        added = (here.bias(positions), here.content_bias(x, q, q, positions))
        return [
            scheme.embed(x, positions),
            *here.rotate(q, q, positions),
            *(part for part in added if part is not None),
        ]

    before = hooks()
    scheme.bfloat16()
    assert all(torch.equal(one, other) for one, other in zip(before, hooks(), strict=True))


@every_scheme
def test_a_checkpoint_holds_what_is_trained_and_nothing_else(name):
    scheme = built(name)
    assert scheme.state_dict().keys() == dict(scheme.named_parameters()).keys()


@every_scheme
def test_every_scheme_but_none_overrides_exactly_one_hook(name):
    hooks = ("encoding", "rotate", "bias", "content_bias")
    scheme = built(name)
    overridden = {
        hook
        for one in (scheme, *(scheme.layer(index) for index in range(LAYERS)))
        for hook in hooks
        if getattr(type(one), hook) is not getattr(PositionScheme, hook)
    }
    assert len(overridden) == (name != "none")


@every_scheme
def test_a_scheme_is_ready_when_constructed_and_one_seed_gives_one_scheme(name):
    torch.manual_seed(1)
    constructed, drawn = SCHEMES[name](), built(name)
    torch.manual_seed(2)
    again = built(name)
    for (key, one), other, same in zip(
        constructed.named_parameters(), drawn.parameters(), again.parameters(), strict=True
    ):
        assert torch.equal(other, same)
        if one.numel() > 10:
            assert one.std().item() == pytest.approx(other.std().item(), rel=0.3, abs=1e-12), key


def test_every_scheme_is_held_to_these_facts():
    def below(kind: type[PositionScheme]) -> set[type[PositionScheme]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    known = {kind for kind in below(PositionScheme) if kind.__module__.startswith("posenc.positions.")}
    assert {type(built(name)) for name in SCHEMES} == known - {PerLayer, ForgetGate, ContextualTable}


@pytest.mark.parametrize("name", ABSOLUTE)
def test_an_encoding_leaves_the_dtype_of_the_embeddings(name):
    x = randn(1, LENGTH, HEADS * HEAD_DIM).bfloat16()
    assert built(name).embed(x, torch.arange(LENGTH)).dtype == x.dtype
