"""Longer windows as tables: on the terminal, as lengths.csv and as positions.csv."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from posenc.analysis.comparison import Panel
from posenc.analysis.extrapolation import Beyond, beyond
from posenc.report.formatting import finite
from posenc.storage.csv_files import to_csv
from posenc.storage.lengths_file import Lengths


def show(panels: Sequence[Panel]) -> None:
    """Print bits per byte at each length, the mean over seeds, in 80 columns."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 80)
    for panel in panels:
        told = beyond(panel)
        if told:
            console.print()
            console.print(_table(panel, told))
            for gap in told.gaps:
                console.print(f"{gap}.")
            console.print(told.sentence, style="bold")


def _table(panel: Panel, told: Beyond) -> Any:
    from rich import box
    from rich.table import Table

    title = f"Bits per byte in longer windows{', ' + panel.title if panel.title else ''}, mean over seeds"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("scheme")
    table.add_column("seeds", justify="right")
    for times, length in told.lengths.items():
        table.add_column(f"{times:g}x\n{length:,}", justify="right")
    for row in told.rows:
        cells = [f"{row.bits[times].value:.3f}" if times in row.bits else "–" for times in told.lengths]
        table.add_row(row.scheme, row.seeds, *cells)
    return table


def lengths_csv(panels: Sequence[Panel]) -> str:
    """One row a run and length; where there is no entry, the reason and no number."""
    columns = ("times", "length", "windows", "nats_per_token", "bits_per_byte", "no_entry")
    rows = []
    for where, lengths in _evaluated(panels):
        for entry in lengths.entries:
            numbers = finite(entry.nats_per_token, 5), finite(entry.bits_per_byte, 5)
            rows.append([*where, f"{entry.times:g}", entry.length, entry.windows, *numbers, entry.no_entry])
    return _text(columns, rows)


def positions_csv(panels: Sequence[Panel]) -> str:
    """One row a run, length and bucket of positions, counted from 0."""
    rows = []
    for where, lengths in _evaluated(panels):
        for entry in lengths.entries:
            for first, end, loss in zip(entry.edges[:-1], entry.edges[1:], entry.losses, strict=True):
                rows.append([*where, entry.length, first, end - 1, f"{loss:.5f}"])
    return _text(("length", "from_position", "to_position", "nats_per_token"), rows)


def _evaluated(panels: Sequence[Panel]) -> Iterator[tuple[tuple[str, str, int], Lengths]]:
    """Setting, scheme and seed of every run that was evaluated, with what came out."""
    for panel in panels:
        for arm in panel.arms:
            for run in arm.runs:
                if run.lengths is not None:
                    yield (panel.title, arm.scheme, run.seed), run.lengths


def _text(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    header = ("setting", "scheme", "seed", *columns)
    return to_csv(header, (dict(zip(header, row, strict=True)) for row in rows))
