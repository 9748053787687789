"""FSDP: a loss function that shards its model, and full (unsharded) checkpoints."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import Tensor, nn
from torch.distributed import get_world_size
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from posenc.model import Transformer
from posenc.objectives.objective import loss_of


class ShardedLoss:
    """The loss function of a model, whose weights it shards.

    Not an nn.Module, since the model's weights must not be registered twice.

    Args:
        compiled: compiles a layer's forward, if compilation is enabled.
    """

    def __init__(self, model: Transformer, device: torch.device, compiled: Callable[..., Any]) -> None:
        mesh = init_device_mesh(device.type, (get_world_size(),))
        for block in model.blocks:
            block.forward = compiled(block.forward)  # the all-gather stays outside the compiled graph
            fully_shard(block, mesh=mesh)
        self._root = _Root(model)
        fully_shard(self._root, mesh=mesh)

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """(B, T) each -> ()."""
        return self._root(inputs, targets)

    @contextmanager
    def unsharded(self, layers: bool) -> Iterator[None]:
        """Context in which this rank has all weights of the model, or all but those of its layers, not compiled.

        All ranks must enter it.
        """
        units = self._root.modules() if layers else [self._root]
        sharded = [module for module in units if isinstance(module, FSDPModule)]
        for module in sharded:
            module.unshard()
        try:
            with torch.compiler.set_stance("force_eager"):  # the layers would be compiled again for another batch size
                yield
        finally:
            for module in sharded:
                module.reshard()


class _Root(nn.Module):
    """A model and its loss in one module, so that the embedding and output weights are gathered for both."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return loss_of(self.model, inputs, targets)


class FullCheckpointStrategy(ModelParallelStrategy):
    """Lightning's strategy for sharded weights, with the same checkpoints as for a single device.

    All methods are collective: all ranks must call them.
    """

    # As for a single device: ModelParallelStrategy would read sharded files itself.
    lightning_restore_optimizer = Strategy.lightning_restore_optimizer
    load_checkpoint = Strategy.load_checkpoint

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """The full optimiser state on rank 0, otherwise empty."""
        state: dict[str, Any] = Strategy.optimizer_state(self, optimizer)
        full = {}
        for index, of in state["state"].items():
            gathered = {name: full_tensor(part) for name, part in of.items()}
            if self.is_global_zero:  # the others drop each weight's state at once
                full[index] = gathered
        return {**state, "state": full}

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Shard the weights of a checkpoint."""
        assert self.lightning_module is not None
        ours = self.lightning_module.state_dict()
        sharded = {name: shard(weight, ours.get(name)) for name, weight in checkpoint["state_dict"].items()}
        self.lightning_module.load_state_dict(sharded, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Shard the optimiser state of a checkpoint."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            sharded = {
                index: {name: shard(value, weights[index]) for name, value in of.items()}
                for index, of in state["state"].items()
            }
            optimizer.load_state_dict({**state, "state": sharded})


def full_tensor(tensor: Tensor) -> Tensor:
    """The unsharded tensor, on the CPU."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def shard(tensor: Tensor, like: Tensor | None) -> Tensor:
    """This rank's shard of a full tensor, with the placement of `like`; unchanged if it is None or of another shape."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    on_device = tensor.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)
