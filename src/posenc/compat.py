"""Private parts of libraries that are needed, each with its reason and the version it was seen in.

tests/test_compat.py looks for each of them in the installed versions. `positions.tables.ExactTable` overrides
`nn.Module._apply` (torch 2.13): it is where a cast of a module reaches its buffers.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    import subprocess
    from contextlib import AbstractContextManager

    from lightning.pytorch import Trainer
    from torch import Tensor


def without_sigterm_broadcast(trainer: "Trainer") -> None:
    """Lightning 2.6.6: in every step all ranks ask rank 0 whether it received SIGTERM, and wait for the device.

    There is no option (Lightning-AI/pytorch-lightning#21487; pull request #21640 would add one).
    """
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def import_dynamo() -> None:
    """torch 2.13: an optimiser imports it at its first step, which would count as training."""
    import torch._dynamo  # noqa: F401


def without_autocast(like: "Tensor") -> "AbstractContextManager[object]":
    """Products in float32, on the device of a tensor. torch 2.11 knows no autocast of shapes alone, and refuses it."""
    from contextlib import nullcontext

    import torch

    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def softmax_backward(gradient: "Tensor", probs: "Tensor") -> "Tensor":
    """torch 2.13: the gradient of the logits of a softmax over the last dimension; autograd alone has a public name."""
    import torch

    return torch._softmax_backward_data(gradient, probs, -1, probs.dtype)


def hydra_arguments() -> "argparse.ArgumentParser":
    """hydra-core 1.3.8: the parser of its command line; there is no other list of its flags."""
    from hydra._internal.utils import get_args_parser

    return get_args_parser()


def basic_launcher() -> Any:
    """hydra-core 1.3.8: the class that runs a sweep's jobs one after the other; it has no public name."""
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher

    return BasicLauncher


def wandb_service() -> "subprocess.Popen[bytes] | None":
    """wandb 0.31.0: the process that uploads; None if there is none, or it is not ours to end."""
    try:
        from wandb.sdk import wandb_setup

        service: Any = wandb_setup._singleton
        return service._connection._proc._process
    except (ImportError, AttributeError):
        return None
