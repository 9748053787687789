"""Keep and draw the interventions: `python -m posenc.why runs/why`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.commands.study import Study, command_line
from posenc.config.command_line import Arguments

if TYPE_CHECKING:
    from posenc.analysis.why import Group

FINDINGS = "findings.md"
"""What people made of the figures; it opens the page, if it is there."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc why", description=__doc__)
    with command_line(parser, Path("results/why"), arguments) as (given, study):
        if given.todo is None:
            draw(study)
            print(f"Results: {study.folder / 'README.md'}")


def groups(study: Study) -> "list[Group]":
    """What each intervention of a study explains, block by block."""
    from posenc.analysis.why import Group, effect

    blocks = study.plan["blocks"]
    named = {str(name): arm for block in blocks for name, arm in block["arms"].items()}
    reference = study.curves(named[study.plan["reference"]])
    found = []
    for block in blocks:
        origin = study.curves(named[block.get("from", "none")])
        effects = {
            str(name): effect(study.curves(arm), origin, reference, study.plan["levels"])
            for name, arm in block["arms"].items()
        }
        known = {name: one for name, one in effects.items() if one}
        found.append(Group(block["what"], block.get("from"), block.get("axis"), known))
    return found


def draw(study: Study) -> None:
    """Draw what each intervention explains, and write it up in README.md."""
    from posenc.report import why
    from posenc.storage.atomic import atomic_write

    written, explained = study.folder / FINDINGS, groups(study)
    text = ["# Why", written.read_text().strip() if written.exists() else "", why.INTRODUCTION]
    if any(group.effects for group in explained):
        text.append(why.table(explained, study.plan["levels"]))
    if any(group.explains for group in explained):
        why.figure(explained).savefig(study.folder / "why.png", dpi=160)
        text.insert(-1, "![Share of RoPE's advantage that each intervention explains](why.png)")
    atomic_write(study.folder / "README.md", "\n\n".join(filter(None, text)) + "\n")


if __name__ == "__main__":
    main()
