"""The rotations that benchmarks/rotary.py compares, and the exact one that each of them must be."""

import sys
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
"""Of the check in float32. Angles in float32 are off by up to 6e-8 T, which moves channels of size 5 by 3e-7 T."""


class Size(NamedTuple):
    """Batch, heads, length and head dimension."""

    batch: int
    heads: int
    length: int
    head_dim: int

    @classmethod
    def read(cls, text: str) -> "Size":
        """From BxHxTxDh.

        Raises:
            ValueError: if it is not four positive numbers, the last of them even.
        """
        numbers = [int(number) for number in text.split("x") if number.isdecimal()]
        if text.count("x") != 3 or len(numbers) != 4 or min(numbers) < 1 or numbers[3] % 2:
            raise ValueError(f"{text} must be like 16x4x256x32, with an even head dimension")
        return cls(*numbers)

    def text(self) -> str:
        return "x".join(map(str, self))

    def moved(self, dtype: torch.dtype) -> int:
        """Bytes: q and k, read and written, forward and backward."""
        return 2 * 2 * 2 * self.batch * self.heads * self.length * self.head_dim * dtype.itemsize


def exact(x: Tensor, layout: Layout, backward: bool = False) -> Tensor:
    """x (B, H, T, Dh) turned as RoFormer's equation 34 says, in float64 and complex numbers; backward turns back."""
    length, head_dim = x.shape[-2:]
    theta = BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=x.device) / head_dim)
    angle = torch.arange(length, dtype=torch.float64, device=x.device)[:, None] * theta
    turn = torch.polar(torch.ones_like(angle), -angle if backward else angle)
    planes = torch.complex(*LAYOUTS[layout].split(x.double())) * turn
    return LAYOUTS[layout].join(planes.real, planes.imag)


class Contender(NamedTuple):
    """A way to turn q and k.

    Attributes:
        name: in the table.
        module: what must be importable.
        package: what it is called in the package index, for its version.
        layout: which channels form a plane.
        devices: where it runs.
        compiles: whether torch.compile has something to do.
        build: q (B, H, T, Dh), for its size, type and device -> the rotation.
    """

    name: str
    module: str
    package: str
    layout: Layout
    devices: Sequence[str]
    compiles: bool
    build: Callable[[Tensor], Rotate]


def ours(q: Tensor, layout: Layout) -> Rotate:
    """pos=rope, as attention calls it."""
    scheme = Rotary(q.shape[-1], base=BASE, layout=layout).to(q.device)
    positions = torch.arange(q.shape[-2], device=q.device)
    return lambda q, k: scheme.rotate(q, k, positions)


def rotary_embedding_torch(q: Tensor) -> Rotate:
    """Its module, which keeps the angles after the first call."""
    from rotary_embedding_torch import RotaryEmbedding

    module = RotaryEmbedding(q.shape[-1], theta=BASE, cache_max_seq_len=q.shape[-2]).to(q.device)
    return lambda q, k: (module.rotate_queries_or_keys(q), module.rotate_queries_or_keys(k))


def _llama_table(q: Tensor) -> Pair:
    """cos and sin of transformers' Llama, (1, T, Dh), in the type of q, as in a model with weights of that type."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    heads, length, head_dim = q.shape[1:]
    rope = {"rope_type": "default", "rope_theta": BASE}
    config = LlamaConfig(num_attention_heads=heads, hidden_size=heads * head_dim, rope_parameters=rope)
    return LlamaRotaryEmbedding(config).to(q.device)(q, torch.arange(length, device=q.device)[None])


def transformers(q: Tensor) -> Rotate:
    """Llama's function, with its table made before."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = _llama_table(q)
    return lambda q, k: apply_rotary_pos_emb(q, k, cos, sin)


def liger(q: Tensor) -> Rotate:
    """liger-kernel's, with the same table. It turns q and k, and their gradients, in place."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    cos, sin = _llama_table(q)
    return lambda q, k: liger_rotary_pos_emb(q, k, cos, sin)


ANYWHERE = ("cpu", "cuda")
CONTENDERS = [
    *(
        Contender(f"posenc, {layout}", "posenc", "posenc", layout, ANYWHERE, True, partial(ours, layout=layout))
        for layout in LAYOUTS
    ),
    Contender(
        "rotary-embedding-torch",
        "rotary_embedding_torch",
        "rotary-embedding-torch",
        "interleaved",
        ANYWHERE,
        True,
        rotary_embedding_torch,
    ),
    Contender("transformers (Llama)", "transformers", "transformers", "half", ANYWHERE, True, transformers),
    Contender("liger-kernel", "liger_kernel", "liger-kernel", "half", ("cuda",), False, liger),
]


def vectors(size: Size, dtype: torch.dtype, device: torch.device, seed: int) -> Pair:
    """Two normal (B, H, T, Dh) that lie as (B, T, H, Dh)."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (2, size.batch, size.length, size.heads, size.head_dim)
    first, second = torch.randn(shape, generator=generator, device=device).to(dtype).transpose(2, 3)
    return first, second


def largest_error(rotate: Rotate, layout: Layout, q: Tensor, k: Tensor, gradients: Pair) -> float:
    """Of any channel of q, k and their gradients against float64."""
    arguments = [x.clone().requires_grad_() for x in (q, k)]
    turned = rotate(*arguments)
    wanted = [exact(x, layout) for x in (q, k)] + [exact(x, layout, backward=True) for x in gradients]
    back = torch.autograd.grad(turned, arguments, [x.clone() for x in gradients])
    return max((got.double() - true).abs().max().item() for got, true in zip([*turned, *back], wanted, strict=True))


def rounding_error(q: Tensor, k: Tensor, gradients: Pair) -> float:
    """What `largest_error` cannot go below: the exact result in the type of q."""
    layout: Layout = "half"  # rounding does not know the order of the channels
    every = [exact(x, layout) for x in (q, k)] + [exact(x, layout, backward=True) for x in gradients]
    return max((true.to(q.dtype).double() - true).abs().max().item() for true in every)


def usable(device: torch.device, compiled: bool) -> list[Contender]:
    """The contenders that work here; of the others, a sentence is printed."""
    able = []
    for contender in CONTENDERS:
        fault = fault_of(contender, device, compiled)
        if fault is None:
            able.append(contender)
        else:
            print(f"{contender.name} is left out: {fault}", file=sys.stderr)
    return able


def fault_of(contender: Contender, device: torch.device, compiled: bool) -> str | None:
    """Why a contender cannot be compared, or None if it can."""
    if device.type not in contender.devices:
        return f"it does not run on {device.type}"
    if find_spec(contender.module) is None:
        return f"{contender.package} is not installed"
    try:
        error = max(alike(contender, device, through) for through in {False, compiled and contender.compiles})
    except Exception as error_of_theirs:
        return f"{type(error_of_theirs).__name__}: {first_line(error_of_theirs)}"
    return f"in float32 it is {error:.2g} from the rotation" if error > TOLERANCE else None


def alike(contender: Contender, device: torch.device, compiled: bool) -> float:
    """Its largest error in float32, at a small size."""
    size = Size(2, 4, 512, 64)
    q, k = vectors(size, torch.float32, device, seed=0)
    gradients = vectors(size, torch.float32, device, seed=1)
    rotate = contender.build(q)
    if compiled:
        rotate = torch.compile(rotate, dynamic=False)
    return largest_error(rotate, contender.layout, q, k, gradients)
