"""The rotary implementations that benchmarks/rotary.py compares, and a float64 reference."""

import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.errors import first_line
from posenc.positions import Rotary
from posenc.positions.apply_rotary import LAYOUTS, Layout

Pair = tuple[Tensor, Tensor]
Rotate = Callable[[Tensor, Tensor], Pair]

BASE = 10_000.0
TOLERANCE = 0.01
"""Largest error in fp32. Angles in fp32 are off by up to 6e-8 T, which changes channels of size 5 by 3e-7 T."""


class Size(NamedTuple):
    """Batch, heads, length and head dimension."""

    batch: int
    heads: int
    length: int
    head_dim: int

    @classmethod
    def parse(cls, text: str) -> "Size":
        """Parse BxHxTxDh.

        Raises:
            ArgumentTypeError: if it is not four positive integers, the last one even.
        """
        numbers = [int(number) for number in text.split("x") if number.isdecimal()]
        if text.count("x") != 3 or len(numbers) != 4 or min(numbers) < 1 or numbers[3] % 2:
            raise ArgumentTypeError(f"{text} must be like 16x4x256x32, with an even head dimension")
        return cls(*numbers)

    def text(self) -> str:
        return "x".join(map(str, self))

    def bytes_moved(self, dtype: torch.dtype) -> int:
        """q and k, read and written, forward and backward."""
        return 2 * 2 * 2 * self.batch * self.heads * self.length * self.head_dim * dtype.itemsize


def reference(x: Tensor, layout: Layout, backward: bool = False) -> Tensor:
    """RoFormer's equation 34 on x (B, H, T, Dh), with complex numbers in float64; backward is the inverse rotation."""
    length, head_dim = x.shape[-2:]
    theta = BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=x.device) / head_dim)
    angle = torch.arange(length, dtype=torch.float64, device=x.device)[:, None] * theta
    rotation = torch.polar(torch.ones_like(angle), -angle if backward else angle)
    planes = torch.complex(*LAYOUTS[layout].split(x.double())) * rotation
    return LAYOUTS[layout].join(planes.real, planes.imag)


class Implementation(NamedTuple):
    """A rotary implementation.

    Attributes:
        name: in the table.
        package: its name in the package index.
        layout: of the channel pairs.
        build: q (B, H, T, Dh), for its shape, dtype and device -> the rotation.
        devices: that it supports.
        compiles: whether torch.compile can optimise it.
    """

    name: str
    package: str
    layout: Layout
    build: Callable[[Tensor], Rotate]
    devices: Sequence[str] = ("cpu", "cuda")
    compiles: bool = True

    @property
    def installed(self) -> bool:
        return find_spec(self.package.replace("-", "_")) is not None


def ours(q: Tensor, layout: Layout) -> Rotate:
    """pos=rope, as attention calls it."""
    scheme = Rotary(q.shape[-1], base=BASE, layout=layout).to(q.device)
    positions = torch.arange(q.shape[-2], device=q.device)
    return lambda q, k: scheme.rotate(q, k, positions)


def rotary_embedding_torch(q: Tensor) -> Rotate:
    """Its module, which caches the angles after the first call."""
    from rotary_embedding_torch import RotaryEmbedding

    module = RotaryEmbedding(q.shape[-1], theta=BASE, cache_max_seq_len=q.shape[-2]).to(q.device)
    return lambda q, k: (module.rotate_queries_or_keys(q), module.rotate_queries_or_keys(k))


def _llama_table(q: Tensor) -> Pair:
    """cos and sin of transformers' Llama, (1, T, Dh), in the dtype of q, as in a model with such weights."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    heads, length, head_dim = q.shape[1:]
    rope = {"rope_type": "default", "rope_theta": BASE}
    config = LlamaConfig(num_attention_heads=heads, hidden_size=heads * head_dim, rope_parameters=rope)
    return LlamaRotaryEmbedding(config).to(q.device)(q, torch.arange(length, device=q.device)[None])


def transformers(q: Tensor) -> Rotate:
    """Llama's function, with a precomputed table."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = _llama_table(q)
    return lambda q, k: apply_rotary_pos_emb(q, k, cos, sin)


def liger(q: Tensor) -> Rotate:
    """liger-kernel's, with the same table. It rotates q and k, and their gradients, in place."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    cos, sin = _llama_table(q)
    return lambda q, k: liger_rotary_pos_emb(q, k, cos, sin)


IMPLEMENTATIONS = [
    *(Implementation(f"posenc, {layout}", "posenc", layout, partial(ours, layout=layout)) for layout in LAYOUTS),
    Implementation("rotary-embedding-torch", "rotary-embedding-torch", "interleaved", rotary_embedding_torch),
    Implementation("transformers (Llama)", "transformers", "half", transformers),
    Implementation("liger-kernel", "liger-kernel", "half", liger, devices=("cuda",), compiles=False),
]


def vectors(size: Size, dtype: torch.dtype, device: torch.device, seed: int) -> Pair:
    """Two normal tensors (B, H, T, Dh), laid out in memory as (B, T, H, Dh)."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (2, size.batch, size.length, size.heads, size.head_dim)
    first, second = torch.randn(shape, generator=generator, device=device).to(dtype).transpose(2, 3)
    return first, second


def _references(layout: Layout, q: Tensor, k: Tensor, gradients: Pair) -> list[Tensor]:
    return [reference(x, layout) for x in (q, k)] + [reference(x, layout, backward=True) for x in gradients]


def largest_error(rotate: Rotate, layout: Layout, q: Tensor, k: Tensor, gradients: Pair) -> float:
    """Over all channels of q, k and their gradients, against float64."""
    arguments = [x.clone().requires_grad_() for x in (q, k)]
    rotated = rotate(*arguments)
    expected = _references(layout, q, k, gradients)
    back = torch.autograd.grad(rotated, arguments, [x.clone() for x in gradients])
    return max((got.double() - true).abs().max().item() for got, true in zip([*rotated, *back], expected, strict=True))


def rounding_error(q: Tensor, k: Tensor, gradients: Pair) -> float:
    """Lower bound of `largest_error`: that of the float64 result rounded to the dtype of q, in any layout."""
    every = _references("half", q, k, gradients)
    return max((true.to(q.dtype).double() - true).abs().max().item() for true in every)


def available(device: torch.device, compiled: bool) -> list[Implementation]:
    """The implementations that work here; prints why others are skipped."""
    working = []
    for implementation in IMPLEMENTATIONS:
        reason = reason_to_skip(implementation, device, compiled)
        if reason is None:
            working.append(implementation)
        else:
            print(f"{implementation.name} skipped: {reason}", file=sys.stderr)
    return working


def reason_to_skip(implementation: Implementation, device: torch.device, compiled: bool) -> str | None:
    """Why an implementation cannot be compared; None if it can."""
    if device.type not in implementation.devices:
        return f"it does not support {device.type}"
    if not implementation.installed:
        return f"{implementation.package} is not installed"
    try:
        error = max(
            fp32_error(implementation, device, through) for through in {False, compiled and implementation.compiles}
        )
    except Exception as failure:
        return f"{type(failure).__name__}: {first_line(failure)}"
    return f"its error in fp32 is {error:.2g}" if error > TOLERANCE else None


def fp32_error(implementation: Implementation, device: torch.device, compiled: bool) -> float:
    """Largest error in fp32 at a small size."""
    size = Size(2, 4, 512, 64)
    q, k = vectors(size, torch.float32, device, seed=0)
    gradients = vectors(size, torch.float32, device, seed=1)
    rotate = implementation.build(q)
    if compiled:
        rotate = torch.compile(rotate, dynamic=False)
    return largest_error(rotate, implementation.layout, q, k, gradients)
