"""Device, precision and compilation of a run; "auto" chooses them for the machine."""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from annotated_types import Ge, Le
from torch import Tensor

from posenc.bounds import PositiveInt
from posenc.compat import compiler_error
from posenc.distributed import this_rank
from posenc.errors import RunError, UserError, first_line, out_of_memory
from posenc.model import Transformer
from posenc.objectives.objective import loss_of
from posenc.training.step import Loss

Precision = Literal["auto", "32-true", "bf16-mixed"]

LAUNCH_SECONDS = 0.005
"""Minimum duration of an uncompiled step per layer, due to kernel launches: a default run of 300 steps took 6 s on an
H200."""

UNCOMPILED_FLOPS = 2e14
"""FLOP/s of uncompiled steps on a large GPU: a fifth of an H200's peak in bf16."""

MIN_SECONDS_TO_COMPILE = 60.0
"""Estimated time of uncompiled steps above which a run is compiled. Compiling takes 23 s for a tiny model on
an H100, and makes its steps 55 % shorter: at 60 s it has paid off. On a smaller GPU steps take longer than estimated,
so compiling pays off there too."""


CPU_RANKS = 8
"""Maximum number of ranks on a CPU with fewer cores: a typo must not start thousands of processes."""


@contextmanager
def compiler_errors() -> Iterator[None]:
    """Context for compiled steps.

    Raises:
        RunError: in place of the errors of torch.compile.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, compiler_error()) or out_of_memory(error):
            raise
        reason = f"torch.compile failed ({first_line(error)})"
        raise RunError(f"{reason}: trainer.compile=false trains without it") from error


@dataclass(frozen=True)
class Hardware:
    """Device, precision and compilation; conf/trainer explains each argument.

    Raises:
        ValueError: if the device is not available, or `cuda_graphs` is not possible.
    """

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    precision: Precision = "auto"
    compile: bool | Literal["auto"] = "auto"
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        best = best_device()
        if self.accelerator not in ("auto", "cpu") and (best.type == "cpu" or self.device != best):
            raise ValueError(f"accelerator={self.accelerator}: this machine has none; use auto or cpu")
        if self.cuda_graphs and not (self.compiles() and self.device.type == "cuda"):
            raise ValueError("cuda_graphs=True needs a compiled model on a CUDA GPU")

    @property
    def device(self) -> torch.device:
        """The type of device in use."""
        return best_device() if self.accelerator in ("auto", "gpu") else torch.device(self.accelerator)

    def world_size(self) -> int:
        """The number of ranks, with one device each.

        Raises:
            UserError: if a different number has been started.
        """
        started = this_rank().world_size
        if started > 1:
            raise UserError(f"{started} ranks were started, but this trainer uses one: use trainer=ddp or trainer=fsdp")
        return 1

    def strategy(self) -> Any:
        """Lightning's strategy."""
        return "auto"

    def loss(self, model: Transformer) -> Loss:
        """The loss function of a model, on inputs and targets (B, T) on this rank's device."""
        return self.compiled(lambda inputs, targets: loss_of(model, inputs, targets))

    def unsharded(self, loss: Loss, layers: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """Context in which this rank has all weights of the loss function's model, or all but those of its layers."""
        return nullcontext()

    def full_model(self, model: Transformer, run: Path) -> Transformer:  # noqa: ARG002
        """The trained model with all of its weights, from memory or from the last checkpoint of its run."""
        return model

    def choose_compile(self, steps: int, tokens: int, layers: int, weights: int) -> Self:
        """Resolve compile="auto" for a run, and print the choice. `tokens` is per step and device.

        `weights` does not count those of the position scheme, so that all schemes are compiled or none. A warm cache is
        not considered: torch cannot tell, before it has traced a graph, whether its cache holds it.
        """
        if self.compile != "auto" or self.cuda_graphs or self.device.type != "cuda":
            return self
        seconds = steps * max(layers * LAUNCH_SECONDS, 6 * weights * tokens / UNCOMPILED_FLOPS)
        pays_off = seconds >= MIN_SECONDS_TO_COMPILE
        why = f"about {seconds:.0f} s of uncompiled steps on a large GPU; worth it from {MIN_SECONDS_TO_COMPILE:.0f} s"
        other = f"trainer.compile={str(not pays_off).lower()} overrides this"
        print(f"{'Compiled' if pays_off else 'Not compiled'} (trainer.compile=auto): {why}; {other}.")
        return replace(self, compile=pays_off)

    def compiles(self) -> bool:
        """Whether model and loss are compiled."""
        return self.device.type == "cuda" if self.compile == "auto" else self.compile

    def compiled(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The function, compiled if compilation is enabled: one graph per input shape."""
        # Linear attention disables autocast. TF32 is still more precise than bf16, and many times faster than fp32,
        # about which the compiler would warn. The process may have the setting of an earlier run of a sweep.
        tf32 = self.device.type == "cuda" and self.chosen_precision() == "bf16-mixed"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        if not self.compiles():
            return function
        # A sweep is one process, and torch stops compiling a function that has been recompiled for many schemes.
        torch.compiler.reset()
        if not self.cuda_graphs:
            return torch.compile(function, fullgraph=True, dynamic=False)
        graphed = torch.compile(function, fullgraph=True, dynamic=False, mode="reduce-overhead")

        def step(*inputs: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()  # the output of the last call may be overwritten
            return graphed(*inputs)

        return step

    def chosen_precision(self) -> Literal["32-true", "bf16-mixed"]:
        """The precision in use."""
        if self.precision != "auto":
            return self.precision
        return "bf16-mixed" if multiplies_bf16(self.device) else "32-true"


@dataclass(frozen=True)
class DataParallel(Hardware):
    """Distributed data parallel (Li et al. 2020): each device has the full model, and gradients are averaged.

    The batches, their order and the loss are those of a single device. The ranks may have been started by torchrun or
    srun, on one node or several; otherwise they are started here.

    Raises:
        ValueError: if the device is not available or is MPS, or with cuda_graphs.
    """

    devices: PositiveInt | Literal["auto"] = "auto"
    timeout: Annotated[float, Ge(1), Le(10**7)] = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cuda_graphs:
            raise ValueError("cuda_graphs=True is for one device: DDP cannot communicate inside a CUDA graph")
        if self.device.type == "mps":
            raise ValueError(f"accelerator={self.accelerator}: DDP and FSDP need CUDA GPUs or the CPU; use cpu")

    def world_size(self) -> int:
        """The number of ranks over all nodes.

        Raises:
            UserError: if the number started on this node is not `devices`, is more than it can have, or differs between
                nodes.
        """
        rank = this_rank()
        gpus = torch.cuda.device_count() if self.device.type == "cuda" else 0
        most = gpus or max(CPU_RANKS, os.cpu_count() or 1)
        wanted = rank.local_world_size if rank.world_size > 1 else self.devices
        if wanted != "auto" and wanted > most:
            each = "one for each GPU that this process sees (with srun: --gpus-per-node, not --gpus-per-task)"
            raise UserError(f"{wanted} ranks on this machine: the maximum is {most}{f', {each}' if gpus else ''}")
        if rank.world_size == 1:
            return gpus or 1 if self.devices == "auto" else self.devices
        if self.devices not in ("auto", rank.local_world_size):
            started = f"{rank.local_world_size} ranks were started on this machine"
            raise UserError(f"trainer.devices={self.devices}: {started}; leave it at auto")
        if rank.world_size % rank.local_world_size:
            raise UserError(f"{rank.world_size} ranks were started, not the same number on each machine")
        return rank.world_size

    def strategy(self) -> Any:
        """Lightning's strategy."""
        from lightning.pytorch.strategies import DDPStrategy

        timeout = timedelta(seconds=self.timeout)
        return DDPStrategy(gradient_as_bucket_view=True, broadcast_buffers=False, timeout=timeout)


class FullySharded(DataParallel):
    """FSDP: weights, gradients and optimiser state are sharded (Rajbhandari et al. 2020, ZeRO stage 3).

    Each layer's weights are gathered when needed, in fp32, so that a step in bf16-mixed equals that of one device.
    """

    def strategy(self) -> Any:
        """Lightning's strategy."""
        from posenc.training.fsdp import FullCheckpointStrategy

        return FullCheckpointStrategy(
            data_parallel_size=this_rank().world_size,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            timeout=timedelta(seconds=self.timeout),
        )

    def loss(self, model: Transformer) -> Loss:
        """The loss function; shards the model's weights, and compiles each layer separately."""
        from posenc.training.fsdp import ShardedLoss

        return ShardedLoss(model, self.device, self.compiled)

    def unsharded(self, loss: Loss, layers: bool) -> AbstractContextManager[None]:
        """As in `Hardware`. All ranks must enter it."""
        return loss.unsharded(layers)  # type: ignore[attr-defined]  # it is a ShardedLoss

    def full_model(self, model: Transformer, run: Path) -> Transformer:  # noqa: ARG002
        """From the last checkpoint, since this rank has only a shard in memory."""
        from posenc.evaluation.load import load

        return load(run).model


def best_device() -> torch.device:
    """The machine's GPU if it has one, otherwise the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def multiplies_bf16(device: torch.device) -> bool:
    """Whether a device has bf16 matmul instructions: compute capability 8.0, AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    capabilities = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next step; does nothing with other C libraries.

    Otherwise large tensors are returned to the system and page-faulted in again in every step.
    """
    m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
    with suppress(OSError, AttributeError):
        c_library = ctypes.CDLL("libc.so.6")
        c_library.mallopt(m_trim_threshold, 2**31 - 1)
        c_library.mallopt(m_mmap_max, 0)
