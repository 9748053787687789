"""Conversion to Hugging Face transformers: config.json and weights under its names.

Three of its architectures match some of our models: GPT-2 (additive encodings, as a table), Llama and GPT-NeoX (rotary
embedding).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from posenc.errors import UserError
from posenc.evaluation.load import Trained
from posenc.interventions.base import Intervention
from posenc.positions import Learned, PositionScheme, Rotary, Sinusoidal, permute_layout

POS_CHOICES = {PositionScheme: "none", Learned: "learned", Sinusoidal: "sinusoidal", Rotary: "rope"}
"""Classes of position schemes, and their choice of `pos`."""

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "swiglu": "silu"}
"""Our names, and those of transformers."""


@dataclass(frozen=True)
class Architecture:
    """An architecture of transformers: the values of each key it supports, its part of config.json, its weights."""

    name: str
    supports: Mapping[str, tuple[Any, ...]]
    config: Callable[[Trained], dict[str, Any]]
    weights: Callable[[Trained], Iterator[tuple[str, Tensor]]]


@torch.no_grad()
def convert(trained: Trained) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config.json and the weights of a run's model, in an architecture with the same logits.

    Raises:
        UserError: if there is none; the message says what each architecture would need.
    """
    features, needs = _features(trained), []
    for architecture in ARCHITECTURES:
        unmet = {key: values for key, values in architecture.supports.items() if features[key] not in values}
        if not unmet:
            shared = {
                "vocab_size": trained.tokenizer.vocab_size,
                "tie_word_embeddings": trained.model.family.tied,
                "dtype": "float32",
                "bos_token_id": None,
                "eos_token_id": None,
            }
            weights = {name: weight.contiguous().clone() for name, weight in architecture.weights(trained)}
            return {**architecture.config(trained), **shared}, weights
        missing = (f"{_override(trained, key)}={' or '.join(map(str, values))}" for key, values in unmet.items())
        needs.append(f"{architecture.name} needs {', '.join(missing)}")
    raise UserError(f"no architecture of transformers matches this model: {'; '.join(needs)}")


def _override(trained: Trained, key: str) -> str:
    """The key of a feature as train.py has it."""
    return f"model.family.{key}" if hasattr(trained.model.family, key) else key


def _features(trained: Trained) -> dict[str, Any]:
    """The properties that determine the architecture, by key."""
    scheme, config, interventions = trained.model.scheme, trained.config, []
    while isinstance(scheme, Intervention):
        interventions.append(type(scheme).__name__)
        scheme = scheme.scheme
    head_dim = config["model"]["width"] // config["model"]["heads"]
    rotated = getattr(scheme, "rotated", head_dim)
    return {
        **vars(trained.model.family),
        "objective": type(trained.objective).__name__.lower(),
        "attention": type(_first_layer(trained).attention.op).__name__.lower(),
        "intervention": " ".join(interventions) or "none",
        "pos": POS_CHOICES.get(type(scheme), type(scheme).__name__),
        "pos.fraction": rotated / head_dim,
        "pos.layout": "half" if rotated == head_dim else scheme.layout,  # a fully rotated head can be permuted
        "pos.tokens": getattr(scheme, "tokens", 1.0),
    }


def _first_layer(trained: Trained) -> Any:
    return trained.model.blocks[0]


def _gpt2_config(trained: Trained) -> dict[str, Any]:
    model = trained.config["model"]
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": trained.config["context"],
        "n_embd": model["width"],
        "n_layer": model["layers"],
        "n_head": model["heads"],
        "n_inner": _first_layer(trained).feed_forward.up.out_features,
        "activation_function": ACTIVATIONS[trained.model.family.activation],
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
    }


def _rotary_config(trained: Trained) -> dict[str, Any]:
    """The part of config.json shared by Llama and GPT-NeoX."""
    model, family, scheme = trained.config["model"], trained.model.family, cast(Rotary, trained.model.scheme)
    return {
        "hidden_size": model["width"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": model["heads"],
        "num_key_value_heads": family.num_kv_heads(model["heads"]),
        "intermediate_size": _first_layer(trained).feed_forward.down.in_features,
        "hidden_act": ACTIVATIONS[family.activation],
        "max_position_embeddings": trained.config["context"],
        "attention_bias": family.bias == "all",
        # For transformers 5; the callers add the names used by earlier versions.
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": scheme.base,
            "partial_rotary_factor": _rotary_fraction(trained),
        },
    }


def _llama_config(trained: Trained) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **_rotary_config(trained),
        "mlp_bias": trained.model.family.bias == "all",
        "rms_norm_eps": 1e-5,
        "rope_theta": cast(Rotary, trained.model.scheme).base,
    }


def _neox_config(trained: Trained) -> dict[str, Any]:
    return {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        **_rotary_config(trained),
        "use_parallel_residual": trained.model.family.parallel,
        "rotary_emb_base": cast(Rotary, trained.model.scheme).base,
        "rotary_pct": _rotary_fraction(trained),
    }


def _rotary_fraction(trained: Trained) -> float:
    """The fraction of the channels from which transformers, which rounds down, gets the number that we rotate."""
    scheme: Any = trained.model.scheme
    head_dim = _first_layer(trained).attention.head_dim
    fraction = scheme.rotated / head_dim
    return fraction if int(head_dim * fraction) == scheme.rotated else math.nextafter(fraction, 1)


def _gpt2_weights(trained: Trained) -> Iterator[tuple[str, Tensor]]:
    model: Any = trained.model
    context, width = trained.config["context"], trained.config["model"]["width"]
    encoding = model.scheme.encoding(torch.arange(context))
    yield "transformer.wte.weight", model.embedding.weight
    yield "transformer.wpe.weight", torch.zeros(context, width) if encoding is None else encoding
    for index, block in enumerate(model.blocks):
        layer = f"transformer.h.{index}"
        yield from _norm(f"{layer}.ln_1", block.attention_norm)
        yield from _norm(f"{layer}.ln_2", block.feed_forward_norm)
        for name, linear in (
            ("attn.c_attn", block.attention.qkv),
            ("attn.c_proj", block.attention.out),
            ("mlp.c_fc", block.feed_forward.up),
            ("mlp.c_proj", block.feed_forward.down),
        ):
            yield f"{layer}.{name}.weight", linear.weight.mT  # GPT-2's Conv1D has the inputs first
            yield f"{layer}.{name}.bias", _bias(linear)
    yield from _norm("transformer.ln_f", model.norm)
    yield from _output("lm_head", model)


def _llama_weights(trained: Trained) -> Iterator[tuple[str, Tensor]]:
    model: Any = trained.model
    yield "model.embed_tokens.weight", model.embedding.weight
    for index, block in enumerate(model.blocks):
        layer, attention = f"model.layers.{index}", block.attention
        yield f"{layer}.input_layernorm.weight", block.attention_norm.weight
        yield f"{layer}.post_attention_layernorm.weight", block.feed_forward_norm.weight
        for kind, tensor in attention.qkv.named_parameters():
            for name, part in zip("qkv", _projections(tensor, model.scheme, attention), strict=True):
                yield f"{layer}.self_attn.{name}_proj.{kind}", part
        for kind, tensor in attention.out.named_parameters():
            yield f"{layer}.self_attn.o_proj.{kind}", tensor
        for kind, tensor in block.feed_forward.up.named_parameters():
            yield from zip((f"{layer}.mlp.{name}_proj.{kind}" for name in ("gate", "up")), tensor.chunk(2), strict=True)
        for kind, tensor in block.feed_forward.down.named_parameters():
            yield f"{layer}.mlp.down_proj.{kind}", tensor
    yield "model.norm.weight", model.norm.weight
    yield from _output("lm_head", model)


def _neox_weights(trained: Trained) -> Iterator[tuple[str, Tensor]]:
    model: Any = trained.model
    yield "gpt_neox.embed_in.weight", model.embedding.weight
    for index, block in enumerate(model.blocks):
        layer, attention = f"gpt_neox.layers.{index}", block.attention
        yield from _norm(f"{layer}.input_layernorm", block.attention_norm)
        # Our parallel layers have one norm, GPT-NeoX has two.
        second = getattr(block, "feed_forward_norm", block.attention_norm)
        yield from _norm(f"{layer}.post_attention_layernorm", second)
        for kind, tensor in attention.qkv.named_parameters():
            heads = (
                part.unflatten(0, (-1, attention.head_dim)) for part in _projections(tensor, model.scheme, attention)
            )
            yield f"{layer}.attention.query_key_value.{kind}", torch.cat(list(heads), dim=1).flatten(0, 1)
        for kind, tensor in attention.out.named_parameters():
            yield f"{layer}.attention.dense.{kind}", tensor
        for name, linear in (("dense_h_to_4h", block.feed_forward.up), ("dense_4h_to_h", block.feed_forward.down)):
            yield f"{layer}.mlp.{name}.weight", linear.weight
            yield f"{layer}.mlp.{name}.bias", _bias(linear)
    yield from _norm("gpt_neox.final_layer_norm", model.norm)
    yield from _output("embed_out", model)


def _projections(tensor: Tensor, scheme: Any, attention: Any) -> list[Tensor]:
    """Split a fused weight or bias into queries, keys and values, with channels in the layout `half`."""
    q, k, v = tensor.split(attention.qkv_sizes)
    if scheme.layout == "half":
        return [q, k, v]
    return [*(permute_layout(part, part.shape[0] // attention.head_dim, "half") for part in (q, k)), v]


def _norm(name: str, norm: Any) -> Iterator[tuple[str, Tensor]]:
    """A LayerNorm with weight and bias, which ours may lack."""
    yield f"{name}.weight", torch.ones(norm.normalized_shape) if norm.weight is None else norm.weight
    yield f"{name}.bias", torch.zeros(norm.normalized_shape) if norm.bias is None else norm.bias


def _bias(linear: nn.Linear) -> Tensor:
    return torch.zeros(linear.out_features) if linear.bias is None else linear.bias


def _output(name: str, model: Any) -> Iterator[tuple[str, Tensor]]:
    """The output matrix, unless it is tied."""
    if model.output.weight is not model.embedding.weight:
        yield f"{name}.weight", model.output.weight


COMMON: dict[str, tuple[Any, ...]] = {
    "objective": ("causal",),
    "attention": ("softmax",),
    "intervention": ("none",),
}
LAYER_NORM: dict[str, tuple[Any, ...]] = {"norm": ("layer", "bare"), "activation": ("gelu", "gelu_tanh")}

ARCHITECTURES = (
    Architecture(
        "GPT-2",
        {
            **COMMON,
            "pos": ("learned", "sinusoidal", "none"),
            "pos.tokens": (1.0,),
            **LAYER_NORM,
            "queries_per_key": (1,),
            "parallel": (False,),
        },
        _gpt2_config,
        _gpt2_weights,
    ),
    Architecture(
        "Llama",
        {
            **COMMON,
            "pos": ("rope",),
            "pos.fraction": (1.0,),
            "norm": ("rms",),
            "activation": ("swiglu",),
            "parallel": (False,),
        },
        _llama_config,
        _llama_weights,
    ),
    Architecture(
        "GPT-NeoX",
        {**COMMON, "pos": ("rope",), "pos.layout": ("half",), **LAYER_NORM, "queries_per_key": (1,)},
        _neox_config,
        _neox_weights,
    ),
)
