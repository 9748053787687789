"""A comparison to be kept: small files that say what was measured, on what, and with which command."""

from collections.abc import Sequence
from pathlib import Path

from posenc.analysis import attention_heads, extrapolation
from posenc.analysis.comparison import Panel
from posenc.analysis.reproduction import reproduction
from posenc.analysis.runs import AXES, MEASURES, Sweep
from posenc.report import figures, formatting, length_tables, tables
from posenc.report.page import facts
from posenc.storage.atomic import atomic_write
from posenc.storage.csv_files import to_csv


def keep(sweep: Sweep, panels: Sequence[Panel], folder: Path) -> None:
    """Write README.md, curves.csv, table.csv, the figures and, where there are any, longer windows and positions."""
    folder.mkdir(parents=True, exist_ok=True)
    figures.save_all(panels, folder)
    atomic_write(folder / "table.csv", tables.csv_text(panels))
    atomic_write(folder / "curves.csv", _curves(panels))
    if figures.has_lengths(panels):
        atomic_write(folder / "extrapolation.csv", length_tables.lengths_csv(panels))
        atomic_write(folder / "positions.csv", length_tables.positions_csv(panels))
    if sweep.search:
        atomic_write(folder / "search.csv", tables.search_csv(sweep.search))
    atomic_write(folder / "README.md", _readme(sweep, panels, folder))


def _curves(panels: Sequence[Panel]) -> str:
    columns = ("setting", "scheme", "seed", *AXES, *MEASURES)
    rows = (
        {"setting": panel.title, "scheme": arm.scheme, "seed": run.seed}
        | {name: f"{run.curve[name][validation]:.6g}" for name in (*AXES, *MEASURES)}
        for panel in panels
        for arm in panel.arms
        for run in arm.runs
        for validation in range(len(run.curve["step"]))
    )
    return to_csv(columns, rows)


def _readme(sweep: Sweep, panels: Sequence[Panel], folder: Path) -> str:
    lines = [f"# {sweep.name}", ""]
    if whole := formatting.overall(panels):
        lines += [whole, "", tables.markdown(tables.settings(panels))]
        lines += ["", f"Times fewer steps than {panels[0].baseline}, to the lowest loss that both reach.", ""]
    for panel in panels:
        lines += [formatting.against(panel), ""]
    lines += ["![Validation loss and speed-up](curves.png)", ""]
    for beside in map(reproduction, panels):
        lines += [*beside.markdown(), ""] if beside else []
    for panel in panels:
        told = attention_heads.story(panel)
        where = f"At {panel.title}: " if panel.title else ""
        lines += [f"{where}{told.sentence}", ""] if told else []
    if figures.has_heads(panels):
        lines += ["![Attention heads](attention_heads.png)", ""]
    for further in map(extrapolation.beyond, panels):
        lines += [further.sentence, ""] if further else []
    if figures.has_lengths(panels):
        lines += ["![Longer windows](extrapolation.png)", ""]
    lines += ["| | |", "|---|---|"]
    for name, value in facts(sweep).items():
        shown = f"`{value}`" if name == "Last command" else value
        lines.append(f"| {name} | {shown} |")
    for notice in [*sweep.notices, *dict.fromkeys(notice for panel in panels for notice in panel.notices)]:
        lines += ["", f"Note: {notice}."]
    commands = [sweep.command] if sweep.command else []
    held = "`curves.csv` holds every validation of every run (seconds: of training), `table.csv` what they came to"
    if figures.has_lengths(panels):
        commands.append(f"python -m posenc.extrapolate {sweep.source}")
        held += ", `extrapolation.csv` every run in longer windows, `positions.csv` its loss along them"
    lines += ["", f"{held}."]
    lines += [
        "To make it again:",
        "",
        "```bash",
        " && ".join([*commands, f"python -m posenc.report {sweep.source} --results {folder}"]),
        "```",
    ]
    return "\n".join(lines) + "\n"
