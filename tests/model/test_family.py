"""The families: what a layer is made of, and how many parameters that makes at the published sizes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from posenc.config.instantiate import build
from posenc.model import Family, Transformer
from posenc.model.attention import PositionContext, Softmax
from posenc.model.block import Block, FeedForward
from posenc.positions import Learned, PositionScheme, Rotary
from tests.conftest import composed

WIDTH, HEADS = 64, 4


def family(name: str) -> Family:
    return build(composed(f"model/family={name}")["model"], "family", within="model.")


def parameters(name: str, scheme: PositionScheme | None = None, group: int | None = None, **shape: Any) -> float:
    """In millions, without the memory for them."""
    chosen = family(name)
    if group is not None:
        chosen = replace(chosen, queries_per_key=group)
    with torch.device("meta"):
        built = Transformer(**shape, scheme=(scheme or PositionScheme()).to("meta"), family=chosen)
    return sum(weight.numel() for weight in built.parameters()) / 1e6


SEVEN: dict[str, Any] = {"context": 2048, "layers": 32, "width": 4096, "heads": 32}


def test_parameter_counts_are_those_published():
    """GPT-2: 124.44M; OLMo 6.89B; LLaMA 2 6.74B; Falcon 7.22B with untied output; PaLM 8.63B (Chowdhery, table 1)."""
    gpt2: dict[str, Any] = {"vocab_size": 50_257, "context": 1024, "layers": 12, "width": 768, "heads": 12}
    assert parameters("gpt2", Learned(1024, 768), **gpt2) == pytest.approx(124.439808)
    assert parameters("llama2", group=1, vocab_size=32_000, **SEVEN) == pytest.approx(6738.415616)
    assert parameters("olmo", vocab_size=50_304, **SEVEN) == pytest.approx(6888, abs=1)
    assert parameters("openlm", vocab_size=50_432, **SEVEN) == pytest.approx(6890, abs=1)
    falcon: dict[str, Any] = {**SEVEN, "width": 4544, "heads": 71, "vocab_size": 65_024}
    assert parameters("falcon", **falcon) == pytest.approx(7217, abs=1)
    palm: dict[str, Any] = {**SEVEN, "heads": 16, "vocab_size": 256_000}
    assert parameters("palm", **palm) == pytest.approx(8630, rel=0.001)


def test_a_ratio_may_be_an_integer_and_one_that_divides_no_width_is_rounded_up():
    ratios = {4: 512, 2.6667: 344}  # 344 = 43 x 128 / 16
    assert {ratio: replace(family("plain"), ratio=ratio).d_ff(128) for ratio in ratios} == ratios


def test_grouped_queries_need_smaller_projections():
    sizes = [parameters("llama2", group=group, vocab_size=32_000, **SEVEN) for group in (1, 8, 32)]
    assert sizes[0] - sizes[1] == pytest.approx(32 * 2 * 4096 * 4096 * (1 - 1 / 8) / 1e6)
    assert sizes[0] - sizes[2] == pytest.approx(32 * 2 * 4096 * 4096 * (1 - 1 / 32) / 1e6)


@pytest.mark.parametrize(
    ("name", "norm", "gains", "shifts", "num_kv_heads", "parallel", "inner", "biased", "tied"),
    [
        ("plain", nn.LayerNorm, True, False, 4, False, 256, False, True),
        ("gpt2", nn.LayerNorm, True, True, 4, False, 256, True, True),
        ("olmo", nn.LayerNorm, False, False, 4, False, 2 * 172, False, False),
        ("llama2", nn.RMSNorm, True, False, 2, False, 2 * 172, False, False),
        ("openlm", nn.LayerNorm, True, True, 4, False, 2 * 172, False, False),
        ("falcon", nn.LayerNorm, True, True, 1, True, 256, False, False),
        ("palm", nn.LayerNorm, True, False, 1, True, 2 * 256, False, True),
    ],
)
def test_each_family_is_the_row_of_the_survey_s_table(
    name, norm, gains, shifts, num_kv_heads, parallel, inner, biased, tied
):
    model = Transformer(50, 16, 2, WIDTH, HEADS, PositionScheme(), family(name))
    block = model.blocks[0]
    assert isinstance(block, Block)
    assert hasattr(block, "feed_forward_norm") == (not parallel)
    names = {key.rpartition(".")[2] for key, _ in block.attention_norm.named_parameters()}
    assert type(block.attention_norm) is norm
    assert names == {*(["weight"] if gains else []), *(["bias"] if shifts else [])}
    assert block.attention.qkv.out_features == WIDTH + 2 * num_kv_heads * WIDTH // HEADS
    biases = {"attention.qkv.bias", "feed_forward.up.bias"}
    assert biases & dict(block.named_parameters()).keys() == (biases if biased else set())
    assert dict(block.named_parameters())["feed_forward.up.weight"].shape == (inner, WIDTH)
    assert (model.output.weight is model.embedding.weight) == tied


@pytest.mark.parametrize(
    ("name", "function"), [("plain", "gelu"), ("gpt2", "gelu_new"), ("falcon", "gelu"), ("openlm", None)]
)
def test_the_activation_is_the_published_one(name, function):
    """Hugging Face's functions by the names in the published configurations; gated families have silu in the gate."""
    from transformers.activations import ACT2FN

    layer = FeedForward(8, 8, False, family(name).activation)
    x = torch.linspace(-4, 4, 8).expand(1, 1, 8)
    with torch.no_grad():
        layer.down.weight.copy_(torch.eye(8))
        layer.up.weight.copy_(torch.eye(8).repeat(len(layer.up.weight) // 8, 1))
    expected = ACT2FN["silu"](x) * x if function is None else ACT2FN[function](x)
    assert (layer(x) - expected).abs().max() < 1e-6


def test_biases_begin_at_zero():
    model = Transformer(50, 16, 2, WIDTH, HEADS, PositionScheme(), family("gpt2"))
    assert all((weight == 0).all() for name, weight in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # torch's own kernel, and plain products
def test_shared_keys_are_keys_repeated(groups, dtype):
    q, k, v = (torch.randn(2, heads, 6, 8, dtype=dtype) for heads in (4, groups, groups))
    repeated = (x.repeat_interleave(4 // groups, dim=1) for x in (k, v))
    places = PositionContext(Rotary(8), torch.arange(6), None)
    assert torch.allclose(Softmax()(q, k, v, places, True), Softmax()(q, *repeated, places, True), atol=1e-2)
    repeated_k = k.repeat_interleave(4 // groups, dim=1)
    assert torch.equal(
        Softmax().attention_probs(q, k, places, True), Softmax().attention_probs(q, repeated_k, places, True)
    )


def test_a_bias_in_norms_that_have_none_is_refused():
    with pytest.raises(ValueError, match="bias=norm needs norm=layer: norm=rms has none"):
        Family(norm="rms", bias="norm")


def test_query_heads_that_cannot_be_shared_out_are_refused():
    with pytest.raises(ValueError, match="heads=4 must be a multiple of model.family.queries_per_key=3"):
        Transformer(50, 16, 1, WIDTH, HEADS, PositionScheme(), Family(queries_per_key=3))


def test_attention_probabilities_are_in_float32_under_autocast_too():
    q, k = (torch.randn(1, 2, 6, 8, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (0, 1))
    with torch.autocast("cpu", torch.bfloat16):
        probs = Softmax().attention_probs(q, k, PositionContext(PositionScheme(), torch.arange(6), None), False)
    assert torch.equal(probs, (q.float() @ k.float().mT * 8**-0.5).softmax(-1))
