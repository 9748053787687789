"""Batch k as a pure function of (corpus fingerprint, seed, k, batch size), without sampler state."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from posenc.data.tokens import Tokens


@dataclass(frozen=True)
class Batches:
    """Training windows sampled uniformly from a split by a counter-based generator (Philox; Salmon et al. 2011).

    Args:
        batch_size: windows per batch, over all devices.
        noise_per_token: random numbers that the objective needs for each token, at most 2.
        resident: all tokens of the split on the training device, if they fit.
        pinned: whether batches and noise are in pinned memory, which is copied to a CUDA GPU asynchronously.
    """

    tokens: Tokens
    seed: int
    batch_size: int
    window: int
    noise_per_token: int = 0
    resident: Tensor | None = None
    pinned: bool = False

    def on(self, device: torch.device) -> "Batches":
        """The same batches, on a CUDA GPU gathered there if all tokens fit into a quarter of its free memory."""
        if device.type != "cuda":
            return self
        fits = self.tokens.ids.nbytes <= torch.cuda.mem_get_info(device)[0] / 4
        return replace(self, resident=copy_to(self.tokens, device) if fits else None, pinned=True)

    def starts(self, step: int) -> np.ndarray:
        """Start positions of the windows of batch `step`: (batch_size,)."""
        words = _words(f"{self.tokens.fingerprint}/{self.seed}", step, self.batch_size)
        return (words % np.uint64(len(self.tokens) - self.window + 1)).astype(np.int64)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Tensor:
        """Batch `step`, or one device's share of it: (batch_size / world, window) int64."""
        starts = self.starts(step)[rank::world]
        if self.resident is None:
            return self._pinned(gather(self.tokens, starts, self.window))
        return gather_resident(self.resident, starts, self.window)

    def noise(self, step: int, rank: int = 0, world: int = 1) -> Tensor:
        """The objective's noise for that batch: (batch_size / world, window, noise_per_token) float32 in [0, 1)."""
        name = f"{self.tokens.fingerprint}/{self.seed}/noise"
        return self._pinned(_noise(name, step, self.batch_size, self.window, self.noise_per_token)[rank::world])

    def stream(self, first: int, last: int, rank: int = 0, world: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches first .. last-1, each with its noise."""
        return ((self.batch(step, rank, world), self.noise(step, rank, world)) for step in range(first, last))

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.pinned and tensor.numel() else tensor


def _words(name: str, step: int, count: int) -> np.ndarray:
    """(count,) random 64-bit words, the same for the same name and step."""
    key = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], dtype="<u8")
    # The counter's last word is the step, so no two steps share a block, however large the batch. Raw words are
    # stable across NumPy versions, which is not guaranteed for the methods of a Generator.
    return np.random.Philox(key=key, counter=[0, 0, 0, step]).random_raw(count)


def _noise(name: str, step: int, windows: int, length: int, per_token: int) -> Tensor:
    """Up to two numbers in [0, 1) per token: (windows, length, per_token) float32, 24 bits of a word each."""
    if not per_token:
        return torch.empty(windows, length, 0)
    words = _words(name, step, windows * length)
    shifts = np.array([40, 16], dtype=np.uint64)[:per_token]
    numbers = (words[:, None] >> shifts) & np.uint64(2**24 - 1)
    return torch.from_numpy((numbers * 2.0**-24).astype(np.float32)).view(windows, length, per_token)


def gather(tokens: Tokens, starts: np.ndarray, window: int) -> Tensor:
    """The windows that begin at starts (B,) -> (B, window) int64."""
    return torch.from_numpy(tokens.ids[starts[:, None] + np.arange(window)].astype(np.int64))


UPLOAD = 2**24
"""Tokens copied to a device at a time, since a corpus may be larger than host memory."""


def copy_to(tokens: Tokens, device: torch.device) -> Tensor:
    """All token ids on a device, (N,), with the same number of bytes per token as in the file."""
    # Torch can index only signed integers; `gather_resident` reinterprets the bits as unsigned.
    ids = tokens.ids.view(f"i{tokens.ids.itemsize}") if tokens.ids.itemsize > 1 else tokens.ids
    on_device = torch.empty(len(ids), dtype=torch.from_numpy(ids[:0].copy()).dtype, device=device)
    for start in range(0, len(ids), UPLOAD):
        on_device[start : start + UPLOAD] = torch.from_numpy(np.array(ids[start : start + UPLOAD]))
    return on_device


def gather_resident(ids: Tensor, starts: np.ndarray, window: int) -> Tensor:
    """As `gather`, on the device of ids; only the starts are copied there."""
    first = torch.from_numpy(starts).to(ids.device, non_blocking=True)
    return ids.unfold(0, window, 1)[first].long() & (256 ** ids.element_size() - 1)


def validation_windows(tokens: Tokens, count: int, window: int) -> Tensor:
    """The fixed validation windows: evenly spaced, not overlapping, (at most count, window) int64."""
    count = min(count, len(tokens) // window)
    starts = np.linspace(0, len(tokens) - window, count).astype(np.int64)
    return gather(tokens, starts, window)


def validation_noise(tokens: Tokens, windows: Tensor, per_token: int) -> Tensor:
    """The noise of validation windows, for any seed of the run: (windows, window) -> (windows, window, per_token)."""
    return _noise(f"{tokens.fingerprint}/noise", 0, len(windows), windows.shape[1], per_token)
