"""Compare the runs of a sweep: `python -m posenc.report runs/kjv_tiny`."""

import sys
from pathlib import Path

from posenc.config.command_line import Arguments, one_sentence_errors
from posenc.tracking.client import TIMEOUT


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc report", description=__doc__)
    parser.add_argument("source", help="runs/<experiment>, or wandb://entity/project/group for a sweep on W&B's server")
    parser.add_argument(
        "--baseline", help="scheme that the others are compared with; default: sinusoidal, if it is there"
    )
    parser.add_argument("--out", type=Path, help="folder for report.html and the figures; default: that of the runs")
    parser.add_argument("--results", type=Path, help="also export the curves, with their provenance, to this folder")
    parser.add_argument("--busy", action="store_true", help="the machine did other work: do not compare times")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds to wait for each W&B request")
    arguments = sys.argv[1:] if arguments is None else arguments
    with one_sentence_errors(arguments):
        given = parser.parse_args(arguments)
        from posenc.report.write import report

        report(given.source, given.baseline, given.out, given.results, given.busy, given.timeout)


if __name__ == "__main__":
    main()
