import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from posenc.model import Transformer
from posenc.objectives.objective import loss
from posenc.positions import Rotary
from tests.benchmarks.scripts import module

costs = module("costs")
FP32, Shape, saved, parts, peak_memory = costs.FP32, costs.Shape, costs.saved, costs.parts, costs.peak_memory

BASE = Shape(layers=12, width=768, heads=12, vocab_size=50_304, context=1024, batch_size=32)


def model_of(shape: Any) -> Transformer:
    scheme = Rotary(shape.width // shape.heads)
    return Transformer(shape.vocab_size, shape.context, shape.layers, shape.width, shape.heads, scheme)


@st.composite
def shapes(draw: st.DrawFn) -> Any:
    """Small ones, in which any two sizes may differ."""
    heads, half = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    return Shape(
        layers=draw(st.integers(1, 3)),
        width=2 * half * heads,
        heads=heads,
        vocab_size=draw(st.integers(5, 99)),
        context=draw(st.integers(4, 40)),
        batch_size=draw(st.integers(1, 4)),
    )


def flops_of(shape: Any) -> dict[str, int]:
    """Torch's count for a forward and a backward, by operation, on the meta device."""
    model = model_of(shape).to("meta")
    tokens = torch.zeros(shape.batch_size, shape.context, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        loss(model(tokens), tokens).backward()
    return {str(operation): flops for operation, flops in counter.get_flop_counts()["Global"].items()}


def matmuls(shape: Any, name: str) -> int:
    return sum(part.work.matmul for part in parts(shape) if name in part.name)


@settings(max_examples=20)
@given(shape=shapes())
def test_torch_counts_as_many_flops_in_matrix_products_and_in_attention(shape):
    counted = flops_of(shape)
    assert matmuls(shape, "matmul") == counted["aten.mm"]
    # torch counts attention as MFU's formula does: over all pairs, and without recomputation.
    assert counted["aten.bmm"] == 12 * shape.layers * shape.width * shape.context * shape.tokens
    # Of T x T pairs T (T + 1) / 2 are not masked, in 7 products where the formula has 6.
    assert matmuls(shape, "attention") - matmuls(shape, "attention output") == pytest.approx(
        counted["aten.bmm"] * (shape.context + 1) / (2 * shape.context) * 7 / 6, rel=1e-12
    )


def test_the_mfu_count_of_base_is_torchs_except_for_the_norm_weights():
    counted = sum(flops_of(BASE).values())
    assert BASE.flops_per_token * BASE.tokens - counted == 6 * BASE.norm_weights * BASE.tokens
    assert BASE.flops_per_token * BASE.tokens == pytest.approx(counted, rel=2e-4)


@given(shape=shapes())
def test_parameters_are_those_of_the_model(shape):
    assert shape.parameters == sum(weight.numel() for weight in model_of(shape).parameters())


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_compiled_layers_save_what_is_counted():
    # Longer than 2,048, where the CPU uses tiled attention, too.
    shape = Shape(layers=2, width=64, heads=2, vocab_size=96, context=2112, batch_size=1)
    model = model_of(shape)

    def losses(tokens: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(model(tokens), tokens)

    tokens = torch.zeros(shape.batch_size, shape.context, dtype=torch.long)
    # The compiler's own choice of what to save, without the minutes of generating kernels.
    torch.compiler.reset()
    with sizes_of_saved() as sizes:
        torch.compile(losses, fullgraph=True, backend="aot_eager_decomp_partition")(tokens)
    element = shape.tokens * shape.width
    counted = peak_memory(shape)
    expected = sum(saved(shape).values()) + counted["logits"] + counted["weights in bfloat16"]
    # The CPU's attention writes its output in a layout that the next product cannot read, so it is saved twice.
    expected += shape.layers * 2 * element
    inputs = (
        4096 * 16 * FP32 + (2 * 8 * shape.tokens) + FP32 * shape.norm_weights
    )  # angles, tokens, weights of the norms
    assert sum(sizes.values()) == pytest.approx(expected + inputs, rel=0.02)


@contextlib.contextmanager
def sizes_of_saved() -> Iterator[dict[int, int]]:
    """The bytes of every memory block that autograd saves, by its address."""
    sizes: dict[int, int] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        yield sizes


def test_chunks_change_no_flops_and_shrink_the_logits_in_memory():
    whole, chunked = parts(BASE), parts(BASE, chunk=4096)
    assert [part.work.matmul for part in whole] == [part.work.matmul for part in chunked]
    assert peak_memory(BASE, chunk=4096)["logits"] * 8 == peak_memory(BASE)["logits"]
    assert parts(BASE, chunk=BASE.tokens) == whole


def test_work_grows_with_the_batch_and_the_update_does_not():
    twice = Shape(**{**vars(BASE), "batch_size": 2 * BASE.batch_size})
    for one, two in zip(parts(BASE), parts(twice), strict=True):
        if one.stage == "update" or one.name == "casts of weights":
            assert two == one
        else:
            assert two.work.matmul == 2 * one.work.matmul
            assert one.work.bytes < two.work.bytes <= 2 * one.work.bytes
