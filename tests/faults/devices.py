"""One of several processes killed, or halted, in mid-training."""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.outcome import Outcome
from tests.faults.toy import Toy, same_curve

PROMISED = 60.0
"""Seconds from the death of one process to the end of all."""

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
DIED = "another process of this run has died"
SILENT = "has given no sign of life"


@dataclass(frozen=True)
class Several(Toy):
    """A run of two processes."""

    def command(self, *arguments: str, program: tuple[str, ...] = ("train.py",)) -> list[str]:  # type: ignore[override]
        alone = super().command(*arguments, program=program)
        parallel = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true")
        return [*(argument for argument in alone if argument != "trainer=cpu"), *parallel]


def process_of(rank: int, starter: int) -> int:
    """The id of one of the processes that another has started."""
    wanted = f"RANK={rank}".encode()
    for child in Path(f"/proc/{starter}/task/{starter}/children").read_text().split():
        if wanted in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise LookupError(f"no process has rank {rank}")


def struck(
    toy: Toy, program: tuple[str, ...], arguments: tuple[str, ...], rank: int, signum: int
) -> tuple[int, float, str]:
    """Signal one process in mid-training: the exit code, the seconds to the end of all, and what was said."""
    with toy.start(*arguments, program=program) as process:
        toy.wait_for_rows(toy.written() + 2, process)
        time.sleep(random.uniform(0, 0.2))
        victim = process_of(rank, process.pid)
        os.kill(victim, signum)
        begun = time.monotonic()
        _, said = process.communicate(timeout=120)
    return process.returncode, time.monotonic() - begun, said


def ended_well(code: int, seconds: float, said: str, sentence: str) -> bool:
    ours = [line for line in said.splitlines() if line.startswith("train.py: ")]
    return code == 1 and seconds < PROMISED and len(ours) == 1 and sentence in ours[0] and "gloo" not in said


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: kills of each kind; only one process is halted, since that takes most of a minute.
    """
    if not sys.platform.startswith("linux"):
        return
    whole, several = Several(folder / "whole", steps=1000), Several(folder / "several", steps=1000)
    ours = (("train.py",), ("trainer.devices=2",))
    kinds = [
        ("one of two processes, started by the run, killed", *ours, 1, signal.SIGKILL, times),
        ("the first of two processes of torchrun killed", TORCHRUN, (), 0, signal.SIGKILL, times),
        ("the second of two processes of torchrun killed", TORCHRUN, (), 1, signal.SIGKILL, times),
        ("one of two processes halted", *ours, 1, signal.SIGSTOP, 1),
    ]
    found = []
    for fault, program, arguments, rank, signum, often in kinds:
        sentence = SILENT if signum == signal.SIGSTOP else DIED
        tried = [struck(several, program, arguments, rank, signum) for _ in range(often)]
        kept = sum(ended_well(*one, sentence) for one in tried)
        found.append((fault, often, kept, max(seconds for _, seconds, _ in tried)))
    whole.finish("trainer.devices=2")
    same = several.finish("trainer.devices=2").returncode == 0 and same_curve(whole, several)
    for fault, often, kept, slowest in found:
        lost = f"what came after the last checkpoint; all ended within {slowest:.0f} s, exit 1, one sentence"
        yield Outcome(fault, often, kept * same, lost)
