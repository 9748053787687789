"""The comparison as a report on W&B's server: the words, the tables, and curves that stay alive there."""

from collections.abc import Sequence
from typing import Any

from posenc.analysis.comparison import Arm, Panel
from posenc.analysis.reproduction import reproduction
from posenc.analysis.runs import Sweep
from posenc.report import formatting
from posenc.report.page import facts
from posenc.report.tables import markdown, settings

MEASURED = (
    ("val_loss", "Validation loss, nats per token"),
    ("train_loss", "Training loss, nats per token"),
    ("previous_token", "Attention to the token before, best head"),
    ("induction", "Induction score, best head"),
)
"""What is drawn over the steps, by the names that a run logs."""


def build(sweep: Sweep, panels: Sequence[Panel], entity: str, project: str) -> Any:
    """The report, not yet saved.

    Args:
        sweep: runs on W&B's server.
        panels: the same, compared; each has its own curves, grouped by scheme.
        entity, project: where the report goes.
    """
    import wandb_workspaces.reports.v2 as reports

    blocks: list[Any] = []
    if whole := formatting.overall(panels):
        blocks.append(reports.MarkdownBlock(f"{whole}\n\n{markdown(settings(panels))}"))
    for panel in panels:
        if panel.title:
            blocks.append(reports.H2(panel.title))
        blocks += [reports.MarkdownBlock(_text(panel)), _curves(reports, panel, entity, project)]
    notices = [*sweep.notices, *dict.fromkeys(notice for panel in panels for notice in panel.notices)]
    told = [f"- {notice}" for notice in notices]
    about = [["", ""], *([name, value] for name, value in facts(sweep).items())]
    blocks += [reports.H2("About these runs"), reports.MarkdownBlock("\n".join([*told, "", markdown(about)]))]
    title = f"Position schemes side by side, {sweep.name}"
    return reports.Report(entity=entity, project=project, title=title[:128], blocks=blocks, width="fluid")


def _text(panel: Panel) -> str:
    """The verdict, the table behind it, and what the paper had."""
    parts = [formatting.against(panel), markdown(_rows(panel))]
    if beside := reproduction(panel):
        parts.append("\n".join(beside.markdown()))
    return "\n\n".join(parts)


def _rows(panel: Panel) -> list[list[str]]:
    """A head, and a row a scheme."""
    marks = panel.rivals[0].marks if panel.rivals else ()
    speed_ups = [f"steps to {mark.level:.3f} ({formatting.share(mark.fraction)} of the budget)" for mark in marks]
    return [
        ["scheme", "seeds", "parameters", "validation loss", "bits per byte", *speed_ups],
        *(_row(arm, arm.scheme == panel.baseline) for arm in panel.arms),
    ]


def _row(arm: Arm, baseline: bool) -> list[str]:
    bits = "-" if arm.bits is None else formatting.interval(arm.bits)
    reached = [
        formatting.steps(mark.steps)
        if baseline or mark.in_steps.missed
        else f"{formatting.steps(mark.steps)}, {formatting.times(mark.in_steps)}"
        for mark in arm.marks
    ]
    return [arm.scheme, arm.seeds, formatting.parameters(arm.parameters), formatting.interval(arm.loss), bits, *reached]


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
            title=title,
            x="step",
            y=[name],
            title_x="step",
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
            layout=reports.Layout(x=12 * (place % 2), y=8 * (place // 2), w=12, h=8),
        )
        for place, (name, title) in enumerate(MEASURED)
    ]
    return reports.PanelGrid(runsets=[runs], panels=drawn)
