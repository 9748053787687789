"""What a run trains on: device, precision, compilation; chosen for the machine unless it is given."""

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from posenc.bounds import Positive, PositiveInt
from posenc.distributed import this_rank
from posenc.errors import UserError
from posenc.model import Transformer
from posenc.objectives.objective import loss_of
from posenc.training.step import Loss

Precision = Literal["auto", "32-true", "bf16-mixed"]

LAUNCHING = 0.01
"""Seconds that an uncompiled step takes at least: Python starts its kernels one by one."""

UNCOMPILED_FLOPS = 2e14
"""Operations a second of uncompiled steps on a large GPU: a fifth of an H200's peak in bf16."""

COMPILING_PAYS = 60.0
"""Seconds of uncompiled steps from which on a run is compiled. Compiling takes 10 s for a tiny model and half a minute
for a base one, less with a warm cache, and saves a third to a half of the steps' time: at 60 s it has paid for itself.
On a smaller GPU steps take longer than reckoned, so that nothing is compiled in vain there either."""


@dataclass(frozen=True)
class Hardware:
    """Device, precision and compilation.

    Args:
        accelerator: "auto" takes a GPU if there is one.
        precision: "auto" is bf16-mixed where the hardware multiplies bf16 matrices faster, otherwise 32-true.
        compile: whether model and loss go through torch.compile, as one graph; "auto" does so on a CUDA GPU, for a run
            in as far as `for_run` finds that it pays.
        cuda_graphs: whether a compiled step is recorded once and replayed as a whole, for models so small that
            starting each kernel takes longer than the kernel.

    Raises:
        ValueError: if there is no such device.
    """

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    precision: Precision = "auto"
    compile: bool | Literal["auto"] = "auto"
    cuda_graphs: bool = False

    def __post_init__(self) -> None:
        there = {
            "cuda": torch.cuda.is_available(),
            "mps": torch.backends.mps.is_available(),
            "gpu": torch.cuda.is_available() or torch.backends.mps.is_available(),
        }
        if not there.get(self.accelerator, True):
            raise ValueError(f"accelerator={self.accelerator}: this machine has none; use auto or cpu")
        if self.cuda_graphs and not (self.compiles() and self._may_use_cuda()):
            raise ValueError("cuda_graphs=True needs a compiled model on a CUDA GPU")

    def world_size(self) -> int:
        """How many ranks train together, with a device each.

        Raises:
            UserError: if that is not how many have been started.
        """
        started = this_rank().world_size
        if started > 1:
            raise UserError(f"{started} ranks were started, and this trainer is for one: trainer=ddp or trainer=fsdp")
        return 1

    def spread(self) -> dict[str, Any]:
        """What Lightning's trainer is told of the ranks: there is one, also where SLURM has something to say."""
        from lightning.pytorch.plugins.environments import LightningEnvironment

        return {"devices": 1, "plugins": [LightningEnvironment()]}

    def loss(self, model: Transformer, device: torch.device) -> Loss:  # noqa: ARG002
        """What gives the loss of a model, inputs and targets, (B, T) each, on this rank's device."""
        return self.compiled(lambda inputs, targets: loss_of(model, inputs, targets))

    def gathered(self, loss: Loss) -> AbstractContextManager[None]:  # noqa: ARG002
        """Inside, this rank has all weights of the model that the loss is of."""
        return nullcontext()

    def whole(self, model: Transformer, run: Path) -> Transformer:  # noqa: ARG002
        """The trained model with all of its weights, from memory or from the last checkpoint of its run."""
        return model

    def for_run(self, steps: int, tokens: int, parameters: int) -> Self:
        """The same with compile="auto" decided, and the choice printed if there is one.

        Args:
            steps: of the run.
            tokens: in a step, on each device.
            parameters: of the model.
        """
        if self.compile != "auto" or self.cuda_graphs or not self._may_use_cuda():
            return self
        seconds = steps * max(LAUNCHING, 6 * tokens * parameters / UNCOMPILED_FLOPS)
        pays = seconds >= COMPILING_PAYS
        why = f"about {seconds:.0f} s of uncompiled steps on a large GPU, and it pays from {COMPILING_PAYS:.0f} s on"
        print(f"{'Compiled' if pays else 'Not compiled'} (trainer.compile=auto): {why}.")
        return replace(self, compile=pays)

    def compiles(self) -> bool:
        """Whether model and loss are compiled."""
        return self._may_use_cuda() if self.compile == "auto" else self.compile

    def _may_use_cuda(self) -> bool:
        return self.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()

    def compiled(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The function, compiled if that is wanted: one graph for every shape of its inputs."""
        if self._may_use_cuda() and self.chosen_precision() == "bf16-mixed":
            # Linear attention's products stay out of autocast. In TF32 they are finer than all others of such a run,
            # and many times faster than in fp32, of which the compiler warns.
            torch.set_float32_matmul_precision("high")
        if not self.compiles():
            return function
        # A sweep is one process, and torch gives up compiling a function that has been compiled for many schemes.
        torch.compiler.reset()
        if not self.cuda_graphs:
            return torch.compile(function, fullgraph=True, dynamic=False)
        replayed = torch.compile(function, fullgraph=True, dynamic=False, mode="reduce-overhead")

        def marked(*inputs: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()  # what the last call returned may be written over
            return replayed(*inputs)

        return marked

    def chosen_precision(self) -> Any:
        """The precision in use: "32-true" or "bf16-mixed"."""
        if self.precision != "auto":
            return self.precision
        on_gpu = self.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        on_mps = self.accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available()
        fast = ampere_or_later() if on_gpu else not on_mps and cpu_multiplies_bf16()
        return "bf16-mixed" if fast else "32-true"


@dataclass(frozen=True)
class DataParallel(Hardware):
    """Every device has the whole model; gradients are averaged over all of them in every step (Li et al. 2020).

    The batches, their order and the loss are those of one device. torchrun or srun may have started the ranks, on one
    machine or on several; otherwise they are started here.

    Args:
        accelerator, precision, compile: as in `Hardware`.
        devices: on each machine; "auto" is as many ranks as have been started, or all GPUs.
        timeout: seconds that a rank waits for another before it takes it for dead.

    Raises:
        ValueError: if there is no such device.
    """

    devices: PositiveInt | Literal["auto"] = "auto"
    timeout: Positive = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cuda_graphs:
            raise ValueError("cuda_graphs=True is for one device: the others cannot be heard while a graph is replayed")

    def world_size(self) -> int:
        """How many ranks train together, over all machines.

        Raises:
            UserError: if others have been started than `devices` asks for.
        """
        here = this_rank()
        if here.world_size == 1:
            return self._on_this_machine()
        if self.devices not in ("auto", here.local_world_size):
            there = f"{here.local_world_size} ranks were started on this machine"
            raise UserError(f"trainer.devices={self.devices}: {there}; leave it auto")
        if here.world_size % here.local_world_size:
            raise UserError(f"{here.world_size} ranks were started, not as many on each machine")
        return here.world_size

    def _on_this_machine(self) -> int:
        if self.devices != "auto":
            return self.devices
        return torch.cuda.device_count() if self._may_use_cuda() else 1

    def spread(self) -> dict[str, Any]:
        """What Lightning's trainer is told of the ranks."""
        from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment

        here = this_rank()
        return {
            "devices": here.local_world_size,
            "num_nodes": here.world_size // here.local_world_size,
            "strategy": self.strategy(here.world_size),
            # It finds its rank in torchrun's variables, whoever has set them; on SLURM, too, it loads nothing unasked.
            "plugins": [TorchElasticEnvironment() if here.world_size > 1 else LightningEnvironment()],
        }

    def strategy(self, world_size: int) -> Any:  # noqa: ARG002
        """How Lightning has the ranks work together."""
        from lightning.pytorch.strategies import DDPStrategy

        timeout = timedelta(seconds=self.timeout)
        return DDPStrategy(gradient_as_bucket_view=True, broadcast_buffers=False, timeout=timeout)


class FullySharded(DataParallel):
    """Every device keeps a shard of each weight, its gradient and its moments (Rajbhandari et al. 2020, ZeRO stage 3).

    A layer's weights are gathered when it is their turn. They are gathered in single precision, so that a step in
    bf16-mixed is that of one device.
    """

    def strategy(self, world_size: int) -> Any:
        """How Lightning has the ranks work together."""
        from posenc.training.fsdp import WholeCheckpoints

        return WholeCheckpoints(
            data_parallel_size=world_size,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            timeout=timedelta(seconds=self.timeout),
        )

    def loss(self, model: Transformer, device: torch.device) -> Loss:
        """What gives the loss; from here on the model's weights are sharded. Layers are compiled each for itself."""
        from posenc.training.fsdp import ShardedLoss

        return ShardedLoss(model, device, self.compiled)

    def gathered(self, loss: Loss) -> AbstractContextManager[None]:
        """Inside, this rank has all weights of the model that the loss is of. All ranks must enter."""
        return loss.gathered()  # type: ignore[attr-defined]  # it is a ShardedLoss

    def whole(self, model: Transformer, run: Path) -> Transformer:  # noqa: ARG002
        """From the last checkpoint: in memory this rank has a shard."""
        from posenc.evaluation.load import load

        return load(run).model


def best_device() -> torch.device:
    """The machine's accelerator if it has one, otherwise its CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def ampere_or_later() -> bool:
    """Whether the GPU has bf16 tensor cores (compute capability 8.0 and up)."""
    return torch.cuda.get_device_capability() >= (8, 0)


def cpu_multiplies_bf16() -> bool:
    """Whether the CPU has instructions for bf16 products (AVX512-BF16 or AMX)."""
    abilities = torch.cpu.get_capabilities()
    return bool(abilities.get("avx512_bf16") or abilities.get("amx_bf16"))


def keep_freed_memory() -> None:
    """Have glibc keep what torch frees for the next step; other C libraries have no such call.

    Large tensors are otherwise given back to the system and faulted in again, page by page, in every step.
    """
    keep, directly = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX: malloc.h
    with suppress(OSError, AttributeError):
        c_library = ctypes.CDLL("libc.so.6")
        c_library.mallopt(keep, 2**31 - 1)
        c_library.mallopt(directly, 0)
