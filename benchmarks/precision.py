"""Whether bf16 on this device agrees with fp32 on the CPU: `python benchmarks/precision.py`.

Compares loss and gradients of every position scheme and family, causal and masked, at lengths where kernels differ:
cuDNN's attention, the default on an H200, is known to return wrong results with few key heads on a B200
(pytorch#193893), and NaN with a mask at lengths of 64 modulo 128 where all logits of a query are below -88 (#196678),
which the logits of these models are not. Cases that differ are compared again without cuDNN's attention. Exits with 1
if a difference is larger than rounding explains; with --runs the differences are only listed.

    python benchmarks/precision.py --compile     # what a compiled run computes: fewer cases, since each is a graph
    python benchmarks/precision.py --runs runs/claim_map  # at the weights of finished runs, whose logits may be larger
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from options import Parser, integers
from output import environment, table
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from posenc.config.command_line import one_sentence_errors
from posenc.config.compose import composed
from posenc.config.files import CONF, choices_in
from posenc.data.batches import validation_noise
from posenc.errors import UserError, first_line
from posenc.evaluation.load import load
from posenc.evaluation.losses import own_windows
from posenc.model import Transformer
from posenc.objectives.objective import Objective
from posenc.training.accelerator import Hardware
from posenc.training.experiment import Experiment

LENGTHS, COMPILED_LENGTHS = "64,192,256,1024", "192,1024"
SHAPE = ("model.layers=2", "model.width=128", "model.heads=2", "batch_size=2")

WEIGHT_SCALE = 5
"""Factor on the initial matrices, so that attention is not uniform: otherwise a wrong mask would hardly show."""

LOSS, GRADIENT = 2**-9, 2**-3
"""Largest relative error of the loss, and of the gradient of each weight. On a CPU, at 64 and 192 tokens, bf16 is off
by 5e-4 and 0.04 at most, and 0.08 with CoPE, whose counts are sums of rounded gates."""

WINDOWS = 8
"""Of a run's validation text."""

MIN_NORM = 0.01
"""Errors of gradients whose norm is below this share of the whole gradient's are relative to this share of it."""


COMBINED = ("tokenizer=bpe tokenizer.vocab_size=8200", "pos=alibi model/family=palm", "pos=t5 model/family=palm")
"""A loss in chunks, of a padded vocabulary; and a bias, frozen or trained, with few key heads."""

TRAINED = ("intervention=offset_mask", "intervention=offset_bias", "attention=linear attention.kernel=elu",
           "intervention=following_amplitude pos=sinusoidal")  # fmt: skip
"""Of the studies."""

COMPILED = (
    *(f"pos={pos}" for pos in ("rope", "sinusoidal", "learned", "alibi", "t5", "fox")),
    *("model/family=palm", "attention=linear", "objective=masked", *COMBINED),
)


def cases() -> Iterator[str]:
    """The overrides of each comparison."""
    groups = choices_in(CONF)
    choices = [f"{group}={name}" for group in ("pos", "model/family") for name in sorted(groups[group])]
    yield from (*COMBINED, *TRAINED)
    for choice in [*choices, "attention=linear"]:
        yield choice
        yield f"{choice} objective=masked"


def build(case: str, max_length: int) -> tuple[Transformer, Objective]:
    """Model and objective of a case.

    Raises:
        UserError: if its overrides are incompatible.
    """
    config, _ = composed(CONF, [*SHAPE, f"context={max_length}", *case.split()])
    experiment = Experiment.of(config)
    with torch.no_grad():
        for name, weight in experiment.model.named_parameters():
            if weight.ndim == 2 and not name.startswith("scheme."):
                weight.mul_(WEIGHT_SCALE)
    return experiment.model, experiment.objective


def random_batch(objective: Objective, length: int) -> tuple[Tensor, Tensor]:
    """Random inputs and targets, (2, length) each."""
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(256, (2, length + objective.lookahead), generator=generator)
    return objective.inputs_and_targets(
        tokens, torch.rand(*tokens.shape, objective.noise_per_token, generator=generator)
    )


def loss_and_gradients(
    model: Transformer, batch: tuple[Tensor, Tensor], hardware: Hardware
) -> tuple[float, Mapping[str, Tensor]]:
    """The loss and the gradient of each weight, copied to the CPU."""
    device, bf16 = hardware.device, hardware.chosen_precision() == "bf16-mixed"
    model.zero_grad()  # otherwise the model would take the gradients of an earlier call to its new device
    model.to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        loss = hardware.loss(model)(*(part.to(device) for part in batch))
    loss.backward()
    gradients = {name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None}
    return loss.item(), gradients


OTHER_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

EXACT = Hardware("cpu", "32-true", compile=False)


def errors(model: Transformer, batch: tuple[Tensor, Tensor], hardware: Hardware) -> tuple[float, float]:
    """Relative errors on the hardware against fp32 on the CPU: of the loss, and the largest of a gradient."""
    exact, expected = loss_and_gradients(model, batch, EXACT)
    rounded, found = loss_and_gradients(model, batch, hardware)
    least = MIN_NORM * torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    off = [(found[name] - one).norm() / torch.maximum(one.norm(), least) for name, one in expected.items()]
    return abs(rounded - exact) / exact, torch.stack(off).max().item()


def compare(cases: Iterable[str], lengths: Sequence[int], hardware: Hardware) -> tuple[list[list[str]], list[str]]:
    """The errors of each case at each length, as rows of a table; and the cases out of tolerance."""
    rows, failed = [], []
    for case in cases:
        try:
            model, objective = build(case, max(lengths))
        except UserError:  # a scheme for causal models, with objective=masked
            continue
        try:
            off = [errors(model, random_batch(objective, length), hardware) for length in lengths]
        except RuntimeError as error:  # a kernel that refuses a shape
            print(f"{case}: {first_line(error)}", flush=True)
            failed.append(case)
            continue
        rows.append([case, *(f"{loss:.0e} {gradient:.3f}" for loss, gradient in off)])
        print(*rows[-1], flush=True)
        if not all(loss <= LOSS and gradient <= GRADIENT for loss, gradient in off):  # true for NaN
            failed.append(case)
    return rows, failed


def compare_runs(folders: Sequence[Path], cache: Path, hardware: Hardware) -> Iterator[tuple[Path, float, float]]:
    """Each finished run in these folders, and the errors at its weights on some of its validation windows."""
    for run in sorted(file.parent for folder in folders for file in folder.rglob("summary.json")):
        trained = load(run)
        tokens = trained.split(cache, "valid")
        windows = own_windows(trained, tokens)[:WINDOWS]
        batch = trained.objective.inputs_and_targets(
            windows, validation_noise(tokens, windows, trained.objective.noise_per_token)
        )
        yield run, *errors(trained.model.train(), batch, hardware)


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Context in which attention is left to torch's other kernels, also in what is compiled."""
    # The compiler's cache does not depend on the choice of kernels.
    without_caches = torch.compiler.config.patch(force_disable_caches=True)  # type: ignore[attr-defined]
    with sdpa_kernel(OTHER_KERNELS), without_caches:
        yield


def main() -> int:
    parser = Parser(__doc__)
    parser.add_device()
    parser.add_argument("--compile", action="store_true", help="compile the model on the device")
    parser.add_argument("--lengths", type=integers, help=f"default: {LENGTHS}; {COMPILED_LENGTHS} with --compile")
    compared = parser.add_mutually_exclusive_group()
    compared.add_argument("--only", nargs="+", help="some cases, like 'pos=t5 objective=masked'; default: all")
    compared.add_argument("--runs", nargs="+", type=Path, help="folders with finished runs, instead of cases")
    parser.add_argument("--cache", type=Path, default=Path("data/cache"), help="of the text of --runs")
    given = parser.parse_args()
    chosen, default_lengths = (COMPILED, COMPILED_LENGTHS) if given.compile else (cases(), LENGTHS)
    lengths = given.lengths or integers(default_lengths)
    hardware = Hardware(given.device.type, "bf16-mixed", given.compile)
    if given.runs:
        found = compare_runs(given.runs, given.cache, hardware)
        rows = [[str(run), f"{loss:.0e}", f"{gradient:.3f}"] for run, loss, gradient in found]
        if not rows:
            parser.error(f"--runs: there is no finished run in {', '.join(map(str, given.runs))}")
        print(f"bf16 on {environment(given.device)}, against fp32 on the CPU: relative errors.\n")
        print(table(["run", "loss", "largest of a weight's gradient"], rows))
        return 0
    for case in given.only or ():
        with one_sentence_errors(case.split(), CONF):
            build(case, max(lengths))  # `compare` skips an invalid case
    rows, failed = compare(given.only or chosen, lengths, hardware)
    print(f"{'Compiled bf16' if given.compile else 'bf16'} on {environment(given.device)}, against fp32 on the CPU.")
    print(f"Relative errors of the loss (at most {LOSS:.0e}) and of the gradient of a weight (at most {GRADIENT}):\n")
    print(table(["", *(f"{length} tokens" for length in lengths)], rows))
    print(f"\nOut of tolerance: {'; '.join(failed)}" if failed else f"\nAll {len(rows)} are within tolerance.")
    if failed:
        print("Again, without cuDNN's attention:")
        with without_cudnn_attention():
            _, still = compare(failed, lengths, hardware)
        print(f"Still out of tolerance: {'; '.join(still) or 'none, so the error is in cuDNN'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
