"""Update and plot the study of interventions: `python -m posenc.why runs/why`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.commands.study import Study, command_line
from posenc.config.command_line import Arguments
from posenc.errors import UserError

if TYPE_CHECKING:
    from posenc.analysis.why import Group

FINDINGS = "findings.md"
"""Optional introduction of README.md, written by hand."""


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
            draw(study)
            print(f"Results: {study.folder / 'README.md'}")


def ablate(study: Study, folders: Sequence[Path], cache: Path) -> None:
    """Add the losses with masked offsets of each finished run without an intervention to ablation.csv.

    Its columns are those of the run's key, the masked offset, 0 for none, and the loss.

    Args:
        study: its existing rows are kept.
        folders: contain the runs, with their checkpoints.
        cache: token cache.
    """
    from posenc.analysis.results import BACKBONE, KEY_COLUMNS
    from posenc.evaluation.ablation import losses_without
    from posenc.evaluation.load import load
    from posenc.evaluation.validation_text import validation_text
    from posenc.storage.atomic import atomic_write
    from posenc.storage.csv_files import read_csv, to_csv

    file = study.folder / "ablation.csv"
    rows: list[Mapping[str, str | int | float]] = [*read_csv(file)]
    known = {tuple(row[name] for name in KEY_COLUMNS) for row in rows}
    for run, result in study.finished(folders):
        named = dict(zip(KEY_COLUMNS, map(str, result.key), strict=True))
        if result.setting != BACKBONE or tuple(named.values()) in known:
            continue
        try:
            trained = load(Path(run.source))
            losses = losses_without(trained, validation_text(trained, cache))
        except UserError as error:
            print(f"{run.name} is not evaluated: {error}", file=sys.stderr)
            continue
        rows += [{**named, "masked_offset": offset, "val_loss": round(loss, 5)} for offset, loss in losses.items()]
        atomic_write(file, to_csv(list(rows[0]), rows))


def groups(study: Study, corpus: str) -> "list[Group]":
    """The effects of the interventions on a corpus, by block of the plan."""
    from posenc.analysis.why import Group, effect

    blocks = study.plan["blocks"]
    named = {str(name): arm for block in blocks for name, arm in block["arms"].items()}
    reference = study.curves(named[study.plan["reference"]], corpus)
    result = []
    for block in blocks:
        origin = study.curves(named[block.get("from", "none")], corpus)
        effects = {
            str(name): effect(study.curves(arm, corpus), origin, reference, study.plan["levels"])
            for name, arm in block["arms"].items()
        }
        known = {name: one for name, one in effects.items() if one}
        result.append(Group(block["what"], block.get("from"), block.get("axis"), known))
    return result


def draw(study: Study) -> None:
    """Plot the effects of the interventions on each corpus, and write README.md."""
    from posenc.report import figures, why
    from posenc.storage.atomic import atomic_write

    findings = study.folder / FINDINGS
    text = ["# Why", findings.read_text().strip() if findings.exists() else "", why.INTRODUCTION]
    for corpus in study.corpora:
        explained = groups(study, corpus)
        if any(group.explains for group in explained):
            figures.save(why.figure(explained), study.folder / f"{corpus}.png")
            text += [
                f"## {study.title(corpus)}",
                f"![Share of RoPE's advantage that each intervention explains]({corpus}.png)",
            ]
            text.append(why.table(explained, study.plan["levels"]))
    atomic_write(study.folder / "README.md", "\n\n".join(filter(None, text)) + "\n")


if __name__ == "__main__":
    main()
