"""The command line that the studies share."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.config.arguments import Arguments
from posenc.config.quoting import quoted
from posenc.errors import RunError, UserError, printable

if TYPE_CHECKING:
    from posenc.analysis.results import Result, RunRow
    from posenc.analysis.runs import Run
    from posenc.analysis.study import Finished, Study
    from posenc.data.tokens import Tokens
    from posenc.evaluation.load import Trained

CACHE = Arguments(add_help=False)
"""The option of commands that evaluate models."""

CACHE.add_argument("--cache", type=Path, default=Path("data/cache"), help="token cache; default: %(default)s")


@contextmanager
def command_line(
    parser: Arguments, folder: Path, measures: Mapping[str, str], arguments: Sequence[str] | None
) -> "Iterator[tuple[Any, Study, list[Finished]]]":
    """Parse the command line of a study, whose parser has its own options.

    Yields the arguments, the study, to which it has added the given runs, and these; before that it prints the missing
    ones for --todo.

    Args:
        folder: the default of --results.
        measures: what is measured on models, besides their final loss, by option.
    """
    _add_options(parser, folder, measures)
    with parser.parsed(arguments) as given:
        chosen = [option for option in measures if getattr(given, option.removeprefix("--"))]
        if chosen and not given.folders:
            raise UserError(f"{' and '.join(chosen)}: name the folders with the runs whose models are to be measured")
        from posenc.analysis.study import Study

        if not given.results.exists():
            raise UserError(f"--results={given.results} does not exist: a checkout of the repository has it")
        study = Study(given.results)
        if given.folders and not any(folder.exists() for folder in given.folders):
            raise UserError(f"{' and '.join(map(str, given.folders))}: no such folder")
        finished, notices = study.add_runs(given.folders)
        for notice in notices:
            print(printable(notice), file=sys.stderr)
        if given.todo is not None:
            missing = list(study.todo(given.todo))
            print("".join(f"{line}\n" for line in missing), end="")
            print(f"{len(missing)} runs are missing.", file=sys.stderr)
        elif not study.results:
            raise UserError(f"{given.results / 'runs.csv'} has no runs: give folders with finished runs")
        yield given, study, finished


def _add_options(parser: Arguments, folder: Path, measures: Mapping[str, str]) -> None:
    for option, measure in measures.items():
        parser.add_argument(option, action="store_true", help=f"also {measure}")
    parser.add_argument("folders", nargs="*", type=Path, help="folders whose finished runs are added, recursively")
    parser.add_argument("--results", type=Path, default=folder, help="folder with plan.yaml; default: %(default)s")
    parser.add_argument(
        "--todo",
        metavar="KEY=VALUE",
        nargs="*",
        type=quoted,
        help="print train.py's arguments for the missing runs",
    )


def only(finished: "Sequence[Finished]", option: str, measured: "Callable[[Result], bool]") -> "Sequence[Finished]":
    """The runs on whose models an option measures something; it prints how many others there are."""
    kept = [(run, result) for run, result in finished if measured(result)]
    if left := len(finished) - len(kept):
        print(f"{option} leaves out {left} of {len(finished)} runs, which it does not measure.", file=sys.stderr)
    return kept


def add_rows(
    study: "Study",
    finished: "Sequence[Finished]",
    name: str,
    kind: "type[RunRow]",
    rows_of: "Callable[[Run, Result], Sequence[RunRow]]",
) -> None:
    """Add the rows of each finished run that has none in a table of the study, which is written after each run.

    The table is read again before, since another process may have added rows to it.
    """
    from posenc.analysis.results import table
    from posenc.storage.atomic import atomic_write
    from posenc.storage.csv_files import read_rows

    def others(result: "Result") -> "list[RunRow] | None":
        """The rows of the table, None if some are of this run."""
        rows = read_rows(study.folder / name, kind)
        return None if any(row.key == result.key for row in rows) else rows

    for run, result in finished:
        if others(result) is None or not (added := rows_of(run, result)):
            continue
        if (rows := others(result)) is not None:
            atomic_write(study.folder / name, table(kind, [*rows, *added]))


def add_evaluations(
    study: "Study",
    finished: "Sequence[Finished]",
    cache: Path,
    name: str,
    kind: "type[RunRow]",
    evaluate: "Callable[[Trained, Tokens], Iterable[tuple[Any, ...]]]",
    split: str = "valid",
) -> None:
    """Add what is measured on the model of each finished run to a table.

    Args:
        evaluate: from a model and a split of its text to rows, without the columns that identify the run; losses are
            rounded to 5 digits.
        split: the split's name.
    """
    from posenc.evaluation.load import load
    from posenc.storage.resource_errors import resource_errors
    from posenc.training.accelerator import best_device

    def evaluated(run: "Run", result: "Result") -> "list[RunRow]":
        try:
            with resource_errors():
                trained = load(Path(run.source), run.budget)
                trained.model.to(best_device())
                found = evaluate(trained, trained.split(cache, split))
                rows = [kind(*result.key, *map(_rounded, values)) for values in found]
            if undefined := _undefined(rows):
                raise UserError(f"on its windows {' and '.join(undefined)} would be NaN or infinite")
            return rows
        except (UserError, RunError) as error:
            print(printable(f"{run.source} is not evaluated: {error}"), file=sys.stderr)
            return []

    add_rows(study, finished, name, kind, evaluated)


def _undefined(rows: "Iterable[RunRow]") -> list[str]:
    """The columns in which a value is NaN or infinite."""
    import numpy as np

    cells = ((column, value) for row in rows for column, value in vars(row).items() if not isinstance(value, str))
    return sorted({column for column, value in cells if not np.isfinite(value).all()})


def _rounded(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value
