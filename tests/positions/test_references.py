"""Every scheme computes what an independent implementation computes: those of Hugging Face, or the paper's formula.

Theirs takes its angles in float32, ours is exact: at 64 positions the two can differ by 64 x 6e-8, so 1e-5 holds there.
"""

import cmath
import math
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc.positions import T5, Alibi, Rotary, Sinusoidal, Xpos

HEADS, HEAD_DIM, LENGTH = 4, 32, 64
POSITIONS = torch.arange(LENGTH)
HIDDEN = HEADS * HEAD_DIM
Vectors = tuple[Tensor, Tensor]


def theirs(name: str) -> Any:
    return import_module(f"transformers.models.{name}.modeling_{name}")


def configuration(kind: str, **settings: Any) -> Any:
    return getattr(import_module("transformers"), kind)(num_attention_heads=HEADS, hidden_size=HIDDEN, **settings)


@pytest.fixture
def vectors() -> Vectors:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn((2, 3, HEADS, LENGTH, HEAD_DIM), generator=generator)
    return q, k


def assert_close(ours: tuple[Tensor, ...], reference: tuple[Tensor, ...]) -> None:
    for one, other in zip(ours, reference, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-5


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_the_half_layout_is_llama_s(vectors: Vectors, base):
    llama = theirs("llama")
    config = configuration("LlamaConfig", rope_parameters={"rope_type": "default", "rope_theta": base})
    cos, sin = llama.LlamaRotaryEmbedding(config)(vectors[0], POSITIONS[None])
    expected = llama.apply_rotary_pos_emb(*vectors, cos, sin)
    assert_close(Rotary(HEAD_DIM, base=base).rotate(*vectors, POSITIONS), expected)


def test_a_quarter_in_the_half_layout_is_gpt_neox_s(vectors: Vectors):
    neox = theirs("gpt_neox")
    parameters = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
    config = configuration("GPTNeoXConfig", rope_parameters=parameters)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(vectors[0], POSITIONS[None])
    assert cos.shape[-1] == HEAD_DIM // 4
    expected = neox.apply_rotary_pos_emb(*vectors, cos, sin)
    assert_close(Rotary(HEAD_DIM, fraction=0.25).rotate(*vectors, POSITIONS), expected)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
def test_a_fraction_in_the_interleaved_layout_is_gpt_j_s(vectors: Vectors, fraction):
    gptj, rotated = theirs("gptj"), int(HEAD_DIM * fraction)
    sin, cos = gptj.create_sinusoidal_positions(LENGTH, rotated)[None].chunk(2, dim=-1)

    def turned(x: Tensor) -> Tensor:
        heads_last = gptj.apply_rotary_pos_emb(x[..., :rotated].transpose(1, 2), sin, cos)
        return torch.cat([heads_last.transpose(1, 2), x[..., rotated:]], dim=-1)

    scheme = Rotary(HEAD_DIM, layout="interleaved", fraction=fraction)
    assert_close(scheme.rotate(*vectors, POSITIONS), (turned(vectors[0]), turned(vectors[1])))


def roformer_table(width: int) -> Tensor:
    """(T, width): sines, then cosines."""
    return theirs("roformer").RoFormerSinusoidalPositionalEmbedding(LENGTH, width).create_weight()


def test_the_interleaved_layout_is_roformer_s(vectors: Vectors):
    attention = theirs("roformer").RoFormerSelfAttention
    expected = attention.apply_rotary_position_embeddings(roformer_table(HEAD_DIM)[None, None], *vectors)
    assert_close(Rotary(HEAD_DIM, layout="interleaved").rotate(*vectors, POSITIONS), expected)


def test_the_sinusoid_is_roformer_s():
    sin, cos = roformer_table(HIDDEN).chunk(2, dim=-1)
    ours = Sinusoidal(HIDDEN, scale=1.0).encoding(POSITIONS)
    assert_close((ours[:, 0::2], ours[:, 1::2]), (sin, cos))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 128), (8, 20)])
def test_t5_is_t5_s(bidirectional, buckets, max_distance):
    length = 300
    config = import_module("transformers").T5Config(
        num_heads=HEADS,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not bidirectional,
    )
    attention = theirs("t5").T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5(HEADS, buckets, max_distance, bidirectional)
    ours.table.weight = attention.relative_attention_bias.weight
    assert_close((ours.bias(torch.arange(length)),), (attention.compute_bias(length, length)[0],))


def weights(bias: Tensor) -> Tensor:
    """A bias (H, T, T), or (H, 1, T) for a row that all queries share -> attention weights of a causal model."""
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    return bias.expand(-1, LENGTH, -1).masked_fill(hidden, -torch.inf).softmax(-1)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 71])
def test_alibi_is_bloom_s_and_mpt_s(heads):
    """Theirs differs from ours by a constant a row, so that one row serves all queries; softmax does not see it."""
    ours = weights(Alibi(heads).bias(POSITIONS))
    bloom = theirs("bloom").build_alibi_tensor(torch.ones(1, LENGTH, dtype=torch.long), heads, torch.float32)
    mpt = theirs("mpt").build_mpt_alibi_tensor(heads, LENGTH)
    assert_close((ours, ours), (weights(bloom), weights(mpt)))


def scores_of_the_paper(q: Tensor, k: Tensor, scale_base: float, gamma: float) -> Tensor:
    """Sum over planes of Re[q k* zeta^((m-n)/S) e^(i (m-n) theta)], one complex number a plane, in float64."""
    q, k = (torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) for x in (q, k))
    planes = q.shape[-1]
    scores = torch.zeros(*q.shape[:-1], LENGTH, dtype=torch.float64)
    for i in range(planes):
        zeta, theta = (i / planes + gamma) / (1 + gamma), 10_000.0 ** (-i / planes)
        power = complex(math.log(zeta) / scale_base, theta)
        for m in range(LENGTH):
            for n in range(LENGTH):
                scores[..., m, n] += (q[..., m, i] * k[..., n, i].conj() * cmath.exp((m - n) * power)).real
    return scores


@pytest.mark.parametrize(("scale_base", "gamma"), [(512.0, 0.4), (64.0, 0.1)])
def test_xpos_is_the_formula_of_its_paper(vectors: Vectors, scale_base, gamma):
    q, k = (x[:1, :1] for x in vectors)
    scheme = Xpos(HEAD_DIM, layout="interleaved", scale_base=scale_base, gamma=gamma)
    turned_q, turned_k = scheme.rotate(q, k, POSITIONS)
    expected = scores_of_the_paper(q, k, scale_base, gamma)
    assert ((turned_q @ turned_k.mT - expected) / expected.abs().clamp(min=1)).abs().max() < 1e-5
