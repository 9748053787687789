"""The implementations that benchmarks/peers.py compares: with our weights, each computes what our model computes.

This includes the rotation: on all channels, with our base, and with no other position encoding.
"""

import re
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from posenc.positions import permute_layout
from tests.benchmarks.scripts import module
from tests.conftest import ROOT

implementations = module("implementations")

# Warnings of the other implementations when they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CAUSAL = implementations.Shape(vocab_size=64, context=24, layers=2, width=96, heads=2)
MASKED = CAUSAL._replace(causal=False)
ALL = [(one, CAUSAL) for one in implementations.CAUSAL] + [(one, MASKED) for one in implementations.MASKED]

Change = Callable[[Tensor], Tensor]


def title(value):
    return value.name if isinstance(value, implementations.Implementation) else "causal" if value.causal else "masked"


every_implementation = pytest.mark.parametrize(("implementation", "shape"), ALL, ids=title)


def named(name):
    return next(one for one, _ in ALL if one.name == name)


def built(implementation, shape):
    if not implementation.installed:
        pytest.skip(f"{implementation.package} is not installed")
    torch.manual_seed(0)
    return implementation.build(shape).eval()


def tokens():
    return torch.randint(64, (2, 24), generator=torch.Generator().manual_seed(1))


def test_every_package_is_pinned_and_transformers_to_the_tested_version():
    pins = dict(re.findall(r"([\w-]+)==([\d.]+)", (ROOT / "benchmarks" / "requirements.txt").read_text()))
    assert {one.package for one, _ in ALL} - {"posenc"} <= pins.keys()
    assert f"transformers=={pins['transformers']} " in (ROOT / "tests" / "requirements.txt").read_text()


@every_implementation
def test_it_returns_logits_of_the_whole_vocabulary_for_every_token(implementation, shape):
    assert built(implementation, shape)(tokens()).shape == (2, 24, 64)


@every_implementation
def test_a_token_is_seen_from_before_it_in_masked_models_only(implementation, shape):
    model, text = built(implementation, shape), tokens()
    other = text.clone()
    other[:, -1] = (other[:, -1] + 1) % 64
    with torch.inference_mode():
        moved = (model(text) - model(other)).abs().amax((0, 2))
    assert moved[-1] > 1e-3
    assert (moved[:-1].max() < 1e-6) == shape.causal


@every_implementation
def test_order_matters_to_a_single_layer(implementation, shape):
    """Without positions, one layer's last logits would not change when two tokens before it swap."""
    model, text = built(implementation, shape._replace(layers=1)), tokens()
    text[:, 3], text[:, 7] = 5, 6
    swapped = text.clone()
    swapped[:, 3], swapped[:, 7] = 6, 5
    with torch.inference_mode():
        assert (model(text) - model(swapped))[:, -1].abs().max() > 1e-5


@every_implementation
def test_parameters_are_as_many_as_ours_up_to_biases_and_stated_differences(implementation, shape):
    model, ours = built(implementation, shape), built(named(implementation.reference), shape)
    many, few = (sum(weight.numel() for weight in one.parameters() if weight.requires_grad) for one in (model, ours))
    # RoFormer's additional projection before the output is as large as one of attention's four.
    additional = shape.width**2 if implementation.name == "RoFormer" else 0
    biases = (11 * shape.layers + 6) * shape.width + shape.vocab_size
    assert 0 <= many - few - additional <= biases


def unchanged(weight: Tensor) -> Tensor:
    return weight


def part(number: int, of: int) -> Change:
    """One of the matrices that ours has stacked."""
    return lambda weight: weight.chunk(of)[number]


def interleaved(number: int) -> Change:
    """Queries or keys, for a rotation of channels 2i and 2i + 1."""
    return lambda weight: permute_layout(weight.chunk(3)[number], CAUSAL.heads, "interleaved")


def head_by_head(weight: Tensor) -> Tensor:
    """Queries, keys and values of the first head, then those of the second."""
    return weight.unflatten(0, (3, CAUSAL.heads, -1)).transpose(0, 1).flatten(0, 2)


WEIGHTS: dict[str, dict[str, tuple[str, Change]]] = {
    "litgpt": {
        "transformer.wte.weight": ("embedding.weight", unchanged),
        "transformer.ln_f.weight": ("norm.weight", unchanged),
        "transformer.h.{N}.norm_1.weight": ("blocks.{N}.attention_norm.weight", unchanged),
        "transformer.h.{N}.attn.qkv.weight": ("blocks.{N}.attention.qkv.weight", unchanged),
        "transformer.h.{N}.attn.proj.weight": ("blocks.{N}.attention.out.weight", unchanged),
        "transformer.h.{N}.norm_2.weight": ("blocks.{N}.feed_forward_norm.weight", unchanged),
        "transformer.h.{N}.mlp.fc.weight": ("blocks.{N}.feed_forward.up.weight", unchanged),
        "transformer.h.{N}.mlp.proj.weight": ("blocks.{N}.feed_forward.down.weight", unchanged),
    },
    "x-transformers": {
        "token_emb.emb.weight": ("embedding.weight", unchanged),
        "attn_layers.final_norm.gamma": ("norm.weight", unchanged),
        "attn_layers.layers.{even}.0.0.gamma": ("blocks.{N}.attention_norm.weight", unchanged),
        "attn_layers.layers.{even}.1.to_q.weight": ("blocks.{N}.attention.qkv.weight", interleaved(0)),
        "attn_layers.layers.{even}.1.to_k.weight": ("blocks.{N}.attention.qkv.weight", interleaved(1)),
        "attn_layers.layers.{even}.1.to_v.weight": ("blocks.{N}.attention.qkv.weight", part(2, of=3)),
        "attn_layers.layers.{even}.1.to_out.weight": ("blocks.{N}.attention.out.weight", unchanged),
        "attn_layers.layers.{odd}.0.0.gamma": ("blocks.{N}.feed_forward_norm.weight", unchanged),
        "attn_layers.layers.{odd}.1.ff.0.0.weight": ("blocks.{N}.feed_forward.up.weight", unchanged),
        "attn_layers.layers.{odd}.1.ff.2.weight": ("blocks.{N}.feed_forward.down.weight", unchanged),
    },
    "Llama": {
        "model.model.embed_tokens.weight": ("embedding.weight", unchanged),
        "model.model.norm.weight": ("norm.weight", unchanged),
        "model.model.layers.{N}.input_layernorm.weight": ("blocks.{N}.attention_norm.weight", unchanged),
        "model.model.layers.{N}.self_attn.q_proj.weight": ("blocks.{N}.attention.qkv.weight", part(0, of=3)),
        "model.model.layers.{N}.self_attn.k_proj.weight": ("blocks.{N}.attention.qkv.weight", part(1, of=3)),
        "model.model.layers.{N}.self_attn.v_proj.weight": ("blocks.{N}.attention.qkv.weight", part(2, of=3)),
        "model.model.layers.{N}.self_attn.o_proj.weight": ("blocks.{N}.attention.out.weight", unchanged),
        "model.model.layers.{N}.post_attention_layernorm.weight": ("blocks.{N}.feed_forward_norm.weight", unchanged),
        "model.model.layers.{N}.mlp.gate_proj.weight": ("blocks.{N}.feed_forward.up.weight", part(0, of=2)),
        "model.model.layers.{N}.mlp.up_proj.weight": ("blocks.{N}.feed_forward.up.weight", part(1, of=2)),
        "model.model.layers.{N}.mlp.down_proj.weight": ("blocks.{N}.feed_forward.down.weight", unchanged),
    },
    "GPTNeoX": {
        "model.gpt_neox.embed_in.weight": ("embedding.weight", unchanged),
        "model.gpt_neox.final_layer_norm.weight": ("norm.weight", unchanged),
        "model.gpt_neox.layers.{N}.input_layernorm.weight": ("blocks.{N}.attention_norm.weight", unchanged),
        "model.gpt_neox.layers.{N}.attention.query_key_value.weight": ("blocks.{N}.attention.qkv.weight", head_by_head),
        "model.gpt_neox.layers.{N}.attention.dense.weight": ("blocks.{N}.attention.out.weight", unchanged),
        "model.gpt_neox.layers.{N}.post_attention_layernorm.weight": ("blocks.{N}.feed_forward_norm.weight", unchanged),
        "model.gpt_neox.layers.{N}.mlp.dense_h_to_4h.weight": ("blocks.{N}.feed_forward.up.weight", unchanged),
        "model.gpt_neox.layers.{N}.mlp.dense_4h_to_h.weight": ("blocks.{N}.feed_forward.down.weight", unchanged),
    },
}
"""Our weight for each of theirs, and how it is rearranged; {N} is the layer, {even} is 2N, {odd} is 2N + 1."""


def copy_weights(ours: nn.Module, theirs: nn.Module, names: Mapping[str, tuple[str, Change]]) -> None:
    """Set their weights to ours, and weights without a counterpart to 0."""
    mine, their = ours.state_dict(), theirs.state_dict()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.zero_()
        for layer in range(CAUSAL.layers):
            indices = {"N": layer, "even": 2 * layer, "odd": 2 * layer + 1}
            for to, (name, change) in names.items():
                their[to.format(**indices)].copy_(change(mine[name.format(**indices)]))


def library(implementation):
    return implementation.name.partition(",")[0]


@pytest.mark.parametrize(("implementation", "shape"), [pair for pair in ALL if library(pair[0]) in WEIGHTS], ids=title)
def test_with_our_weights_it_computes_what_our_model_computes(implementation, shape):
    theirs, ours = built(implementation, shape), built(named(implementation.reference), shape)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in ours.parameters():
            weight.normal_(std=0.2, generator=generator)  # large, so that attention is far from uniform
    copy_weights(ours, theirs, WEIGHTS[library(implementation)])
    with torch.inference_mode():
        expected = ours(tokens())
        assert (theirs(tokens()) - expected).abs().max() < 1e-4 * expected.abs().max()
