"""Create a W&B report of a sweep: `python -m posenc.wandb_report wandb://entity/project/group`."""

import sys

from posenc.analysis.wandb_runs import parse_source, public_api, read_group, wandb_errors
from posenc.config.command_line import Arguments, one_sentence_errors
from posenc.tracking.client import TIMEOUT, within


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc wandb_report", description=__doc__)
    parser.add_argument("source", help="wandb://entity/project/group")
    parser.add_argument(
        "--baseline", help="scheme that the others are compared with; default: sinusoidal, if it is there"
    )
    parser.add_argument("--draft", action="store_true", help="visible only to you")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds to wait for each request")
    arguments = sys.argv[1:] if arguments is None else arguments
    with one_sentence_errors(arguments):
        given = parser.parse_args(arguments)
        print(f"Report: {report(given.source, given.baseline, given.draft, given.timeout)}")


def report(source: str, baseline: str | None = None, draft: bool = False, timeout: float = TIMEOUT) -> str:
    """Read a sweep from W&B's server, and save its comparison there; returns its URL.

    Raises:
        UserError: if a package, the key, the runs or the baseline are missing, or the server does not respond.
    """
    from posenc.analysis.comparison import compare

    entity, project, group = parse_source(source)
    with wandb_errors(f"{entity}/{project}"):
        import wandb_workspaces.reports.v2  # noqa: F401  before the runs are read, which takes long
    sweep = read_group(entity, project, group, timeout=timeout)
    comparison = compare(sweep, baseline)
    with wandb_errors(f"a report in {entity}/{project}"):
        from posenc.report.wandb import build

        public_api(timeout)
        built = build(comparison, entity, project)
        within(timeout, lambda: built.save(draft=draft))
        return str(built.url)


if __name__ == "__main__":
    main()
