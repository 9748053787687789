"""SIGKILL at any moment, again and again, and the same command each time."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from posenc.storage.failed_jobs import failed_jobs
from posenc.storage.run_directory import HOLDER
from tests.faults.outcome import Outcome
from tests.faults.toy import Toy, same_curve

AIMED = {
    "a cache's building": (1, 2),
    "the look for a summary": (1,),
    "the building of the model": (1,),
    "a step": (30, 55),
    "an update": (77,),
    "a validation": (2, 5),
    "a row": (9, 14),
    "a checkpoint's writing": (15, 63),
    "a renaming": (4, 6, 7),
    "the removal of an old checkpoint": (9,),
    "the sample": (1,),
    "the summary": (1,),
}
"""Moments that chance would seldom hit, and at which calls of them (`kill_at.MOMENTS`)."""


STEPS = 9000
"""More than all the killed processes come to together."""

TRAINING = 2.0
"""Seconds of it in which chance may strike, beside the start."""


def at_moments(toy: Toy, moments: list[tuple[str, int]]) -> Iterator[str]:
    """Kill a run at each of these moments; yields those at which it really died."""
    for moment, call in moments:
        program = ("tests/faults/kill_at.py", moment, str(call))
        with toy.start(program=program) as process:
            process.communicate(timeout=600)
        if process.returncode == -9:
            yield moment


def at_random(toy: Toy, times: int, longest: float) -> Iterator[float]:
    """Kill a run so often, each time at a random moment of its first seconds; yields when it died."""
    chance = random.Random(0)
    for _ in range(times):
        seconds = chance.uniform(0, longest)
        with toy.start() as process:
            try:
                process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        if process.returncode == -9:
            yield seconds


def in_a_sweep(toy: Toy) -> bool:
    """Whether a process killed among several is noted with what is saved of its run, and the other runs finish."""
    joblib = ("-m", "seed=0,1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    with toy.start(*joblib) as process:
        holder = toy.folder / "runs"
        while process.poll() is None and not (found := list(holder.glob("*/*/seed1-*/checkpoints/*.ckpt"))):
            time.sleep(0.02)
        (run,) = {file.parents[1] for file in found}
        os.kill(int((run / HOLDER).read_text().split()[1]), signal.SIGKILL)
        _, said = process.communicate(timeout=300)
    noted = failed_jobs(holder / "smoke")
    of_run = [Path(failure["run"]) for failure in noted] == [run.absolute()]
    named = f"its process was killed; {run} is saved up to step " in said
    finished = len(list(holder.glob("*/*/*/summary.json")))
    return process.returncode == 1 and named and of_run and finished == 2 and "Traceback" not in said


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: a sixth of the random kills; those aimed at a moment come on top.
    """
    whole, victim = Toy(folder / "whole", STEPS), Toy(folder / "victim", STEPS)
    begun = time.monotonic()
    with whole.start() as process:
        whole.wait_for_rows(1, process)
        longest = time.monotonic() - begun + TRAINING
        process.communicate(timeout=600)
    moments = [(moment, call) for moment, calls in AIMED.items() for call in calls]
    ends = [moment for moment in moments if moment[0] in ("the sample", "the summary")]
    killed = list(at_moments(victim, [moment for moment in moments if moment not in ends]))
    random_kills = list(at_random(victim, 6 * times, longest))
    killed += list(at_moments(victim, ends))
    told = victim.finish()
    whole_again = told.returncode == 0 and same_curve(whole, victim)
    lost = "nothing: metrics.csv and attention.csv are those of a run never killed, bit for bit"
    random_words = f"SIGKILL at a random moment of the start or the first {TRAINING:.0f} s of training"
    aimed_words = "SIGKILL in a cache, a step, an update, a validation, a row, a checkpoint, a summary"
    for words, kills in ((random_words, len(random_kills)), (aimed_words, len(killed))):
        yield Outcome(words, kills, kills * whole_again, lost if whole_again else f"the curve differs: {told.stderr}")
    swept = [in_a_sweep(Toy(folder / f"sweep{number}", 1000)) for number in range(times)]
    yield Outcome("SIGKILL to one of a sweep's processes", times, sum(swept), "that run's steps since its checkpoint")
