"""W&B's server slow, broken or gone, before a run and in the middle of it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import python
from tests.faults.outcome import Outcome
from tests.faults.toy import Toy, same_curve
from tests.tracking.wandb_answers import StandIn
from tests.tracking.wandb_stand_in import Fault, answers_500, cuts, silent, slow, stand_in

LIMIT = 90
"""Seconds for a run that takes ten and waits for the server for six."""

FAULTS: tuple[tuple[str, Fault], ...] = (
    ("does not answer", silent),
    ("takes three seconds for every answer", slow),
    ("answers 500", answers_500),
    ("cuts the connection", cuts),
)


def survives(whole: Toy, folder: Path, server: StandIn) -> bool:
    """Whether the run ends by itself in time, with its whole curve and one line about what W&B lacks."""
    victim = Toy(folder, whole.steps)
    command = [argument for argument in victim.command() if argument != "logger=csv"]
    more = ["logger=wandb", "logger.timeout=2", "logger.upload=2"]
    try:
        told = python(*command, *more, env=server.environment, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return False
    lines = [line for line in told.stdout.splitlines() if "wandb sync" in line]
    return (told.returncode, told.stderr, len(lines)) == (0, "", 1) and same_curve(whole, victim)


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: of each fault, in the middle of a run and again before it.
    """
    whole = Toy(folder / "whole", 100)
    whole.finish()
    for name, fault in FAULTS:
        survived = 0
        for number in range(times):
            for moment in ("fault", "then"):
                with stand_in(**{moment: fault}) as server:
                    survived += survives(whole, folder / f"{fault.__name__}-{moment}{number}", server)
        kept = "nothing: the run is on disk, and `wandb sync` uploads it"
        yield Outcome(f"W&B's server {name}, from the start or mid-run", 2 * times, survived, kept)
