"""The comparison as tables, shared by the terminal, Markdown and the web page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from posenc.analysis.attention_heads import DROPPED
from posenc.analysis.comparison import Comparison, Panel
from posenc.analysis.convergence import Estimate
from posenc.analysis.extrapolation import Extrapolation
from posenc.analysis.published import Reproduction
from posenc.analysis.runs import SCORES
from posenc.analysis.sweep import Sweep
from posenc.report import formatting, sentences
from posenc.report.formatting import interval, share, times
from posenc.storage.metrics import METRICS, Metric


@dataclass(frozen=True)
class Table:
    """Rows of text; a cell may have several lines. A row with an empty first cell belongs to the one above.

    Attributes:
        caption: the long text above it, on web pages and in README.md.
        title: the short one, on the terminal.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    title: str = ""


def markdown(table: Table) -> str:
    """The table in Markdown, without title and caption."""
    cells = [[cell.replace("|", "\\|").replace("\n", "<br>") for cell in row] for row in (table.head, *table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|---" * len(table.head) + "|", *lines[1:]])


def section(table: Table, *text: str) -> list[str]:
    """Paragraphs and the table below them, in Markdown; none without rows."""
    return [*text, markdown(table)] if table.rows else []


def losses(panel: Panel) -> Table:
    """One row per scheme: final losses, throughput and verdict."""
    after = f"after {panel.budget:,} steps{', so far' if panel.provisional else ''}"
    rows = [
        (
            arm.scheme,
            formatting.of(len(arm.runs), arm.started),
            "–" if arm.parameters is None else f"{arm.parameters / 1e6:.2f}M",
            interval(arm.loss),
            interval(arm.bits),
            f"{arm.tokens_per_s:,.0f}" if arm.tokens_per_s else "–",
            "baseline" if arm.scheme == panel.baseline else str(arm.verdict or "–"),
        )
        for arm in panel.arms
    ]
    return Table(
        ("scheme", "seeds", "params", "validation loss", *_titles("bits_per_byte"), "tokens/s", "verdict"),
        rows,
        f"{f'{panel.title}: {after}' if panel.title else after.capitalize()}. Losses in {METRICS['val_loss'].unit}.",
        f"{after.capitalize()}{', ' if panel.title else ''}{panel.title}",
    )


def _titles(*names: str) -> list[str]:
    return [METRICS[name].title for name in names]


def thresholds(panel: Panel) -> Table:
    """One row per scheme with the steps to the baseline's losses, followed by rows for the speed-ups."""
    rows = []
    for arm in (arm for arm in panel.arms if arm.thresholds):
        rows.append([arm.scheme, "steps", *(formatting.steps(t.steps) for t in arm.thresholds)])
        if arm.scheme != panel.baseline:
            rows.append(["", *_titles("speed_up_steps"), *(_or_dash(t.in_steps) for t in arm.thresholds)])
            if panel.one_machine:
                rows.append(["", *_titles("speed_up_seconds"), *(_or_dash(t.in_seconds) for t in arm.thresholds)])
    return Table(
        ("scheme", "", *(f"after {share(t.fraction)}\nloss {t.level:.3f}" for t in panel.thresholds)),
        rows,
        f"Steps to {panel.baseline}'s loss after a fraction of the budget, and the speed-up over {panel.baseline}. The "
        "speed-up in tokens is the same, since all batches have the same size.",
        f"Steps to {panel.baseline}'s loss after a fraction of the budget, and speed-up over {panel.baseline}",
    )


def _or_dash(ratio: Estimate) -> str:
    """A dash if it was not reached, which the row of steps already says."""
    return "–" if ratio.missed else times(ratio)


def settings(comparison: Comparison) -> Table:
    """One row per setting: every scheme's headline."""
    panels = comparison.panels
    schemes = list(dict.fromkeys(arm.scheme for panel in panels for arm in panel.rivals))
    rows = []
    for panel in panels:
        ratios = {arm.scheme: times(arm.headline.in_steps) for arm in panel.rivals if arm.headline}
        rows.append([panel.title, *(ratios.get(scheme, "–") for scheme in schemes)])
    title = f"All settings: speed-up in steps over {comparison.baseline}, to the lowest loss that both reach"
    return Table(["setting", *schemes], rows, title=title)


def reproduction(found: Reproduction) -> Table:
    """One row per point of the paper's figure."""
    columns = zip(found.points, found.ours[found.curves.scheme], zip(*found.ours.values(), strict=True), strict=True)
    rows = [
        (share(own.fraction), f"{own.level:.3f}", f"{point.ratio:g}x", *(times(one.in_steps) for one in each))
        for point, own, each in columns
    ]
    ours = [f"ours: {scheme}" for scheme in found.ours]
    return Table(
        ("after", f"{found.baseline}'s loss", "paper", *ours),
        rows,
        f"Speed-up in steps over {found.baseline}, to {found.baseline}'s loss after a fraction of its budget, compared "
        f"with that of rotary over the other arm in {found.curves.source}, after the same fraction, digitised from the "
        f"figure. Differences: {found.curves.unlike}.",
        f"Comparison with the paper ({found.curves.source}): speed-up in steps",
    )


def longer_windows(panel: Panel, found: Extrapolation, intervals: bool = True) -> Table:
    """One row per scheme: bits per byte at each length, with their intervals or, in 80 columns, without."""
    rows = []
    for row in found.rows:
        cells = [interval(row.bits.get(multiple)).partition(" ") for multiple in found.lengths]
        shown = [f"{bits}\n{bounds}".strip() if intervals else bits for bits, _, bounds in cells]
        rows.append([row.scheme, formatting.of(row.evaluated, row.seeds), *shown])
    where = f"{', ' if panel.title else ''}{panel.title}"
    return Table(
        ["scheme", "seeds", *(f"{multiple:g}x\n{length:,}" for multiple, length in found.lengths.items())],
        rows,
        f"Bits per byte{where}: the same validation text, cut into windows of each length. In longer windows most "
        "bytes also have more context, so for a scheme that works at any length bits per byte would decrease."
        + "".join(f" {gap}." for gap in sentences.gaps(found)),
        f"Bits per byte in longer windows{where}, mean over seeds",
    )


def heads(panel: Panel) -> Table:
    """One row per scheme: when its loss falls below the n-gram baseline, and its final scores."""
    ngram = panel.ngram
    drop = [f"loss {DROPPED} below\nthe {ngram.order} model"] if ngram else []
    rows = [
        (
            row.scheme,
            *([formatting.steps_interval(row.dropped)] if row.dropped else []),
            interval(row.scores["previous_token"], 2),
            interval(row.scores["induction"]),
        )
        for row in panel.heads
    ]
    return Table(
        ("scheme", *drop, *(f"{title}\nat the end" for title in _titles(*SCORES))),
        rows,
        "Steps, and scores of the best head, mean over seeds."
        + (f" The {ngram.order} model has a loss of {ngram.loss:.3f} nats per token." if ngram else ""),
    )


def search(sweep: Sweep) -> Table:
    """One row per trial of the hyperparameter search."""
    rows = []
    for trial in sweep.search:
        edge = f", at the edge of the grid in {', '.join(trial['edge'])}" if trial.get("edge") else ""
        loss = "failed" if trial["val_loss"] is None else f"{trial['val_loss']:.4f}"
        tried = [str(trial.get(key, "–")) for key in sweep.searched]
        rows.append([trial["pos"], *tried, loss, ("best" if trial["best"] else "") + edge])
    return Table(
        ["scheme", *sweep.searched, "validation loss", ""],
        rows,
        "The trials of each scheme, with one seed. The best setting of each scheme that has one was trained again "
        "with new seeds: the runs above.",
    )


def runs(sweep: Sweep) -> Table:
    """One row per run."""
    rows = [
        (r.scheme, str(r.seed), str(r.last_step), f"{r.last_loss:.4f}", f"{r.curve['seconds'][-1]:.0f}", r.source)
        for r in sweep.runs
    ]
    return Table(("scheme", "seed", "steps", "validation loss", "seconds", "from"), rows)


def facts(sweep: Sweep) -> Table:
    """Setup of the runs: names and values of what is known."""
    summaries = [run.summary for run in sweep.runs if run.finished]

    def each(key: str) -> str:
        return ", ".join(sorted({str(summary[key]) for summary in summaries if summary.get(key) is not None}))

    budgets = sorted({int(run.curve["tokens"][-1]) for run in sweep.runs})
    versions = sorted({", ".join(f"{k} {v}" for k, v in summary.get("versions", {}).items()) for summary in summaries})
    known = {
        "Last command": sweep.command,
        "Schemes": ", ".join(dict.fromkeys(run.scheme for run in sweep.runs)),
        "Seeds": ", ".join(map(str, sorted({run.seed for run in sweep.runs}))),
        "Runs": f"{len(sweep.runs)}, {len(summaries)} of them finished",
        "Tokens per run": ", ".join(f"{tokens:,}" for tokens in budgets),
        "Training time": f"{sum(run.curve['seconds'][-1] for run in sweep.runs):,.0f} s in total",
        "Hardware": each("hardware"),
        "Precision": each("precision"),
        "Versions": "; ".join(versions),
        "Commit": each("commit"),
        "Date": ", ".join(sorted({str(summary["date"])[:10] for summary in summaries if "date" in summary})),
    }
    return Table(("", ""), [(name, value) for name, value in known.items() if value])


def metrics(listed: Iterable[Metric] = METRICS.values()) -> Table:
    """One row per metric: its definition and how it is measured."""
    rows = [(m.name, f"{m.label}: {m.definition}", m.measured) for m in listed]
    return Table(("column", "definition", "how it is measured"), rows)
