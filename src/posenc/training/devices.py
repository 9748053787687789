"""What a run trains on when it has several devices: each has a process of its own, and a share of every batch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posenc.bounds import PositiveInt
from posenc.distributed import place
from posenc.errors import UserError
from posenc.model import Transformer
from posenc.objectives.objective import loss_of
from posenc.training.accelerator import Hardware


@dataclass(frozen=True)
class DataParallel(Hardware):
    """Every device has the whole model; gradients are averaged over all of them in every step (Li et al. 2020).

    The batches, their order and the loss are those of one device. torchrun or srun may have started the processes,
    on one machine or on several; otherwise this one starts the others.

    Args:
        accelerator, precision, compile: as in `Hardware`.
        devices: on each machine; "auto" is as many processes as have been started, or all GPUs.

    Raises:
        ValueError: if there is no such device.
    """

    devices: PositiveInt | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cuda_graphs:
            raise ValueError("cuda_graphs=True is for one device: the others cannot be heard while a graph is replayed")

    def world(self) -> int:
        """How many processes train together, over all machines.

        Raises:
            UserError: if others have been started than `devices` asks for.
        """
        here = place()
        if here.world == 1:
            return self._on_this_machine()
        if self.devices not in ("auto", here.local_world):
            there = f"{here.local_world} processes were started on this machine"
            raise UserError(f"trainer.devices={self.devices}: {there}; leave it auto")
        if here.world % here.local_world:
            raise UserError(f"{here.world} processes were started, not as many on each machine")
        return here.world

    def _on_this_machine(self) -> int:
        if self.devices != "auto":
            return self.devices
        return torch.cuda.device_count() if self._may_use_cuda() else 1

    def spread(self) -> dict[str, Any]:
        """What Lightning's trainer is told of the processes."""
        from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment

        here = place()
        return {
            "devices": here.local_world,
            "num_nodes": here.world // here.local_world,
            "strategy": self.strategy(here.world),
            # It finds its place in torch's variables, whoever has set them; on SLURM, too, it loads nothing unasked.
            "plugins": [TorchElasticEnvironment() if here.world > 1 else LightningEnvironment()],
        }

    def strategy(self, world: int) -> Any:  # noqa: ARG002
        """How Lightning has the processes work together."""
        from lightning.pytorch.strategies import DDPStrategy

        return DDPStrategy(gradient_as_bucket_view=True, broadcast_buffers=False)


class FullySharded(DataParallel):
    """Every device keeps a share of each weight, its gradient and its moments (Rajbhandari et al. 2020, ZeRO stage 3).

    A layer's weights are gathered when it is their turn. They are gathered in single precision, so that a step in
    bf16-mixed is that of one device.
    """

    def strategy(self, world: int) -> Any:
        """How Lightning has the processes work together."""
        from posenc.training.sharded import Sharded

        return Sharded(data_parallel_size=world, tensor_parallel_size=1, save_distributed_checkpoint=False)

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
        """Inside, this process has all weights of the model. All processes must enter."""
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
