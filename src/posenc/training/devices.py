"""What a run trains on when it has several devices: each has a rank of its own, and a share of every batch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posenc.distributed import this_rank
from posenc.errors import UserError
from posenc.model import Transformer
from posenc.objectives.objective import loss_of
from posenc.training.accelerator import Hardware


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

    devices: int | Literal["auto"] = "auto"
    timeout: float = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices != "auto" and self.devices < 1:
            raise ValueError(f"devices={self.devices} must be at least 1")
        if self.timeout <= 0:
            raise ValueError(f"timeout={self.timeout} must be more than 0")
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
    """Every device keeps a share of each weight, its gradient and its moments (Rajbhandari et al. 2020, ZeRO stage 3).

    A layer's weights are gathered when it is their turn. They are gathered in single precision, so that a step in
    bf16-mixed is that of one device.
    """

    def strategy(self, world_size: int) -> Any:
        """How Lightning has the ranks work together."""
        from posenc.training.sharded import Sharded

        return Sharded(
            data_parallel_size=world_size,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            timeout=timedelta(seconds=self.timeout),
        )

    def loss(self, model: Transformer, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
        """What gives the loss; from here on the model's weights are shared out. Layers are compiled each for itself."""
        from torch.distributed import get_world_size
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (get_world_size(),))
        for block in model.blocks:
            block.forward = self.compiled(block.forward)  # what gathers its weights stays outside
            fully_shard(block, mesh=mesh)
        root = Root(model)
        fully_shard(root, mesh=mesh)
        vars(model)["root"] = root  # not as a module: it has the model in it
        return lambda inputs, targets: root(inputs, targets)

    @contextmanager
    def whole(self, model: Transformer) -> Iterator[None]:
        """Inside, this rank has all weights of the model. All ranks must enter."""
        from torch.distributed.fsdp import FSDPModule

        shared_out = [module for module in vars(model)["root"].modules() if isinstance(module, FSDPModule)]
        for module in shared_out:
            module.unshard()
        try:
            yield
        finally:
            for module in shared_out:
                module.reshard()


class Root(nn.Module):
    """A model and its loss in one: what lies in no layer is gathered for both."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """(B, T) each -> ()."""
        return loss_of(self.model, inputs, targets)
