"""Reads a sweep, writes the report and prints its comparison."""

from pathlib import Path

from posenc.analysis.comparison import Comparison, compare
from posenc.analysis.sweep import read_folder
from posenc.analysis.wandb_runs import WANDB, parse_source, read_group
from posenc.report import terminal
from posenc.storage.atomic import atomic_write, check_writable
from posenc.tracking.client import TIMEOUT


def report(
    source: str,
    baseline: str | None = None,
    out: Path | None = None,
    results: Path | None = None,
    busy: bool = False,
    timeout: float = TIMEOUT,
) -> None:
    """Read a sweep, write report.html, table.csv, curves.png and curves.svg, and print the comparison.

    Also heads.png if the scores of a head rise, and lengths.png if runs were evaluated in longer windows. All files are
    written first, since stdout may be closed, as by `head`.

    The arguments are those of `posenc report`.

    Raises:
        UserError: if there are no runs, no such baseline, or the folder cannot be written.
    """
    remote = source.startswith(WANDB)
    sweep = read_group(*parse_source(source), timeout=timeout) if remote else read_folder(Path(source))
    folder = out or Path(f"report-{sweep.name}" if remote else source)
    for option, path in (("--out", folder), ("--results", results)):
        if path is not None:
            check_writable(f"{option}={path}", path)
    comparison = compare(sweep, baseline, busy)
    _write(comparison, folder)
    if results is not None:
        from posenc.report.export import export

        export(comparison, results)
    terminal.show(comparison)
    print(f"\nReport: {folder / 'report.html'}")
    if results is not None:
        print(f"Results: {results}")


def _write(comparison: Comparison, folder: Path) -> None:
    from posenc.report import csv_tables, figures, page

    folder.mkdir(parents=True, exist_ok=True)
    figures.save_all(comparison, folder)
    atomic_write(folder / "table.csv", csv_tables.table(comparison))
    atomic_write(folder / "report.html", page.html(comparison))
