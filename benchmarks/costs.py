"""Costs of a training step, counted from its shapes: FLOPs, memory traffic, and activations saved for the backward.

A tensor counts once for each kernel that must read or write it. What compilation fuses into one kernel is one part:
- a residual add and the norm after it; the embedding and the first norm; and their backward
- the rotation of q and k; in the backward, also the concatenation of the gradients of q, k and v
- cross-entropy and the casts of its logits, which stay in bf16
Attention is tiled (Dao et al. 2022): no T x T matrix is written to memory, and masked tiles are not computed. The
residual stream and its gradient are fp32, as under autocast; both operands of a matrix product are bf16.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

BF16, FP32, INT64 = 2, 4, 8
"""Bytes."""

Stage = Literal["forward", "backward", "update"]


@dataclass(frozen=True)
class Shape:
    """A model of the plain family (`conf/model/family/plain.yaml`) with RoPE, and its batch.

    Attributes:
        layers, width, heads: L, D and H.
        vocab_size: V.
        context: T.
        batch_size: sequences per step.
    """

    layers: int
    width: int
    heads: int
    vocab_size: int
    context: int
    batch_size: int

    @property
    def tokens(self) -> int:
        """N, per step."""
        return self.batch_size * self.context

    @property
    def norm_weights(self) -> int:
        """Weights of all norms."""
        return (2 * self.layers + 1) * self.width

    @property
    def matrices(self) -> int:
        """Weights of the matrix products; the output matrix is the embedding."""
        return self.layers * 12 * self.width**2 + self.vocab_size * self.width

    @property
    def parameters(self) -> int:
        return self.matrices + self.norm_weights

    @property
    def flops_per_token(self) -> int:
        """The count that defines MFU: 6 N + 12 L D T (Chowdhery et al. 2022, appendix B).

        Every query attends to all T keys in it, even in a causal model.
        """
        return 6 * self.parameters + 12 * self.layers * self.width * self.context


class Work(NamedTuple):
    """Operations and memory traffic.

    Attributes:
        matmul: FLOPs of matrix products.
        vector: other FLOPs; roughly a few per element, since they are never the bound.
        bytes: read from and written to memory.
    """

    matmul: int
    vector: int
    bytes: int

    def times(self, count: int) -> "Work":
        return Work(*(count * value for value in self))


@dataclass(frozen=True)
class Part:
    """One part of a step, over all layers."""

    name: str
    stage: Stage
    work: Work


def linear(tokens: int, inputs: int, outputs: int) -> tuple[Work, Work]:
    """x (N, inputs) W (inputs, outputs), forward and backward, all in bf16."""
    flops = 2 * tokens * inputs * outputs
    x, w, y = (BF16 * size for size in (tokens * inputs, inputs * outputs, tokens * outputs))
    return Work(flops, 0, x + w + y), Work(2 * flops, 0, (y + w + x) + (y + x + w))


def attention(shape: Shape) -> tuple[Work, Work]:
    """Tiled causal attention; the backward recomputes the scores (Dao 2023, algorithm 2)."""
    pairs = shape.batch_size * shape.heads * shape.context * (shape.context + 1) // 2
    product = 2 * pairs * shape.width // shape.heads
    activation, row_sums = BF16 * shape.tokens * shape.width, FP32 * shape.tokens * shape.heads
    forward = Work(2 * product, 5 * pairs, 4 * activation + row_sums)
    return forward, Work(5 * product, 8 * pairs, 8 * activation + row_sums)


def rotation(shape: Shape) -> tuple[Work, Work]:
    """Rotation of q and k; in the backward, of their gradients, which are concatenated with that of v."""
    elements = shape.tokens * shape.width
    table = FP32 * shape.context * shape.width // shape.heads
    flops = 3 * 2 * elements
    return Work(0, flops, 4 * BF16 * elements + table), Work(0, flops, 6 * BF16 * elements + table)


def norms(shape: Shape) -> tuple[Work, Work]:
    """All norms with the residual adds before them; their backward with the sums of gradients."""
    elements, count = shape.tokens * shape.width, 2 * shape.layers + 1
    statistics = 2 * FP32 * shape.tokens
    adds = (count - 1) * elements * (FP32 + BF16 + FP32)
    forward = Work(0, 9 * count * elements, adds + count * (BF16 * elements + statistics))
    # Each reads the output gradient, its input and the residual gradient, and writes the latter in both dtypes. The
    # last norm finds no residual gradient yet, and no matrix product uses that of the first.
    each = BF16 + FP32 + FP32 + FP32 + BF16
    return forward, Work(0, 13 * count * elements, (count * each - FP32 - BF16) * elements + count * statistics)


def cross_entropy(shape: Shape) -> tuple[Work, Work]:
    """One pass over the logits for the sums, and one that overwrites them with their gradient."""
    logits = shape.tokens * shape.vocab_size
    rows = shape.tokens * (INT64 + FP32)
    return Work(0, 4 * logits, BF16 * logits + rows), Work(0, 4 * logits, 2 * BF16 * logits + rows)


def head(shape: Shape, chunk: int | None) -> tuple[Work, Work]:
    """The matrix product of the output.

    With chunks of tokens, each reads the matrix again, and its gradient is accumulated in fp32.
    """
    forward, backward = linear(shape.tokens, shape.width, shape.vocab_size)
    again, matrix = -(-shape.tokens // (chunk or shape.tokens)) - 1, shape.vocab_size * shape.width
    return (
        Work(forward.matmul, 0, forward.bytes + again * BF16 * matrix),
        Work(backward.matmul, 0, backward.bytes + again * (BF16 + 2 * FP32) * matrix),
    )


def embedding(shape: Shape) -> tuple[Work, Work]:
    """One row per token; the backward scatters rows into zeros, and adds these to the output matrix's gradient."""
    elements, table = shape.tokens * shape.width, shape.vocab_size * shape.width
    ids = INT64 * shape.tokens
    forward = Work(0, 0, ids + 2 * FP32 * elements)
    return forward, Work(0, elements + table, ids + 3 * FP32 * elements + 2 * FP32 * table)


def parts(shape: Shape, chunk: int | None = None) -> list[Part]:
    """The parts of a step: forward, backward in the same order, update.

    Args:
        shape: of the model and the batch.
        chunk: tokens per chunk of logits, whose gradients are computed at once; None for a single chunk.
    """
    tokens, width, layers = shape.tokens, shape.width, shape.layers
    inner = 4 * tokens * width
    passes: dict[str, tuple[Work, Work]] = {
        "casts of weights": (
            Work(0, 0, (FP32 + BF16) * shape.matrices),
            Work(0, 0, (BF16 + FP32) * shape.matrices),  # of their gradients
        ),
        "embedding": embedding(shape),
        "norms and residual adds": norms(shape),
        "query, key, value matmul": _each(layers, linear(tokens, width, 3 * width)),
        "rotation": _each(layers, rotation(shape)),
        "attention": _each(layers, attention(shape)),
        "attention output matmul": _each(layers, linear(tokens, width, width)),
        "feed-forward up matmul": _each(layers, linear(tokens, width, 4 * width)),
        "GELU": _each(layers, (Work(0, 20 * inner, 2 * BF16 * inner), Work(0, 30 * inner, 3 * BF16 * inner))),
        "feed-forward down matmul": _each(layers, linear(tokens, 4 * width, width)),
        "output head matmul": head(shape, chunk),
        "cross-entropy": cross_entropy(shape),
    }
    weights = shape.parameters
    update = {
        "gradient clipping": Work(0, 3 * weights, (1 + 2) * FP32 * weights),  # read for the norm, then scaled
        "AdamW": Work(
            0, 15 * weights, (4 + 3) * FP32 * weights
        ),  # reads weight, gradient and two moments; writes all but the gradient
    }
    return [
        *(Part(name, "forward", forward) for name, (forward, _) in passes.items()),
        *(Part(name, "backward", backward) for name, (_, backward) in passes.items()),
        *(Part(name, "update", work) for name, work in update.items()),
    ]


def _each(layers: int, passes: tuple[Work, Work]) -> tuple[Work, Work]:
    forward, backward = passes
    return forward.times(layers), backward.times(layers)


def saved(shape: Shape) -> dict[str, int]:
    """Bytes of activations saved for the backward; only cheap arithmetic within a kernel is recomputed."""
    element = shape.tokens * shape.width
    norm_count, layers = 2 * shape.layers + 1, shape.layers
    return {
        "inputs of the norms": norm_count * FP32 * element,
        "outputs of the norms": norm_count * BF16 * element,
        # v is a view of the projection's output and keeps all of it in memory.
        "queries, keys, values": layers * 3 * BF16 * element,
        "queries and keys, rotated": layers * 2 * BF16 * element,
        "outputs of attention": layers * (BF16 * element + FP32 * shape.tokens * shape.heads),
        "feed-forward, before and after GELU": layers * 2 * BF16 * 4 * element,
    }


def peak_memory(shape: Shape, chunk: int | None = None) -> dict[str, int]:
    """Bytes at the peak, which is the start of the backward.

    The gradients of the weights do not exist yet; they replace saved activations, which are larger. With chunks, the
    gradients of the output matrix and of its input do exist.
    """
    logits = BF16 * min(shape.tokens, chunk or shape.tokens) * shape.vocab_size
    computed = BF16 * shape.tokens * shape.width + FP32 * shape.vocab_size * shape.width if chunk else 0
    return {
        "weights": FP32 * shape.parameters,
        "moments of AdamW": 2 * FP32 * shape.parameters,
        "weights in bfloat16": BF16 * shape.matrices,
        **saved(shape),
        "logits": logits,
        "gradient of the logits": logits,
        **({"gradients of the head": computed} if chunk else {}),
    }
