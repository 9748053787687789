"""What a run trains on, chosen by itself unless it is told."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

Precision = Literal["auto", "32-true", "bf16-mixed"]


@dataclass(frozen=True)
class Hardware:
    """Device, precision and compilation.

    Args:
        accelerator: "auto" takes a GPU if there is one.
        precision: "auto" is bf16-mixed where the hardware multiplies bf16 matrices faster, otherwise 32-true.
        compile: whether the model goes through torch.compile.

    Raises:
        ValueError: if there is no such device.
    """

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    precision: Precision = "auto"
    compile: bool = False

    def __post_init__(self) -> None:
        if self.accelerator == "cuda" and not torch.cuda.is_available():
            raise ValueError("accelerator=cuda: this machine has no CUDA GPU; use auto or cpu")

    def trainer(self, **settings: Any) -> "Trainer":
        """Lightning's trainer on this hardware.

        Raises:
            ValueError: if this machine lacks the device asked for.
        """
        from lightning.pytorch import Trainer
        from lightning.pytorch.utilities.exceptions import MisconfigurationException

        try:
            return Trainer(accelerator=self.accelerator, devices=1, precision=self.chosen_precision(), **settings)
        except (MisconfigurationException, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"accelerator={self.accelerator}: {reason}") from error

    def chosen_precision(self) -> Any:
        """The precision in use: "32-true" or "bf16-mixed"."""
        if self.precision != "auto":
            return self.precision
        on_gpu = self.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        on_mps = self.accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available()
        fast = ampere_or_later() if on_gpu else not on_mps and cpu_multiplies_bf16()
        return "bf16-mixed" if fast else "32-true"


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
