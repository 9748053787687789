"""Checkpoints that are not what they were, or not ours."""

import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import torch

from posenc.storage.checkpoint_files import newest_first
from tests.faults.outcome import Outcome
from tests.faults.toy import Toy, same_curve

Damage = Callable[[Path, random.Random], None]


def unfinish(run: Path) -> None:
    """As if it had been killed just before its summary."""
    (run / "summary.json").unlink()


def cut_short(file: Path, chance: random.Random) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: chance.randrange(len(data))])


def flip_a_bit(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def resumes_from_the_one_before(whole: Toy, folder: Path, damage: Damage, chance: random.Random) -> bool:
    """Whether a run whose last checkpoint is damaged says so, uses the one before it, and ends with the same curve."""
    victim = Toy(folder, whole.steps)
    shutil.copytree(whole.folder, folder)
    run = victim.run()
    unfinish(run)
    last, before = newest_first(run / "checkpoints")
    damage(last, chance)
    told = victim.finish()
    named = f"{last.name}.damaged is damaged" in told.stderr and before.name in told.stderr
    return told.returncode == 0 and named and "Traceback" not in told.stderr and same_curve(whole, victim)


class Trap:
    """What would make a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (self.file,)


def is_not_run(whole: Toy, folder: Path, protocol: int) -> bool:
    """Whether a pickle with code in the place of a checkpoint is refused, and its code not executed."""
    victim = Toy(folder, whole.steps)
    shutil.copytree(whole.folder, folder)
    run, proof = victim.run(), folder / "executed"
    unfinish(run)
    for file in newest_first(run / "checkpoints"):
        file.unlink()
    place = run / "checkpoints" / "pickle"
    if protocol:
        place.write_bytes(pickle.dumps({"state_dict": Trap(proof)}, protocol=protocol))
    else:
        torch.save({"state_dict": Trap(proof)}, place)
    checksum = sha256(place.read_bytes()).hexdigest()[:16]
    place.rename(place.with_name(f"step-{whole.steps:09d}-{checksum}.ckpt"))
    told = victim.finish()
    refused = told.returncode == 2 and "contains more than tensors and plain data" in told.stderr
    return refused and told.stderr.count("\n") == 1 and not proof.exists()


def foreign(whole: Toy, folder: Path, argument: str) -> bool:
    """Whether a checkpoint of a run with another value is refused, by naming the value."""
    victim = Toy(folder, whole.steps, (argument,))
    with victim.start() as process:
        victim.wait_for_rows(1, process)
        process.kill()
    run = victim.run()
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(whole.run() / "checkpoints", run / "checkpoints")
    told = victim.finish()
    return told.returncode == 2 and f"{argument.partition('=')[0]}=" in told.stderr and told.stderr.count("\n") == 1


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: of each kind of damage.
    """
    chance = random.Random(0)
    whole = Toy(folder / "whole")
    whole.finish()
    before = "the steps since the previous checkpoint, trained again; the curve is bitwise the same"
    for name, damage in (("a truncated checkpoint", cut_short), ("a checkpoint with a flipped bit", flip_a_bit)):
        survived = [
            resumes_from_the_one_before(whole, folder / f"{damage.__name__}{number}", damage, chance)
            for number in range(times)
        ]
        yield Outcome(name, times, sum(survived), before)
    pickles = [is_not_run(whole, folder / f"pickle{protocol}", protocol) for protocol in (0, 2, 4)]
    yield Outcome(
        "a pickle with code in place of a checkpoint", len(pickles), sum(pickles), "nothing: refused, not executed"
    )
    differing = ("optim.lr=0.001", "seed=1", "pos.base=500")
    others = [foreign(whole, folder / f"other{number}", argument) for number, argument in enumerate(differing)]
    yield Outcome(
        "a checkpoint of another configuration",
        len(others),
        sum(others),
        "nothing: refused, and the differing key is named",
    )
