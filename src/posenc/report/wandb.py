"""The comparison as a report on W&B's server: the sentences, the tables, and curves that stay alive there."""

from typing import Any

from posenc.analysis.comparison import Comparison, Panel
from posenc.report import sentences, tables
from posenc.report.tables import markdown
from posenc.storage.metrics import METRICS
from posenc.tracking.client import NAMES

DRAWN = ("val_loss", "train_loss", "previous_token", "induction")
"""What is drawn over the steps."""


def build(comparison: Comparison, entity: str, project: str) -> Any:
    """The report, not yet saved.

    Args:
        comparison: of runs on W&B's server; each panel has its own curves, grouped by scheme.
        entity, project: where the report goes.
    """
    import wandb_workspaces.reports.v2 as reports

    blocks: list[Any] = []
    if overall := sentences.overall(comparison):
        blocks.append(reports.MarkdownBlock(f"{overall}\n\n{markdown(tables.settings(comparison))}"))
    for panel in comparison.panels:
        if panel.title:
            blocks.append(reports.H2(panel.title))
        blocks += [reports.MarkdownBlock(_text(panel)), _curves(reports, panel, entity, project)]
    drawn = tables.metrics(METRICS[name] for name in DRAWN)
    notices = "\n".join(f"- {notice}" for notice in comparison.notices)
    about = (sentences.COVERAGE, notices, markdown(tables.facts(comparison.sweep)), markdown(drawn))
    blocks += [reports.H2("About these runs"), reports.MarkdownBlock("\n\n".join(about))]
    title = f"Position schemes side by side, {comparison.sweep.name}"
    return reports.Report(entity=entity, project=project, title=title[:128], blocks=blocks, width="fluid")


def _text(panel: Panel) -> str:
    """The verdict, the tables behind it, and what the paper had."""
    parts = [sentences.verdict(panel), markdown(tables.losses(panel))]
    if panel.rivals:
        parts.append(markdown(tables.thresholds(panel)))
    if panel.reproduction:
        beside = tables.reproduction(panel.reproduction)
        parts += [beside.caption, markdown(beside)]
    return "\n\n".join(parts)


def _curves(reports: Any, panel: Panel, entity: str, project: str) -> Any:
    """Exactly the runs compared, a line a scheme: their mean, with the range over seeds."""
    from wandb_workspaces.expr import Metric

    ids = [run.source.rpartition("/")[2] for arm in panel.arms for run in arm.runs]
    runs = reports.Runset(
        entity=entity,
        project=project,
        name=panel.title or "every scheme",
        filters=[Metric("ID").isin(ids)],
        groupby=["JobType"],  # the scheme
    )
    drawn = [
        reports.LinePlot(
            title=METRICS[name].label,
            x="step",
            y=[NAMES[name]],
            title_x="step",
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            layout=reports.Layout(x=12 * (place % 2), y=8 * (place // 2), w=12, h=8),
        )
        for place, name in enumerate(DRAWN)
    ]
    return reports.PanelGrid(runsets=[runs], panels=drawn)
