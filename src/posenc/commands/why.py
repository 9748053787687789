"""Update and plot the study of interventions: `python -m posenc.why runs/why`."""

from collections.abc import Sequence
from pathlib import Path

from posenc.commands.study import CACHE, add_evaluations, add_rows, command_line, in_default_setting
from posenc.config.command_line import Arguments


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
            from posenc.analysis.results import AblationRow
            from posenc.evaluation.ablation import losses_without

            alike = in_default_setting(finished)  # those without an intervention
            add_evaluations(
                study, alike, given.cache, "ablation.csv", AblationRow, lambda *of: losses_without(*of).items()
            )
        if given.todo is None:
            from posenc.report.why import write

            print(f"Results: {write(study)}")


if __name__ == "__main__":
    main()
