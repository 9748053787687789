"""Evaluate finished runs in windows longer than in training."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.commands.study import CACHE
from posenc.config.arguments import Arguments
from posenc.errors import RunError, UserError, printable
from posenc.storage.resource_errors import resource_errors

if TYPE_CHECKING:
    from posenc.analysis.runs import Run

TOLERANCE = 0.02
"""Nats by which the recomputed validation loss may differ; the difference between bf16 and fp32 is smaller."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc extrapolate", description=__doc__, parents=[CACHE])
    parser.add_argument("folder", type=Path, help="runs/<name>")
    parser.add_argument("--again", action="store_true", help="also evaluate runs that have been evaluated before")
    with parser.parsed(arguments) as given:
        extrapolate(given.folder, given.again, given.cache)


def extrapolate(folder: Path, again: bool, cache: Path) -> None:
    """Evaluate every finished run of a sweep that has no lengths.json for its checkpoint, and print the results.

    Args:
        folder: runs/<name>; may be untrusted.
        cache: the root of all caches; not taken from the runs' configurations, which may be untrusted.

    Raises:
        UserError: if there is no finished run, or none that can be evaluated.
    """
    from posenc.analysis.sweep import read_folder

    sweep = read_folder(folder)
    for notice in sweep.notices:
        print(printable(notice), file=sys.stderr, flush=True)
    finished = [run for run in sweep.runs if run.finished]
    if not finished:
        raise UserError(f"no run in {folder} is finished")
    from posenc.analysis.comparison import compare
    from posenc.report import terminal

    if not sum(_evaluate_and_report(run, again, cache) for run in finished):
        raise UserError(f"no run in {folder} could be evaluated")
    terminal.show_longer_windows(compare(read_folder(folder)))


def _evaluate_and_report(run: "Run", again: bool, cache: Path) -> bool:
    """Evaluate a run unless it has been evaluated before, and print the outcome; returns whether it is evaluated."""
    start = time.monotonic()
    try:
        with resource_errors():
            new = _evaluate(run, again, cache)
    except (UserError, RunError, OSError) as error:
        print(printable(f"{run.source} is not evaluated: {error}"), file=sys.stderr, flush=True)
        return False
    if new:
        print(f"{run.name}: evaluated in {time.monotonic() - start:.0f} s", flush=True)
    else:
        print(f"{run.name}: evaluated before (use --again to repeat it)", flush=True)
    return True


def _evaluate(run: "Run", again: bool, cache: Path) -> bool:
    """Evaluate a run if necessary; returns whether it was.

    Raises:
        UserError: if the run's checkpoint or text is missing or has changed.
    """
    from posenc.evaluation.load import load
    from posenc.storage.atomic import check_writable
    from posenc.storage.checkpoint_files import newest
    from posenc.storage.lengths_file import Lengths, name_of, write

    directory = Path(run.source)
    checkpoint = newest(directory / "checkpoints")[0]  # the one that `load` uses
    digits = checkpoint.stem.rpartition("-")[2] if checkpoint else ""  # results of a deleted one remain valid
    if not again and run.lengths and run.lengths.checkpoint.startswith(digits):
        return False

    from posenc.evaluation.longer_windows import at_lengths
    from posenc.evaluation.losses import own_validation_loss
    from posenc.training.accelerator import best_device

    check_writable(str(directory), directory)
    trained = load(directory, run.budget)
    if not trained.objective.likelihood:
        raise UserError("bits per byte are not defined for a masked model, which has no likelihood of every byte")
    tokens = trained.split(cache, "valid")
    trained.model.to(best_device())
    loss, expected = own_validation_loss(trained, tokens), float(run.summary["val_loss"])
    if not abs(loss - expected) <= TOLERANCE:
        raise UserError(
            f"its checkpoint has a validation loss of {loss:.3f}, but summary.json has {expected:.3f}: "
            "one of them is from another run or version"
        )
    context = trained.config["context"]
    write(Lengths(name_of(directory), digits, context, loss, at_lengths(trained, tokens)), directory)
    return True


if __name__ == "__main__":
    main()
