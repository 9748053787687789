"""The language models that benchmarks/peers.py compares: ours and its peers, built at one shape.

Common to all: width, layers, heads, a feed-forward network four times as wide, the vocabulary, an output tied to the
embedding, rotary positions with base 10,000 on all channels of every head, no dropout, no key-value cache. Each peer
is at the settings that are fastest among those its author documents; where that depends on the machine (fused or plain
attention), both are measured.

Where a peer has no option to do as we do, we do as it does: Llama has RMSNorm and a gated feed-forward network, so
beside it stands our own model of that kind. With equal weights, litgpt, x-transformers, Llama and GPTNeoX compute
what our model beside them computes (tests/benchmarks/test_contenders.py). What still differs:

    litgpt          its LayerNorm has a bias. It is measured with whole logits and with its own chunked loss, and so
                    are we, so that memory is not won by one trick.
    x-transformers  q, k and v are three projections; the gain of its LayerNorm is a product of its own; a tied
                    output multiplies the logits by a constant.
    Llama           q, k and v are three projections, and so are the feed-forward network's gate and value.
    GPTNeoX         LayerNorm and the feed-forward network have biases.
    RoFormer        norms after the layers and after the embedding, biases everywhere, token types, a further
                    projection before the output: another model, of the same size.
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
"""Llama's choices; three matrices that are 8/3 D wide have the weights of two that are 4 D wide."""


class Shape(NamedTuple):
    """What all contenders have in common."""

    vocabulary: int
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
    """litgpt's own loss, whose output and cross-entropy are made 128 tokens at a time, as in its fine-tuning."""
    from litgpt.utils import chunked_cross_entropy

    return chunked_cross_entropy(model(inputs, lm_head_chunk_size=128), targets)


class Contender(NamedTuple):
    """One row of the table.

    Attributes:
        name: in the table.
        module: what must be importable.
        package: what it is called in the package index, for its version.
        settings: those that are not the same for all, in words.
        build: a shape -> a module, tokens (B, T) -> logits (B, T, V).
        beside: the name of our model that it is compared with.
        loss: of the model on inputs and targets, (B, T) each; ours makes no whole logits of a large vocabulary.
    """

    name: str
    module: str
    package: str
    settings: str
    build: Callable[[Shape], nn.Module]
    beside: str = "posenc"
    loss: Callable[[Any, Tensor, Tensor], Tensor] = whole

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None


class Logits(nn.Module):
    """A model of Hugging Face that answers with its logits alone: tokens (B, T) -> (B, T, V)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens).logits


def ours(shape: Shape, family: Family) -> nn.Module:
    """posenc's transformer with pos=rope."""
    return Transformer(
        shape.vocabulary,
        shape.context,
        shape.layers,
        shape.width,
        shape.heads,
        scheme=Rotary(shape.head_dim, base=BASE),
        family=family,
        causal=shape.causal,
    )


def litgpt(shape: Shape) -> nn.Module:
    """litgpt's GPT. Its RMSNorm would have our number of gains, but is slower than torch's LayerNorm."""
    from litgpt.config import Config
    from litgpt.model import GPT

    model = GPT(
        Config(
            block_size=shape.context,
            n_layer=shape.layers,
            n_embd=shape.width,
            n_head=shape.heads,
            padded_vocab_size=shape.vocabulary,
            norm_class_name="LayerNorm",
            parallel_residual=False,
            rotary_percentage=1.0,
            rope_base=int(BASE),
            mlp_class_name="GptNeoxMLP",
            bias=False,
        )
    )
    model.apply(model._init_weights)
    model.transformer.wte.weight = model.lm_head.weight  # what its training does with tie_embeddings
    return model


def x_transformers(shape: Shape, flash: bool) -> nn.Module:
    """x-transformers' decoder, or its encoder."""
    from x_transformers import Decoder, Encoder, TransformerWrapper

    layers = Decoder if shape.causal else Encoder
    kernels = {f"enable_{kernel}": True for kernel in ("flash", "math", "mem_efficient", "cudnn")}
    return TransformerWrapper(
        num_tokens=shape.vocabulary,
        max_seq_len=shape.context,
        tie_embedding=True,
        tie_embedding_scale=1.0,
        attn_layers=layers(
            dim=shape.width,
            depth=shape.layers,
            heads=shape.heads,
            attn_dim_head=shape.head_dim,
            attn_flash=flash,
            attn_attend_sdp_kwargs=kernels,  # those that torch lets everyone else choose from
            rotary_pos_emb=True,
            rotary_emb_dim=shape.head_dim,
            ff_mult=4,
            ff_no_bias=True,
            norm_add_unit_offset=False,
        ),
    )


def llama(shape: Shape, attention: str) -> nn.Module:
    """transformers' Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return Logits(
        LlamaForCausalLM(
            LlamaConfig(
                **_hugging_face(shape, attention),
                intermediate_size=GATED.d_ff(shape.width),
                rms_norm_eps=1e-5,
                rope_parameters={"rope_type": "default", "rope_theta": BASE},
                attention_bias=False,
                mlp_bias=False,
            )
        )
    )


def gpt_neox(shape: Shape, attention: str) -> nn.Module:
    """transformers' GPTNeoX."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return Logits(
        GPTNeoXForCausalLM(
            GPTNeoXConfig(
                **_hugging_face(shape, attention),
                intermediate_size=4 * shape.width,
                rope_parameters={"rope_type": "default", "rope_theta": BASE, "partial_rotary_factor": 1.0},
                attention_bias=False,
                use_parallel_residual=False,
                hidden_act="gelu",
            )
        )
    )


def roformer(shape: Shape) -> nn.Module:
    """transformers' RoFormer with its head for masked language modelling."""
    from transformers import RoFormerConfig, RoFormerForMaskedLM

    return Logits(
        RoFormerForMaskedLM(
            RoFormerConfig(
                **_hugging_face(shape, "eager"),
                intermediate_size=4 * shape.width,
                type_vocab_size=1,
                hidden_act="gelu",
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
    )


def _hugging_face(shape: Shape, attention: str) -> dict[str, Any]:
    """What every model of Hugging Face is told; attention is eager or SDPA."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    # Its own "sdpa" builds a mask while it is compiled (torch before 2.14), and with a mask there is no flash kernel.
    # Under any other name the model leaves the mask out and asks for is_causal, which is the faster in either case.
    AttentionInterface.register(SDPA, sdpa_attention_forward)
    return {
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "tie_word_embeddings": True,
        "use_cache": False,
        "attn_implementation": attention,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


SDPA = "sdpa_without_mask"
"""The name under which torch's fused attention is registered with transformers."""

OURS = Contender(
    "posenc", "posenc", "posenc", "LayerNorm without bias, GELU", partial(ours, family=PLAIN), loss=loss_of
)
OURS_WHOLE = OURS._replace(name="posenc, whole logits", loss=whole)
OURS_GATED = Contender(
    "posenc, SwiGLU",
    "posenc",
    "posenc",
    "RMSNorm, SwiGLU",
    partial(ours, family=GATED),
    beside="posenc, SwiGLU",
    loss=loss_of,
)

LITGPT = Contender("litgpt", "litgpt", "litgpt", "SDPA, LayerNorm with bias, GELU", litgpt)
LITGPT_CHUNKED = LITGPT._replace(name="litgpt, chunked loss", loss=litgpt_chunked)

X_TRANSFORMERS = [
    Contender(
        f"x-transformers, {kind}",
        "x_transformers",
        "x-transformers",
        f"attn_flash={flash}, LayerNorm without bias, GELU",
        partial(x_transformers, flash=flash),
    )
    for kind, flash in (("flash", True), ("plain", False))
]

LLAMA = [
    Contender(
        f"Llama, {kind}",
        "transformers",
        "transformers",
        f"attention {kind}, RMSNorm, SwiGLU",
        partial(llama, attention=name),
        beside="posenc, SwiGLU",
    )
    for kind, name in (("SDPA", SDPA), ("eager", "eager"))
]

GPT_NEOX = [
    Contender(
        f"GPTNeoX, {kind}",
        "transformers",
        "transformers",
        f"attention {kind}, LayerNorm and feed-forward network with biases, GELU",
        partial(gpt_neox, attention=name),
    )
    for kind, name in (("SDPA", SDPA), ("eager", "eager"))
]

ROFORMER = Contender(
    "RoFormer", "transformers", "transformers", "its one attention, norms after layers, GELU", roformer
)

CAUSAL = [OURS, OURS_WHOLE, OURS_GATED, LITGPT, LITGPT_CHUNKED, *X_TRANSFORMERS, *LLAMA, *GPT_NEOX]
MASKED = [OURS, ROFORMER, *X_TRANSFORMERS]
