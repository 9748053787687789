"""One of several ranks killed, or halted, in mid-training."""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posenc.distributed.group import LOST
from tests.faults.outcome import Outcome
from tests.faults.toy import Toy, same_curve

PROMISED = 60.0
"""Seconds from the death of one rank to the end of all."""

TIMEOUT = 10
"""Seconds that a rank waits for one that is halted, and so not dead; 600 if the command does not say otherwise."""

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")


@dataclass(frozen=True)
class Several(Toy):
    """A run of two ranks."""

    def command(self, *arguments: str, program: tuple[str, ...] = ("train.py",)) -> list[str]:  # type: ignore[override]
        alone = super().command(*arguments, program=program)
        parallel = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true", f"trainer.timeout={TIMEOUT}")
        return [*(argument for argument in alone if argument != "trainer=cpu"), *parallel]


def process_of(rank: int, starter: int) -> int:
    """The id of the process of a rank."""
    wanted = f"RANK={rank}".encode()
    for child in Path(f"/proc/{starter}/task/{starter}/children").read_text().split():
        if wanted in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise LookupError(f"there is no rank {rank}")


def struck(
    toy: Toy, program: tuple[str, ...], arguments: tuple[str, ...], rank: int, signum: int
) -> tuple[int, float, str]:
    """Signal one rank in mid-training: the exit code, the seconds to the end of all, and what was said."""
    with toy.start(*arguments, program=program) as process:
        toy.wait_for_rows(toy.written() + 2, process)
        time.sleep(random.uniform(0, 0.2))
        victim = process_of(rank, process.pid)
        os.kill(victim, signum)
        begun = time.monotonic()
        _, said = process.communicate(timeout=120)
    return process.returncode, time.monotonic() - begun, said


def ended_well(code: int, seconds: float, said: str) -> bool:
    ours = [line for line in said.splitlines() if line.startswith("train.py: ")]
    return code == 1 and seconds < PROMISED and ours == [f"train.py: {LOST}"] and "gloo" not in said


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: kills of each kind; only one rank is halted, since that takes most of a minute.
    """
    if not sys.platform.startswith("linux"):
        return
    whole, several = Several(folder / "whole", steps=1000), Several(folder / "several", steps=1000)
    ours = (("train.py",), ("trainer.devices=2",))
    kinds = [
        ("one of two ranks, started by the run, killed", *ours, 1, signal.SIGKILL, times),
        ("rank 0 of two, started by torchrun, killed", TORCHRUN, (), 0, signal.SIGKILL, times),
        ("rank 1 of two, started by torchrun, killed", TORCHRUN, (), 1, signal.SIGKILL, times),
        (f"one of two ranks stopped by SIGSTOP, with trainer.timeout={TIMEOUT}", *ours, 1, signal.SIGSTOP, 1),
    ]
    found = []
    for fault, program, arguments, rank, signum, often in kinds:
        tried = [struck(several, program, arguments, rank, signum) for _ in range(often)]
        kept = sum(ended_well(*one) for one in tried)
        found.append((fault, often, kept, max(seconds for _, seconds, _ in tried)))
    whole.finish("trainer.devices=2")
    same = several.finish("trainer.devices=2").returncode == 0 and same_curve(whole, several)
    for fault, often, kept, slowest in found:
        lost = f"what came after the last checkpoint; all ended within {slowest:.0f} s, exit 1, one sentence"
        yield Outcome(fault, often, kept * same, lost)
