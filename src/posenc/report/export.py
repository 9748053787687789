"""Exports a comparison to results/: small text files with data, provenance and command."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from posenc.analysis.comparison import BASELINE, Comparison
from posenc.report import csv_tables, figures, sentences, tables
from posenc.storage.atomic import atomic_write

OPTIONAL = frozenset(("lengths.csv", "positions.csv", "search.csv"))
"""Files that not every comparison has, besides its figures."""


def export(comparison: Comparison, folder: Path) -> None:
    """Write README.md, curves.csv, table.csv, the figures and those of OPTIONAL that this comparison has.

    The others of OPTIONAL, left of an earlier comparison, are deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = figures.save_all(comparison, folder)
    files = {"table.csv": csv_tables.table(comparison), "curves.csv": csv_tables.curves(comparison)}
    if "lengths.png" in images:
        files |= {"lengths.csv": csv_tables.lengths(comparison), "positions.csv": csv_tables.positions(comparison)}
    if comparison.sweep.search:
        files["search.csv"] = csv_tables.search(comparison)
    files["README.md"] = "\n\n".join(_readme(comparison, images, folder)) + "\n"
    for name, text in files.items():
        atomic_write(folder / name, text)
    for name in OPTIONAL.difference(files):
        (folder / name).unlink(missing_ok=True)


def _readme(comparison: Comparison, images: list[str], folder: Path) -> Iterator[str]:
    """The paragraphs of README.md."""
    panels, longer = comparison.panels, "lengths.png" in images
    yield f"# {comparison.sweep.name}"
    if overall := sentences.overall(comparison):
        settings = tables.settings(comparison)
        yield from (overall, tables.markdown(settings), f"{settings.title}.")
    if lowest := sentences.lowest(comparison):
        yield lowest
    yield from map(sentences.verdict, panels)
    if any(panel.rivals for panel in panels):
        yield sentences.COVERAGE
    yield "![Validation loss and speed-up](curves.png)"
    for panel in panels:
        if panel.reproduction:
            table = tables.reproduction(panel.reproduction)
            yield from (f"{sentences.at(panel)}{table.caption}", tables.markdown(table))
    for panel in panels:
        if panel.heads:
            yield f"{sentences.at(panel)}{sentences.heads(panel)}"
    if "heads.png" in images:
        yield "![Attention heads](heads.png)"
    for panel in panels:
        if panel.extrapolation:
            yield f"{sentences.at(panel)}{sentences.extrapolation(panel.extrapolation)}"
    if longer:
        yield "![Longer windows](lengths.png)"
    yield tables.markdown(tables.facts(comparison.sweep))
    yield from (f"Note: {notice}." for notice in comparison.notices)
    text = "`curves.csv` has every validation of every run (seconds of training time), `table.csv` the comparison"
    if longer:
        text += ", `lengths.csv` every run in longer windows, `positions.csv` its loss by position"
    yield f"{text}{', `search.csv` the trials' if comparison.sweep.search else ''}."
    yield _command(comparison, longer, folder)


def _command(comparison: Comparison, longer: bool, folder: Path) -> str:
    sweep = comparison.sweep
    commands = [sweep.command] if sweep.command else []
    if longer:
        commands.append(f"python -m posenc.extrapolate {shlex.quote(sweep.source)}")
    baseline = [] if comparison.baseline == BASELINE else ["--baseline", comparison.baseline]
    options = [*baseline, *(["--busy"] if comparison.busy else []), "--results", str(folder)]
    commands.append(f"python -m posenc.report {shlex.join([sweep.source, *options])}")
    return f"To reproduce:\n\n```bash\n{' && '.join(commands)}\n```"
