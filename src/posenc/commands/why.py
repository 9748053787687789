"""Update and plot the study of interventions: `python -m posenc.why runs/why`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.commands.study import CACHE, add_evaluations, add_rows, command_line, in_default_setting
from posenc.config.command_line import Arguments

if TYPE_CHECKING:
    from posenc.analysis.study import Finished, Study


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc why", description=__doc__, parents=[CACHE])
    parser.add_argument(
        "--ablate", action="store_true", help="also evaluate the finished models with single offsets masked"
    )
    with command_line(parser, Path("results/why"), arguments) as (given, study, finished):
        from posenc.analysis.results import HeadRow, head_rows

        add_rows(study, finished, "heads.csv", HeadRow, head_rows)
        if given.ablate:
            ablate(study, finished, given.cache)
        if given.todo is None:
            from posenc.report.why import write

            print(f"Results: {write(study)}")


def ablate(study: "Study", finished: "Sequence[Finished]", cache: Path) -> None:
    """Add the losses with masked offsets of each finished run without an intervention to ablation.csv.

    Its columns are those of the run's key, the masked offset, 0 for none, and the loss.
    """
    from posenc.analysis.results import AblationRow
    from posenc.evaluation.ablation import losses_without

    add_evaluations(
        study, in_default_setting(finished), cache, "ablation.csv", AblationRow, lambda *of: losses_without(*of).items()
    )


if __name__ == "__main__":
    main()
