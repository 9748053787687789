"""Too little disk, too little memory, NaN losses, and two runs at once."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posenc.storage.checkpoint_files import newest_first
from tests.conftest import curve
from tests.faults.outcome import Outcome
from tests.faults.toy import Toy, same_curve


def can_mount() -> bool:
    """Whether this process may make a small file system of its own."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of so many bytes at a folder."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def survives_a_full_disk(whole: Toy, folder: Path, size: str) -> bool:
    """Whether a run says what did not fit, keeps its last checkpoint, and goes on once there is space."""
    victim = Toy(folder, whole.steps)
    with small_disk(folder / "runs", size):
        told = victim.finish()
        kept = newest_first(victim.run() / "checkpoints")
        sentence = " could not be written: No space left on device\n" in told.stderr
        left = victim.leftovers()
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder / "runs")], check=True)
        again = victim.finish()
        resumed = not kept or f"Resuming from {kept[0].name}" in again.stdout
        good = told.returncode == 1 and sentence and told.stderr.count("\n") == 1 and not left
        return good and again.returncode == 0 and resumed and same_curve(whole, victim)


def stops_at_a_nan_loss(folder: Path, rate: float) -> bool:
    """Whether a diverging run stops, names step and learning rate, and keeps only checkpoints with numbers in them."""
    import torch

    toy = Toy(folder, more=(f"optim.lr={rate}", "optim.clip=1e30", "eval_every=5", "log_every=5"))
    told = toy.finish()
    named = " at step " in told.stderr and "with a learning rate of" in told.stderr
    *rows, last = curve(toy.run())
    rows_are_numbers = last["val_loss"] == "nan" and all(math.isfinite(float(row["train_loss"])) for row in rows)
    weights = [torch.load(file, weights_only=True)["state_dict"] for file in newest_first(toy.run() / "checkpoints")]
    numbers = all(weight.isfinite().all() for checkpoint in weights for weight in checkpoint.values())
    return told.returncode == 1 and named and told.stderr.count("\n") == 1 and rows_are_numbers and numbers


def says_what_to_lower(folder: Path, argument: str) -> bool:
    """Whether a run that does not fit into 8 GiB of address space is told what to lower."""
    toy = Toy(folder, more=(argument,))
    command = ["prlimit", f"--as={8 * 2**30}", sys.executable, *toy.command()]
    told = subprocess.run(command, capture_output=True, text=True, timeout=240)
    lower = "out of memory: lower one of batch_size=" in told.stderr
    return told.returncode == 1 and lower and told.stderr.count("\n") == 1


def second_is_told_who_holds_the_run(folder: Path) -> bool:
    """Whether of two runs started at the same time one trains, and the other names it."""
    toy = Toy(folder, steps=2000)
    with toy.start() as one, toy.start() as other:
        said = [process.communicate(timeout=240)[1] for process in (one, other)]
    if [one.returncode, other.returncode] == [0, 0]:
        return False  # the second came when the first had finished: make it longer
    first, second = (one, other) if one.returncode == 0 else (other, one)
    sentence = said[0] + said[1]
    return (first.returncode, second.returncode) == (0, 2) and f"process {first.pid} on " in sentence


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: of each.
    """
    whole = Toy(folder / "whole")
    whole.finish()
    if can_mount():
        sizes = [f"{300 + 600 * number // times}k" for number in range(times)]  # a checkpoint has some 400k
        full = [survives_a_full_disk(whole, folder / f"disk{size}", size) for size in sizes]
        yield Outcome(
            "a disk that is full when a checkpoint or a row is due",
            times,
            sum(full),
            "the steps since the last checkpoint",
        )
    rates = [10.0 ** (3 + number) for number in range(times)]
    lost = [stops_at_a_nan_loss(folder / f"rate{rate:g}", rate) for rate in rates]
    yield Outcome("a NaN loss", times, sum(lost), "the run; its last good checkpoint stays")
    sizes = [f"batch_size={2_000_000 - 100_000 * number}" for number in range(times)]
    memory = [says_what_to_lower(folder / f"memory{number}", size) for number, size in enumerate(sizes)]
    yield Outcome("too little memory", len(sizes), sum(memory), "the run; one sentence says what to lower")
    held = [second_is_told_who_holds_the_run(folder / f"two{number}") for number in range(times)]
    yield Outcome("the same command twice at once", times, sum(held), "nothing: the second says who holds the run")
