"""The comparison as a W&B report: sentences, tables and live curves."""

from typing import Any

from posenc.analysis.comparison import Comparison, Panel
from posenc.report import sentences, tables
from posenc.report.tables import markdown
from posenc.storage.metrics import LOGGED_AS, METRICS

PLOTTED = ("val_loss", "train_loss", "previous_token", "induction")
"""Metrics plotted over the steps."""


def build(comparison: Comparison, entity: str, project: str) -> Any:
    """Build the report of runs on W&B's server, without saving it; each panel gets its own curves by scheme."""
    import wandb_workspaces.reports.v2 as reports

    blocks: list[Any] = []
    if overall := sentences.overall(comparison):
        blocks.append(reports.MarkdownBlock(f"{overall}\n\n{markdown(tables.settings(comparison))}"))
    for panel in comparison.panels:
        if panel.title:
            blocks.append(reports.H2(panel.title))
        blocks += [reports.MarkdownBlock(_text(panel)), _curves(reports, panel, entity, project)]
    metrics = tables.metrics(METRICS[name] for name in PLOTTED)
    notices = "\n".join(f"- {notice}" for notice in comparison.notices)
    about = (sentences.COVERAGE, notices, markdown(tables.facts(comparison.sweep)), markdown(metrics))
    blocks += [reports.H2("About these runs"), reports.MarkdownBlock("\n\n".join(about))]
    title = f"Comparison of position schemes, {comparison.sweep.name}"
    return reports.Report(entity=entity, project=project, title=title[:128], blocks=blocks, width="fluid")


def _text(panel: Panel) -> str:
    """The verdict, its tables, and the comparison with the paper."""
    parts = [sentences.verdict(panel), markdown(tables.losses(panel))]
    if panel.rivals:
        parts.append(markdown(tables.thresholds(panel)))
    if panel.reproduction:
        table = tables.reproduction(panel.reproduction)
        parts += [table.caption, markdown(table)]
    return "\n\n".join(parts)


def _curves(reports: Any, panel: Panel, entity: str, project: str) -> Any:
    """The compared runs, one line per scheme: mean and range over seeds."""
    from wandb_workspaces.expr import Metric

    ids = [run.source.rpartition("/")[2] for arm in panel.arms for run in arm.runs]
    runs = reports.Runset(
        entity=entity,
        project=project,
        name=panel.title or "every scheme",
        filters=[Metric("ID").isin(ids)],
        groupby=["JobType"],  # the scheme
    )
    plots = [
        reports.LinePlot(
            title=METRICS[name].label,
            x="step",
            y=[LOGGED_AS[name]],
            title_x="step",
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            layout=reports.Layout(x=12 * (index % 2), y=8 * (index // 2), w=12, h=8),
        )
        for index, name in enumerate(PLOTTED)
    ]
    return reports.PanelGrid(runsets=[runs], panels=plots)
