"""The comparison on the terminal."""

import sys
from typing import Any, Literal

from posenc.analysis.comparison import Comparison
from posenc.errors import printable_lines
from posenc.report import sentences, tables
from posenc.report.tables import Table


def show(comparison: Comparison) -> None:
    """Print the tables, notices and verdicts."""
    console = _console(120)
    for panel in comparison.panels:
        _print(console, tables.losses(panel))
        if panel.rivals:
            _print(console, tables.thresholds(panel))
        if panel.reproduction:
            _print(console, tables.reproduction(panel.reproduction))
        of_the_sweep = comparison.sweep.notices if panel is comparison.panels[0] else ()
        for notice in (*of_the_sweep, *panel.notices):
            _say(console, f"Note: {notice}.")
        console.print()
        _say(console, sentences.verdict(panel), "bold")
    if overall := sentences.overall(comparison):
        _print(console, tables.settings(comparison))
        console.print()
        _say(console, overall, "bold")
    if lowest := sentences.lowest(comparison):
        console.print()
        _say(console, lowest, "bold")
    if any(panel.rivals for panel in comparison.panels):
        _say(console, sentences.COVERAGE)


def show_longer_windows(comparison: Comparison) -> None:
    """Print bits per byte at each length, mean over seeds, in 80 columns."""
    console = _console(80)
    for panel in comparison.panels:
        if found := panel.extrapolation:
            _print(console, tables.longer_windows(panel, found, intervals=False))
            for gap in sentences.gaps(found):
                _say(console, f"{gap}.")
            _say(console, sentences.extrapolation(found), "bold")


def _console(width: int) -> Any:
    """A console as wide as the terminal, or, without a terminal, of the given width."""
    from rich import console

    class Console(console.Console):
        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704  called while the error is handled; rich would exit without a word

    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else width)


def _say(console: Any, text: str, style: str | None = None) -> None:
    """Print text that may contain names from untrusted files."""
    console.print(printable_lines(text), style=style)


def _print(console: Any, table: Table) -> None:
    from rich import box
    from rich import table as rich_table

    grouped = any(not row[0] for row in table.rows)
    narrow = console.width < 100
    printed = rich_table.Table(
        title=printable_lines(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
        pad_edge=False, collapse_padding=True, padding=(0, 0 if narrow else 1),
        min_width=min(len(table.title), console.width),
    )  # fmt: skip
    columns = [[*map(printable_lines, cells)] for cells in zip(table.head, *table.rows, strict=True)]
    words = [max(len(word) for cell in cells for word in cell.split() or [""]) for cells in columns]
    whole = sum(words) + 2 * len(words) <= console.width  # a table that cannot shrink to the console would be cut
    for cells, longest in zip(columns, words, strict=True):
        justify: Literal["left", "right"] = "right" if printed.columns else "left"
        printed.add_column(cells[0], justify=justify, overflow="fold", min_width=longest if whole else None)
    for row in table.rows:
        if grouped and row[0]:
            printed.add_section()
        printed.add_row(*map(printable_lines, row))
    console.print()
    console.print(printed)
