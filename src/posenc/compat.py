"""Every use of a library's private API, each with its reason and the version it was written against.

tests/test_compat.py checks that each of them exists in the installed versions.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import argparse
    import lzma
    import subprocess
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lightning.pytorch import Trainer
    from torch import Tensor


def without_sigterm_broadcast(trainer: "Trainer") -> None:
    """Lightning 2.6.6: in every step all ranks ask rank 0 whether it received SIGTERM, and wait for the device.

    There is no option (Lightning-AI/pytorch-lightning#21487; pull request #21640 would add one).
    """
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def import_dynamo() -> None:
    """torch 2.13: an optimiser imports it at its first step, which would count as training time.

    torch.compiler.reset() imports it too, but would discard what earlier runs of this process have compiled.
    """
    import torch._dynamo  # noqa: F401


def import_torchmetrics() -> None:
    """torchmetrics 1.9: Lightning needs one class of it, but it imports others' packages where they are installed.

    scipy.signal, transformers and matplotlib would be a quarter of the time to the first step. So it sees an empty
    module in their place, and its own plots cannot be drawn.
    """
    empty = _Empty("empty")
    empty.__spec__ = ModuleSpec("empty", None, is_package=True)  # as find_spec wants it
    unneeded = {
        "matplotlib", "matplotlib.axes", "matplotlib.pyplot", "scipy", "scipy.signal",
        "torchvision", "torchvision.models", "torchvision.ops", "transformers",
    }  # fmt: skip
    absent = unneeded - sys.modules.keys()
    sys.modules.update(dict.fromkeys(absent, empty))
    try:
        import torchmetrics  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


class _Empty(ModuleType):
    """A module from which any name can be imported, and called, as a decorator is."""

    def __getattr__(self, _: str) -> "_Empty":
        return self

    def __call__(self, *_: Any) -> "_Empty":
        return self


def without_autocast(like: "Tensor") -> "AbstractContextManager[object]":
    """Disable autocast on the device of a tensor. torch 2.11 raises an error for autocast on the meta device."""
    from contextlib import nullcontext

    import torch

    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def softmax_backward(gradient: "Tensor", probs: "Tensor") -> "Tensor":
    """torch 2.13: gradient and probabilities of a softmax over the last dimension -> gradient of its logits, (.., T).

    There is no public function for it.
    """
    import torch

    return torch._softmax_backward_data(gradient, probs, -1, probs.dtype)


def compiler_error() -> type[RuntimeError]:
    """torch 2.13: the base of the errors of torch.compile: no C++ compiler, no Triton, a GPU too old for it."""
    from torch._dynamo.exc import ShortenTraceback

    return ShortenTraceback


def hydra_arguments() -> "argparse.ArgumentParser":
    """hydra-core 1.3.8: its command-line parser, the only list of its flags."""
    from hydra._internal.utils import get_args_parser

    return get_args_parser()


def basic_launcher() -> Any:
    """hydra-core 1.3.8: the launcher that runs a sweep's jobs sequentially; it has no public name."""
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher

    return BasicLauncher


def open_xz(file: "Path | BinaryIO") -> "lzma.LZMAFile":
    """Python 3.11: an .xz file, whose damaged second stream raises LZMAError instead of being left out silently."""
    import lzma

    stream: Any = lzma.LZMAFile(file)  # noqa: SIM115 - closed by the caller
    stream._buffer.raw._trailing_error = ()
    return stream


def wandb_service() -> "subprocess.Popen[bytes] | None":
    """wandb 0.31.0: the process that uploads; None if there is none, or another process owns it."""
    try:
        from wandb.sdk import wandb_setup

        service: Any = wandb_setup._singleton
        return service._connection._proc._process
    except (ImportError, AttributeError):
        return None
