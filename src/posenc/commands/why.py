"""Update and plot the study of interventions: `python -m posenc.why runs/why`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.commands.study import command_line
from posenc.config.command_line import Arguments
from posenc.errors import RunError, UserError, printable

if TYPE_CHECKING:
    from posenc.analysis.study import Study


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc why", description=__doc__)
    parser.add_argument(
        "--ablate", action="store_true", help="also evaluate the finished models with single offsets masked"
    )
    parser.add_argument("--cache", type=Path, default=Path("data/cache"), help="token cache; default: %(default)s")
    with command_line(parser, Path("results/why"), arguments) as (given, study):
        if given.ablate:
            ablate(study, given.folders, given.cache)
        if given.todo is None:
            from posenc.report.why import write

            print(f"Results: {write(study)}")


def ablate(study: "Study", folders: Sequence[Path], cache: Path) -> None:
    """Add the losses with masked offsets of each finished run without an intervention to ablation.csv.

    Its columns are those of the run's key, the masked offset, 0 for none, and the loss; existing rows are kept.
    """
    from posenc.analysis.results import BACKBONE, KEY_COLUMNS, AblationRow
    from posenc.evaluation.ablation import losses_without
    from posenc.evaluation.load import load
    from posenc.storage.atomic import atomic_write
    from posenc.storage.csv_files import read_rows, to_csv
    from posenc.storage.resource_errors import resource_errors

    file = study.folder / "ablation.csv"
    rows: list[Mapping[str, Any]] = [*read_rows(file, AblationRow)]
    known = {tuple(row[name] for name in KEY_COLUMNS) for row in rows}
    for run, result in study.finished(folders)[0]:
        if result.setting != BACKBONE or result.key in known:
            continue
        named = dict(zip(KEY_COLUMNS, result.key, strict=True))
        try:
            with resource_errors():
                trained = load(Path(run.source))
                losses = losses_without(trained, trained.validation_text(cache))
        except (UserError, RunError) as error:
            print(printable(f"{run.name} is not evaluated: {error}"), file=sys.stderr)
            continue
        rows += [{**named, "masked_offset": offset, "val_loss": round(loss, 5)} for offset, loss in losses.items()]
        atomic_write(file, to_csv(list(rows[0]), rows))


if __name__ == "__main__":
    main()
