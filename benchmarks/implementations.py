"""The language models that benchmarks/peers.py compares, built with one shape: ours and other implementations.

All have the same width, layers, heads, feed-forward width (4 D) and vocabulary, an output tied to the embedding, and
rotary positions with base 10,000 on all channels of every head; no dropout, no key-value cache. Each has the fastest
settings that its authors document; where that depends on the machine (fused or eager attention), both are measured.

If an implementation cannot be configured like ours, ours is configured like it: Llama has RMSNorm and a gated
feed-forward network, so it is compared with our model of that kind. With equal weights, litgpt, x-transformers, Llama
and GPTNeoX compute what our model does (tests/benchmarks/test_implementations.py). The remaining differences:

    litgpt          its LayerNorm has a bias. Both litgpt and ours are measured with whole logits and with a chunked
                    loss, so that a difference in memory is not due to the loss alone.
    x-transformers  q, k and v are three projections; the weight of its LayerNorm is a separate product; a tied output
                    multiplies the logits by a constant.
    Llama           q, k and v are three projections, and so are the feed-forward network's gate and value.
    GPTNeoX         LayerNorm and the feed-forward network have biases.
    RoFormer        norms after the layers and after the embedding, biases everywhere, token types, an additional
                    projection before the output: another model of the same size.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from torch import Tensor, nn

from posenc.model import Family, Transformer
from posenc.objectives.objective import loss, loss_of
from posenc.positions import Rotary

BASE = 10_000.0

PLAIN = Family()
GATED = Family(norm="rms", activation="swiglu", ratio=8 / 3)
"""Llama's architecture; three matrices of width 8/3 D have as many weights as two of width 4 D."""


class Shape(NamedTuple):
    """The shape that all implementations share."""

    vocab_size: int
    context: int
    layers: int
    width: int
    heads: int
    causal: bool = True

    @property
    def head_dim(self) -> int:
        return self.width // self.heads


def whole(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The loss from the logits of all tokens at once, (B, T) each."""
    return loss(model(inputs), targets)


def litgpt_chunked(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """litgpt's own loss, with logits and cross-entropy in chunks of 128 tokens, as in its fine-tuning."""
    from litgpt.utils import chunked_cross_entropy

    return chunked_cross_entropy(model(inputs, lm_head_chunk_size=128), targets)


class Implementation(NamedTuple):
    """One row of the table.

    Attributes:
        name: in the table.
        package: its name in the package index.
        settings: those that differ between implementations.
        build: a shape -> a module, tokens (B, T) -> logits (B, T, V).
        reference: the name of our model that it is compared with.
        loss: of the model on inputs and targets, (B, T) each; ours is chunked for a large vocabulary.
    """

    name: str
    package: str
    settings: str
    build: Callable[[Shape], nn.Module]
    reference: str = "posenc"
    loss: Callable[[Any, Tensor, Tensor], Tensor] = whole

    @property
    def installed(self) -> bool:
        return find_spec(self.package.replace("-", "_")) is not None


def ours(shape: Shape, family: Family) -> nn.Module:
    """posenc's transformer with pos=rope."""
    vocab_size, context, layers, width, heads, causal = shape
    scheme = Rotary(shape.head_dim, base=BASE)
    return Transformer(vocab_size, context, layers, width, heads, scheme, family=family, causal=causal)


def litgpt(shape: Shape) -> nn.Module:
    """litgpt's GPT. Its RMSNorm would have no bias either, but is slower than torch's LayerNorm."""
    from litgpt.config import Config
    from litgpt.model import GPT

    model = GPT(
        Config(
            block_size=shape.context,
            n_layer=shape.layers,
            n_embd=shape.width,
            n_head=shape.heads,
            padded_vocab_size=shape.vocab_size,
            norm_class_name="LayerNorm",
            parallel_residual=False,
            rotary_percentage=1.0,
            rope_base=int(BASE),
            mlp_class_name="GptNeoxMLP",
            bias=False,
        )
    )
    model.apply(model._init_weights)
    model.transformer.wte.weight = model.lm_head.weight  # as its training does with tie_embeddings
    return model


def x_transformers(shape: Shape, flash: bool) -> nn.Module:
    """x-transformers' decoder, or its encoder."""
    from x_transformers import Decoder, Encoder, TransformerWrapper

    layers = Decoder if shape.causal else Encoder
    kernels = {f"enable_{kernel}": True for kernel in ("flash", "math", "mem_efficient", "cudnn")}
    return TransformerWrapper(
        num_tokens=shape.vocab_size,
        max_seq_len=shape.context,
        tie_embedding=True,
        tie_embedding_scale=1.0,
        attn_layers=layers(
            dim=shape.width,
            depth=shape.layers,
            heads=shape.heads,
            attn_dim_head=shape.head_dim,
            attn_flash=flash,
            attn_attend_sdp_kwargs=kernels,  # the kernels that the other implementations may use
            rotary_pos_emb=True,
            rotary_emb_dim=shape.head_dim,
            ff_mult=4,
            ff_no_bias=True,
            norm_add_unit_offset=False,
        ),
    )


class HuggingFace(nn.Module):
    """A Hugging Face model that returns only its logits: tokens (B, T) -> (B, T, V).

    Args:
        model_type: llama, gpt_neox, roformer.
        shape: of the model.
        attention: "eager" or SDPA.
        settings: of the model type.
    """

    def __init__(self, model_type: str, shape: Shape, attention: str, **settings: Any) -> None:
        from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        # When compiled, its own "sdpa" builds a mask (torch before 2.14), which rules out the flash kernel. Under any
        # other name the model sets is_causal instead, which is faster with and without compilation.
        AttentionInterface.register(SDPA, sdpa_attention_forward)
        config = AutoConfig.for_model(
            model_type,
            vocab_size=shape.vocab_size,
            max_position_embeddings=shape.context,
            num_hidden_layers=shape.layers,
            hidden_size=shape.width,
            num_attention_heads=shape.heads,
            tie_word_embeddings=True,
            use_cache=False,
            attn_implementation=attention,
            pad_token_id=None,
            bos_token_id=None,
            eos_token_id=None,
            **settings,
        )
        super().__init__()
        self.model = (AutoModelForCausalLM if shape.causal else AutoModelForMaskedLM).from_config(config)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens).logits


def llama(shape: Shape, attention: str) -> nn.Module:
    """transformers' Llama."""
    return HuggingFace(
        "llama",
        shape,
        attention,
        intermediate_size=GATED.d_ff(shape.width),
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        attention_bias=False,
        mlp_bias=False,
    )


def gpt_neox(shape: Shape, attention: str) -> nn.Module:
    """transformers' GPTNeoX."""
    return HuggingFace(
        "gpt_neox",
        shape,
        attention,
        intermediate_size=4 * shape.width,
        rope_parameters={"rope_type": "default", "rope_theta": BASE, "partial_rotary_factor": 1.0},
        attention_bias=False,
        use_parallel_residual=False,
        hidden_act="gelu",
    )


def roformer(shape: Shape) -> nn.Module:
    """transformers' RoFormer for masked language modelling."""
    return HuggingFace(
        "roformer",
        shape,
        "eager",
        intermediate_size=4 * shape.width,
        type_vocab_size=1,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


SDPA = "sdpa_without_mask"
"""The name under which torch's fused attention is registered with transformers."""


def _ours(name: str, settings: str, family: Family) -> Implementation:
    build = partial(ours, family=family)
    return Implementation(name, "posenc", settings, build, reference=name, loss=loss_of)


OURS = _ours("posenc", "LayerNorm without bias, GELU", PLAIN)
OURS_WHOLE = OURS._replace(name="posenc, whole logits", loss=whole)
OURS_GATED = _ours("posenc, SwiGLU", "RMSNorm, SwiGLU", GATED)
OURS_GATED_WHOLE = OURS_GATED._replace(name="posenc, SwiGLU, whole logits", loss=whole)

LITGPT = Implementation("litgpt", "litgpt", "SDPA, LayerNorm with bias, GELU", litgpt)
LITGPT_CHUNKED = LITGPT._replace(name="litgpt, chunked loss", loss=litgpt_chunked)

X_TRANSFORMERS = [
    Implementation(
        f"x-transformers, {kind}",
        "x-transformers",
        f"attn_flash={flash}, LayerNorm without bias, GELU",
        partial(x_transformers, flash=flash),
    )
    for kind, flash in (("flash", True), ("plain", False))
]


def _transformers(name: str, settings: str, build: Callable[..., nn.Module]) -> list[Implementation]:
    """With fused and with eager attention."""
    return [
        Implementation(
            f"{name}, {kind}",
            "transformers",
            f"attention {kind}, {settings}",
            partial(build, attention=attention),
        )
        for kind, attention in (("SDPA", SDPA), ("eager", "eager"))
    ]


LLAMA = [one._replace(reference=OURS_GATED.name) for one in _transformers("Llama", "RMSNorm, SwiGLU", llama)]
GPT_NEOX = _transformers("GPTNeoX", "LayerNorm and feed-forward network with biases, GELU", gpt_neox)
ROFORMER = Implementation("RoFormer", "transformers", "its one attention, norms after layers, GELU", roformer)

CAUSAL = [OURS, OURS_WHOLE, OURS_GATED, OURS_GATED_WHOLE, LITGPT, LITGPT_CHUNKED, *X_TRANSFORMERS, *LLAMA, *GPT_NEOX]
MASKED = [OURS, ROFORMER, *X_TRANSFORMERS]
