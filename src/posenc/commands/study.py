"""The command line that the studies share."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.config.command_line import Arguments
from posenc.errors import UserError, printable

if TYPE_CHECKING:
    from posenc.analysis.study import Study


@contextmanager
def command_line(parser: Arguments, folder: Path, arguments: Sequence[str] | None) -> "Iterator[tuple[Any, Study]]":
    """Parse the command line of a study, whose parser has its own options; yields the arguments, and the study.

    Before that it adds the given runs, and prints the missing ones for --todo.
    """
    parser.add_argument("folders", nargs="*", type=Path, help="folders whose finished runs are added, recursively")
    parser.add_argument("--results", type=Path, default=folder, help="folder with plan.yaml; default: %(default)s")
    parser.add_argument(
        "--todo", metavar="KEY=VALUE", nargs="*", help="print train.py's arguments for the missing runs"
    )
    with parser.parsed(arguments) as given:
        from posenc.analysis.study import Study

        study = Study(given.results)
        for notice in study.add_runs(given.folders):
            print(printable(notice), file=sys.stderr)
        if given.todo is not None:
            missing = list(study.todo(given.todo))
            print("".join(f"{line}\n" for line in missing), end="")
            print(f"{len(missing)} runs are missing.", file=sys.stderr)
        elif not study.results:
            raise UserError(f"{given.results / 'runs.csv'} has no runs: give folders with finished runs")
        yield given, study
