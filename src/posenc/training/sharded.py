"""Lightning's strategy for shared-out weights, with checkpoints in which nothing is shared out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


class Sharded(ModelParallelStrategy):
    """Writes and reads the checkpoints that one device would, in which Lightning numbers the moments otherwise.

    All processes must call each of these methods together.
    """

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The whole weights; empty but in the first process."""
        assert self.lightning_module is not None
        return self._gathered(self.lightning_module.state_dict())

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """The whole moments; empty but in the first process."""
        state: dict[str, Any] = Strategy.optimizer_state(self, optimizer)
        return {**state, "state": {place: self._gathered(of) for place, of in state["state"].items()}}

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """What is in a checkpoint, on the CPU."""
        return self.checkpoint_io.load_checkpoint(Path(checkpoint_path), weights_only=weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Share out the weights of a checkpoint."""
        assert self.lightning_module is not None
        ours = self.lightning_module.state_dict()
        shared = {name: share(weight, ours[name]) for name, weight in checkpoint["state_dict"].items()}
        self.lightning_module.load_state_dict(shared, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Share out the moments of a checkpoint."""
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            shared = {
                place: {name: share(value, weights[place]) for name, value in of.items()}
                for place, of in state["state"].items()
            }
            optimizer.load_state_dict({**state, "state": shared})

    def _gathered(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        whole = {name: gathered(tensor) for name, tensor in tensors.items()}
        return whole if self.is_global_zero else {}


def gathered(tensor: Tensor) -> Tensor:
    """All of a tensor, on the CPU."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def share(tensor: Tensor, like: Tensor) -> Tensor:
    """Of a whole tensor the share that this process has of one of the same shape; of others, all."""
    if not isinstance(like, DTensor) or tensor.shape != like.shape:
        return tensor
    on_device = tensor.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)
