"""The comparison as tables: on the terminal, and as table.csv."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from posenc.analysis.comparison import Panel
from posenc.analysis.reproduction import Reproduction, reproduction
from posenc.report import formatting
from posenc.report.formatting import finite, share
from posenc.storage.csv_files import to_csv


def csv_text(panels: Sequence[Panel]) -> str:
    """One row a setting, scheme and threshold; empty cells where something was not reached or has no interval."""
    rows: list[Mapping[str, Any]] = []
    for panel in panels:
        for arm in panel.arms:
            common = {
                "setting": panel.title,
                "comparison": panel.kind,
                "scheme": arm.scheme,
                "baseline": panel.baseline,
                "seeds": len(arm.runs),
                "diverged": arm.diverged,
                "budget": panel.budget,
                "provisional": int(panel.provisional),
                "parameters": arm.parameters,
                "tokens_per_s": finite(arm.tokens_per_s, 0),
                **_estimate("val_loss", arm.loss),
                **_estimate("bits_per_byte", arm.bits),
            }
            if not arm.marks:
                rows.append(common)
            for mark in arm.marks:
                row = {
                    **common,
                    "fraction": mark.fraction,
                    "level": finite(mark.level),
                    "pairs": mark.in_steps.seeds,
                    "not_reached": mark.steps.missed,
                    "verdict": arm.verdict if arm.scheme != panel.baseline else "baseline",
                    **_estimate("steps", mark.steps, 1),
                    **_estimate("speed_up_steps", mark.in_steps),
                    **_estimate("speed_up_seconds", mark.in_seconds),
                }
                if arm.headline:
                    row |= {"headline_level": finite(arm.headline.level)}
                    row |= _estimate("headline_speed_up_steps", arm.headline.in_steps)
                if mark.in_steps.bootstrap:
                    row["speed_up_steps_bootstrap_low"] = finite(mark.in_steps.bootstrap[0])
                    row["speed_up_steps_bootstrap_high"] = finite(mark.in_steps.bootstrap[1])
                rows.append(row)
    return to_csv(_COLUMNS, rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: a head, and the rows under it."""
    head, *body = rows
    lines = [f"| {' | '.join(row)} |" for row in (head, *body)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def _with_interval(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


_COLUMNS = [
    *("setting", "comparison", "scheme", "baseline", "seeds", "diverged", "budget", "provisional", "parameters"),
    "tokens_per_s",
    *_with_interval("val_loss"),
    *_with_interval("bits_per_byte"),
    *("fraction", "level", "pairs", "not_reached"),
    *_with_interval("steps"),
    *_with_interval("speed_up_steps"),
    *("speed_up_steps_bootstrap_low", "speed_up_steps_bootstrap_high"),
    *_with_interval("speed_up_seconds"),
    "headline_level",
    *_with_interval("headline_speed_up_steps"),
    "verdict",
]


def _estimate(name: str, estimate: Any, digits: int = 4) -> dict[str, str]:
    if estimate is None or estimate.missed:
        return {}
    values = (estimate.value, estimate.low, estimate.high)
    return {key: finite(value, digits) for key, value in zip(_with_interval(name), values, strict=True)}


def search_csv(search: Sequence[Mapping[str, Any]]) -> str:
    """The trials before a tuned comparison."""
    return to_csv(list(dict.fromkeys(key for trial in search for key in trial)), search)


def show(panels: Sequence[Panel], notices: Sequence[str] = ()) -> None:
    """Print the comparison, with what a reader must know about it."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    for panel in panels:
        title = f"After {panel.budget:,} steps" + (f", {panel.title}" if panel.title else "")
        losses = Table(title=title, title_justify="left", title_style="bold")
        for name in ("scheme", "seeds", "parameters", "validation loss", "bits per byte"):
            losses.add_column(name, justify="left" if name == "scheme" else "right")
        for arm in panel.arms:
            bits = "-" if arm.bits is None else formatting.interval(arm.bits)
            size = formatting.parameters(arm.parameters)
            losses.add_row(arm.scheme, arm.seeds, size, formatting.interval(arm.loss), bits)
        console.print()
        console.print(losses)
        if panel.rivals:
            console.print()
            console.print(_to_losses(panel))
        if beside := reproduction(panel):
            console.print()
            console.print(_beside(beside))
        for notice in [*notices, *panel.notices] if panel is panels[0] else panel.notices:
            console.print(f"Note: {notice}.")
        console.print()
        console.print(formatting.against(panel), style="bold")
    if whole := formatting.overall(panels):
        console.print()
        console.print(_settings(panels))
        console.print()
        console.print(whole, style="bold")


def _settings(panels: Sequence[Panel]) -> Any:
    """Every setting's headline in a row."""
    from rich.table import Table

    head, *rows = settings(panels)
    table = Table(
        title=f"Every setting: times fewer steps than {panels[0].baseline}, to the lowest loss that both reach",
        title_justify="left", title_style="bold", min_width=80,
    )  # fmt: skip
    for name in head:
        table.add_column(name, justify="left" if name == "setting" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def settings(panels: Sequence[Panel]) -> list[list[str]]:
    """How many times fewer steps each scheme needs in each setting: a head, and a row a setting."""
    schemes = list(dict.fromkeys(arm.scheme for panel in panels for arm in panel.rivals))
    rows = [["setting", *schemes]]
    for panel in panels:
        ratios = {arm.scheme: formatting.times(arm.headline.in_steps) for arm in panel.rivals if arm.headline}
        rows.append([panel.title, *(ratios.get(scheme, "-") for scheme in schemes)])
    return rows


def _beside(beside: Reproduction) -> Any:
    from rich.table import Table

    table = Table(
        title=f"Beside the paper ({beside.curves.source}): times fewer steps",
        caption=f"To {beside.baseline}'s loss after a share of its budget; in the paper, to its other arm's.",
        min_width=80,
        title_justify="left", title_style="bold", caption_justify="left",
    )  # fmt: skip
    for name in ("after", "paper", *beside.schemes):
        table.add_column(name, justify="right")
    for row in beside.rows:
        ours = [formatting.times(estimate) for estimate in row.ours.values()]
        table.add_row(share(row.fraction), f"{row.paper:g}x", *ours)
    return table


def _to_losses(panel: Panel) -> Any:
    from rich.table import Table

    table = Table(
        title=f"Steps to {panel.baseline}'s loss, and how many times fewer than {panel.baseline} needs",
        caption="Under the steps: times fewer steps, then times less training time (95 % interval over seeds).",
        title_justify="left", title_style="bold", caption_justify="left", show_lines=True,
    )  # fmt: skip
    table.add_column("scheme")
    for mark in panel.rivals[0].marks:
        table.add_column(f"after {share(mark.fraction)}\n{mark.level:.3f}", justify="right")
    for arm in panel.arms:
        if arm.marks:
            table.add_row(arm.scheme, *(_cell(mark, arm.scheme == panel.baseline) for mark in arm.marks))
    return table


def _cell(mark: Any, baseline: bool) -> str:
    if baseline or mark.in_steps.missed:
        return formatting.steps(mark.steps)
    return "\n".join((formatting.steps(mark.steps), formatting.times(mark.in_steps), formatting.times(mark.in_seconds)))
