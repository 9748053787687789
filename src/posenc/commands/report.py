"""Compare the runs of a sweep: `python -m posenc.report runs/kjv_tiny`."""

from collections.abc import Sequence
from pathlib import Path

from posenc.config.arguments import Arguments, bounded
from posenc.tracking.client import TIMEOUT

COMPARED = Arguments(add_help=False)
"""The options of both commands that compare the runs of a sweep."""

COMPARED.add_argument(
    "--baseline", help="scheme that the others are compared with; default: sinusoidal, if it is there"
)
COMPARED.add_argument(
    "--timeout",
    type=bounded(float, 0.1, 86_400),
    default=TIMEOUT,
    help="seconds to wait for each W&B request; default: %(default)g",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc report", description=__doc__, parents=[COMPARED])
    parser.add_argument("source", help="runs/<name>, or wandb://entity/project/group for a sweep on W&B's server")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for report.html and the figures; default: that of the runs, report-NAME for runs on W&B",
    )
    parser.add_argument("--results", type=Path, help="also export the curves, with their provenance, to this folder")
    parser.add_argument("--busy", action="store_true", help="the machine did other work: do not compare times")
    with parser.parsed(arguments) as given:
        from posenc.report.write import report

        report(given.source, given.baseline, given.out, given.results, given.busy, given.timeout)


if __name__ == "__main__":
    main()
