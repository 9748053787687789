"""Create a W&B report of a sweep: `python -m posenc.wandb_report wandb://entity/project/group`."""

from collections.abc import Sequence

from posenc.analysis.wandb_runs import parse_source, public_api, read_group, wandb_errors
from posenc.commands.report import COMPARED
from posenc.config.arguments import Arguments
from posenc.tracking.client import within


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc wandb_report", description=__doc__, parents=[COMPARED])
    parser.add_argument("source", help="wandb://entity/project/group")
    parser.add_argument("--draft", action="store_true", help="visible only to you")
    with parser.parsed(arguments) as given:
        print(f"Report: {report(given.source, given.baseline, given.draft, given.timeout)}")


def report(source: str, baseline: str | None, draft: bool, timeout: float) -> str:
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
