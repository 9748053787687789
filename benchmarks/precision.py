"""Whether bf16 on this device computes what fp32 does on the CPU: `python benchmarks/precision.py`.

Loss and gradients of every position scheme and family, causal and masked, at lengths where kernels change: cuDNN's
attention, the default on an H200, has been NaN with a mask at a length of 64 modulo 128 (pytorch#196678), and wrong
with few key heads (#193893). Ends with 1 if one of them is further off than rounding explains.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import turns
from torch import Tensor

from posenc.config.compose import composed
from posenc.errors import UserError
from posenc.model import Transformer
from posenc.objectives.objective import Objective, loss_of
from posenc.training import environment
from posenc.training.experiment import Experiment

CONF = Path(__file__).parent.parent / "conf"
LENGTHS = "64,192,256,1024"
SHAPE = ("model.layers=2", "model.width=128", "model.heads=2", "batch_size=2")

SHARPER = 5
"""Initial matrices are multiplied by it, so that heads choose among tokens: else a wrong mask would hardly show."""

LOSS, GRADIENT = 2**-9, 2**-3
"""How far off the loss may be, as a share of it, and the gradient of each weight, as a share of that. On a CPU, at 64
and 192 tokens, bf16 is off by 5e-4 and 0.04 at most, and 0.08 with CoPE, whose counts are sums of rounded gates."""

SMALL = 0.01
"""A weight whose gradient has less than this share of the whole gradient's norm is held to this share of it."""


def cases() -> Iterator[str]:
    """What is compared, as train.py is told it."""
    groups = [("pos", f"pos={name}") for name in choices("pos")]
    groups += [("family", f"model/family={name}") for name in choices("model/family")]
    for _, choice in [*groups, ("attention", "attention=linear")]:
        yield choice
        yield f"{choice} objective=masked"


def choices(group: str) -> list[str]:
    """The names that a group of conf has."""
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


def built(case: str, longest: int) -> tuple[Transformer, Objective]:
    """Model and objective of a case.

    Raises:
        UserError: if its parts do not go together.
    """
    config, _ = composed(CONF, [*SHAPE, f"context={longest}", *case.split()])
    experiment = Experiment.of(config)
    with torch.no_grad():
        for name, weight in experiment.model.named_parameters():
            if weight.ndim == 2 and not name.startswith("scheme."):
                weight.mul_(SHARPER)
    return experiment.model, experiment.objective


def window(objective: Objective, length: int) -> tuple[Tensor, Tensor]:
    """Random inputs and targets, (2, length) each."""
    draw = torch.Generator().manual_seed(length)
    tokens = torch.randint(256, (2, length + objective.lookahead), generator=draw)
    return objective.inputs_and_targets(tokens, torch.rand(*tokens.shape, objective.noise_per_token, generator=draw))


def computed(
    model: Transformer, batch: tuple[Tensor, Tensor], device: torch.device, reduced: bool
) -> tuple[float, Mapping[str, Tensor]]:
    """The loss and its gradient by each weight, on the CPU in float32."""
    # Linear attention's products stay out of autocast: beside bf16 a GPU makes them in TF32, as in a run.
    torch.set_float32_matmul_precision("high" if reduced else "highest")
    model.to(device).zero_grad()
    with torch.autocast(device.type, torch.bfloat16, enabled=reduced):
        loss = loss_of(model, *(part.to(device) for part in batch))
    loss.backward()
    gradients = {name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None}
    return loss.item(), gradients


def difference(model: Transformer, batch: tuple[Tensor, Tensor], device: torch.device) -> tuple[float, float]:
    """Of bf16 on a device from fp32 on the CPU: of the loss, and of the gradient that is furthest off; relative."""
    (exact, expected), (rounded, found) = (
        computed(model, batch, where, reduced) for where, reduced in ((torch.device("cpu"), False), (device, True))
    )
    least = SMALL * torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    off = [(found[name] - one).norm() / torch.maximum(one.norm(), least) for name, one in expected.items()]
    return abs(rounded - exact) / exact, torch.stack(off).max().item()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--lengths", default=LENGTHS)
    parser.add_argument("--only", nargs="+", help="some cases, like 'pos=t5 objective=masked'; default: all")
    given = parser.parse_args()
    device, lengths = turns.chosen(given.device), [int(length) for length in given.lengths.split(",")]
    rows, wrong = [], []
    for case in given.only or cases():
        try:
            model, objective = built(case, max(lengths))
        except UserError:  # a scheme for causal models, masked
            continue
        off = [difference(model, window(objective, length), device) for length in lengths]
        rows.append([case, *(f"{loss:.0e} {gradient:.3f}" for loss, gradient in off)])
        if not all(loss <= LOSS and gradient <= GRADIENT for loss, gradient in off):  # a NaN is not
            wrong.append(case)
    print(f"bf16 on {environment.hardware(device)} against fp32 on the CPU, torch {torch.__version__}: how far off the")
    print(f"loss is (at most {LOSS:.0e}), and the gradient of a weight (at most {GRADIENT})\n")
    print(turns.table(["", *(f"{length} tokens" for length in lengths)], rows))
    print(f"\nFurther off: {'; '.join(wrong)}" if wrong else f"\nAll {len(rows)} are within it.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
