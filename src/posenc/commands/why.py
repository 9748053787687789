"""Update and plot the study of interventions: `python -m posenc.why runs/why`."""

from collections.abc import Sequence
from pathlib import Path

from posenc.commands.study import CACHE, add_evaluations, add_rows, command_line, only
from posenc.config.arguments import Arguments

MEASURES = {"--ablate": "evaluate finished models in the default setting with single offsets masked"}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc why", description=__doc__, parents=[CACHE])
    with command_line(parser, Path("results/why"), MEASURES, arguments) as (given, study, finished):
        from posenc.analysis.results import HeadRow, head_rows

        add_rows(study, finished, "heads.csv", HeadRow, head_rows)
        if given.ablate:
            from posenc.analysis.results import AblationRow
            from posenc.evaluation.ablation import losses_without

            alike = only(finished, "--ablate", lambda result: result.in_default_setting)
            add_evaluations(
                study, alike, given.cache, "ablation.csv", AblationRow, lambda *of: losses_without(*of).items()
            )
        if given.todo is None:
            from posenc.report.why import write

            print(f"Results: {write(study)}")


if __name__ == "__main__":
    main()
