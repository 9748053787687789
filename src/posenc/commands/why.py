"""Keep and draw the interventions: `python -m posenc.why runs/why`."""

from collections.abc import Sequence
from pathlib import Path

from posenc.commands.study import Study, command_line
from posenc.config.command_line import Arguments

FINDINGS = "findings.md"
"""What people made of the figures; it opens the page, if it is there."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(prog="posenc why", description=__doc__)
    with command_line(parser, Path("results/why"), arguments) as (given, study):
        if given.todo is None:
            draw(study)
            print(f"Results: {study.folder / 'README.md'}")


def draw(study: Study) -> None:
    """Draw what each intervention explains, and write it up in README.md."""
    from posenc.analysis.why import Group, effect
    from posenc.report import why
    from posenc.storage.atomic import atomic_write

    blocks, levels = study.plan["blocks"], study.plan["levels"]
    named = {str(name): arm for block in blocks for name, arm in block["arms"].items()}
    reference = study.curves(named[study.plan["reference"]])
    groups = []
    for block in blocks:
        origin = study.curves(named[block.get("from", "none")])
        effects = {
            str(name): effect(study.curves(arm), origin, reference, levels) for name, arm in block["arms"].items()
        }
        known = {name: found for name, found in effects.items() if found}
        groups.append(Group(block["what"], block.get("from"), block.get("axis"), known))
    written = study.folder / FINDINGS
    text = ["# Why", written.read_text().strip() if written.exists() else "", why.INTRODUCTION]
    if any(group.explains for group in groups):
        why.figure(groups).savefig(study.folder / "why.png", dpi=160)
        text += ["![Share of RoPE's advantage that each intervention explains](why.png)", why.table(groups, levels)]
    atomic_write(study.folder / "README.md", "\n\n".join(filter(None, text)) + "\n")


if __name__ == "__main__":
    main()
