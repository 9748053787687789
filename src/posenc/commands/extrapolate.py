"""Evaluate finished runs in windows longer than those they were trained on."""

import hashlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.analysis.runs import Run
from posenc.config.command_line import Arguments, one_sentence_errors
from posenc.errors import RunError, UserError, printable

if TYPE_CHECKING:
    from posenc.storage.lengths_file import Lengths

CLOSE = 0.02
"""Nats by which a checkpoint may miss its run's validation loss: bf16 against fp32 comes to less."""

CACHE = Path("data/cache")
"""As train.py has it."""

DELETED = ""
"""What stands for the checksum of a checkpoint that is not there."""


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc extrapolate", description=__doc__)
    parser.add_argument("folder", type=Path, help="runs/<experiment>")
    parser.add_argument("--again", action="store_true", help="also evaluate what was evaluated before")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where tokens are cached (default: %(default)s)")
    given = parser.parse_args(arguments)
    with one_sentence_errors():
        extrapolate(given.folder, given.again, given.cache)


def extrapolate(folder: Path, again: bool = False, cache: Path = CACHE) -> None:
    """Write lengths.json into every finished run of a sweep that has none for its checkpoint, and print what came out.

    Args:
        folder: runs/<experiment>; perhaps a stranger's.
        again: whether to evaluate also what was evaluated before.
        cache: the folder of all caches; the runs' own configurations say nothing of where to write here.

    Raises:
        UserError: if there is no finished run, or none that can be evaluated.
    """
    from posenc.analysis.runs import read_folder

    finished = [run for run in read_folder(folder).runs if run.finished]
    if not finished:
        raise UserError(f"no run in {folder} is finished")
    from posenc.analysis.comparison import compare
    from posenc.report import terminal

    if not sum(_evaluate_and_say(run, again, cache) for run in finished):
        raise UserError(f"no run in {folder} could be evaluated")
    terminal.show_longer_windows(compare(read_folder(folder)))


def _evaluate_and_say(run: Run, again: bool, cache: Path) -> bool:
    """Evaluate a run unless that was done before; whether it is done, after saying so or why it is not."""
    begun = time.monotonic()
    try:
        new = _evaluate(run, again, cache)
    except (UserError, RunError, OSError) as error:
        print(printable(f"{run.name} is not evaluated: {error}"), file=sys.stderr, flush=True)
        return False
    if new:
        print(f"{run.name}: evaluated in {time.monotonic() - begun:.0f} s", flush=True)
    else:
        print(f"{run.name}: evaluated before (--again does it anew)", flush=True)
    return True


def _evaluate(run: Run, again: bool, cache: Path) -> bool:
    """Whether it had to be done.

    Raises:
        UserError: if the run's checkpoint or text is gone, or not what it was.
    """
    from posenc.evaluation.load import load
    from posenc.storage.checkpoint_files import newest_first
    from posenc.storage.lengths_file import Lengths, name_of, write

    directory = Path(run.source)
    checkpoint = _checksum(next(iter(newest_first(directory / "checkpoints")), None))
    known = None if again else _known(directory)
    if known and checkpoint in (known.checkpoint, DELETED):  # what a deleted one came to still holds
        return False

    from posenc.evaluation.longer_windows import at_lengths, own_validation_loss
    from posenc.evaluation.validation_text import validation_text
    from posenc.training.accelerator import best_device

    trained = load(directory)
    if not trained.objective.likelihood:
        raise UserError("its objective fills blanks, and bits per byte need the likelihood of every byte")
    tokens = validation_text(trained, cache)
    trained.model.to(best_device())
    loss, noted = own_validation_loss(trained, tokens), float(run.summary["val_loss"])
    if not abs(loss - noted) <= CLOSE:
        raise UserError(
            f"its checkpoint has a validation loss of {loss:.3f} where summary.json says {noted:.3f}, "
            "so one of them is of another run or program"
        )
    context = trained.config["context"]
    write(Lengths(name_of(directory), checkpoint, context, loss, at_lengths(trained, tokens)), directory)
    return True


def _known(directory: Path) -> "Lengths | None":
    """What was evaluated before, if it can be trusted."""
    from posenc.storage.lengths_file import read

    try:
        return read(directory)
    except UserError as error:
        print(printable(f"{error}; the run is evaluated again"), file=sys.stderr, flush=True)
        return None


def _checksum(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return DELETED
    with checkpoint.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


if __name__ == "__main__":
    main()
