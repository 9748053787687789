"""The effects of the interventions as a page with figures and tables."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from posenc.analysis.convergence import Estimate
from posenc.analysis.study import Study
from posenc.analysis.why import Ablation, Effect, Group, ablations, groups
from posenc.report import figures, formatting
from posenc.report.figures import STYLE, label
from posenc.report.looks import titled
from posenc.report.tables import Table, markdown, section
from posenc.storage.atomic import atomic_write
from posenc.storage.metrics import METRICS

INTRODUCTION = """\
Each intervention adds one property to a model, or removes one. Its share of RoPE's advantage is 0 % for the arm that it
is compared with and 100 % for RoPE, in the logarithm of the steps to the lowest loss of that arm, seed by seed.
"Times fewer steps" is the speed-up over that arm, to the same loss.
Intervals are Student's t over seeds, 95 %, and cover seeds only; with fewer than three seeds there is no interval.
`plan.yaml` has the command line of every arm, `runs.csv` a row for each run, `curves.csv` every validation, `heads.csv`
previous-token scores, `ablation.csv` losses with single offsets masked. Generated with `python -m posenc.why`."""

_COLOUR, _LINE = "#d55e00", "#1c1c1c"
_ROW = 0.27
"""Inches."""

_DOSES = 3
"""Trained doses for a curve; fewer are bars."""


def write(study: Study) -> Path:
    """Plot the effects of the interventions on each corpus, and write README.md; returns its path."""
    text, file = ["# Why", study.findings(), INTRODUCTION], study.folder / "README.md"
    for corpus in study.corpora:
        explained = groups(study, corpus)
        if any(group.explains for group in explained):
            what = "The share of RoPE's advantage that an arm has with each intervention"
            drawn = figures.image(figure(explained), study.folder / f"{corpus}.png", what)
            text += [f"## {study.title(corpus)}", drawn, table(explained, study.plan["levels"]), *heads(explained)]
    text += masked_at_evaluation(study, ablations(study))
    atomic_write(file, "\n\n".join(filter(None, text)) + "\n")
    return file


@matplotlib.rc_context(STYLE)
def figure(groups: Sequence[Group]) -> Figure:
    """The share of the advantage: a dose-response curve if the arms are values on an axis, otherwise bars."""
    shown = [group for group in groups if group.explains]
    doses = [group for group in shown if group.axis and len(group.effects) >= _DOSES and _are_doses(group.effects)]
    bars = [group for group in shown if group not in doses]
    rows = sum(len(group.effects) + 1.4 for group in bars)
    heights = [2.6] * len(doses) + [_ROW * rows] * bool(bars)
    fig = Figure(figsize=(8, sum(heights) + 0.9), layout="constrained")
    panels = fig.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, group in zip(panels, doses, strict=False):
        _dose(axes, group)
    if bars:
        _bars(panels[-1], bars)
    return fig


def _are_doses(names: Iterable[str]) -> bool:
    try:
        return all(math.isfinite(float(name)) for name in names)
    except ValueError:
        return False


def _dose(axes: Any, group: Group) -> None:
    named = {float(name): found.share for name, found in group.effects.items() if math.isfinite(found.share.value)}
    never = [float(name) for name, found in group.effects.items() if not math.isfinite(found.share.value)]
    doses = [0.0, *named]
    axes.plot(doses, [0.0, *(share.value for share in named.values())], color=_COLOUR, marker="o", markersize=5)
    for dose, share in named.items():
        if share.interval:
            axes.plot([dose, dose], share.interval, color=_COLOUR, linewidth=1.4)
    axes.plot(never, [0.0] * len(never), "x", color=_LINE)
    axes.axhline(1, color=_LINE, linewidth=0.9, linestyle=(0, (5, 3)))
    axes.axhline(0, color=_LINE, linewidth=0.9)
    axes.set_title(group.what, loc="left", fontsize=10)
    axes.set_xlabel(f"{group.axis}{' (crosses: no share, see the table)' if never else ''}")
    axes.set_ylabel("share of RoPE's advantage\nin log steps, 95 % intervals")
    axes.yaxis.set_major_formatter("{x:.0%}")


def _bars(axes: Any, groups: Sequence[Group]) -> None:
    at, ticks = 0.0, []
    for group in groups:
        axes.annotate(
            f"{group.what} (0 %: {titled(str(group.origin))})", (0.01, at), xycoords=("figure fraction", "data"),
            fontsize=9, fontweight="bold", va="center", annotation_clip=False, in_layout=False,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
        for name, found in group.effects.items():
            at += 1
            ticks.append((at, f"{group.axis}: {name}" if group.axis else name))
            _bar(axes, at, found)
        at += 1.4
    axes.set_yticks([position for position, _ in ticks], [name for _, name in ticks], fontsize=9)
    axes.set_ylim(at - 0.6, -0.7)
    axes.axvline(0, color=_LINE, linewidth=0.9)
    axes.axvline(1, color=_LINE, linewidth=0.9, linestyle=(0, (5, 3)))
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.set_xlabel("share of RoPE's advantage in log steps, 95 % intervals (dashed: RoPE)")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _bar(axes: Any, at: float, found: Effect) -> None:
    share = found.share
    if not math.isfinite(share.value):
        label(axes, f"{_share(share, _without_share(found))} seeds", (0, at), (4, 0), va="center", color="#606060")
        return
    axes.barh(at, share.value, height=0.62, color=_COLOUR, alpha=0.55)
    if share.interval:
        axes.plot(share.interval, [at, at], color=_LINE, linewidth=1.3, solid_capstyle="butt")


def table(groups: Sequence[Group], levels: Sequence[float]) -> str:
    """One row per arm, in Markdown."""
    heads = ["arm", "seeds", "times fewer steps", "share of RoPE's advantage", "share of its gain in the final loss"]
    heads += ["final loss", "minus RoPE's, paired", "minus that of the arm it is compared with, paired"]
    heads += [f"steps to {level:g}" for level in levels]
    rows = []
    for group in groups:
        if group.effects:
            against = f", against {titled(group.origin)}" if group.origin else ""
            rows.append([f"**{group.what}{against}**", *[""] * (len(heads) - 1)])
        rows += [[name, *_cells(group, found)] for name, found in group.effects.items()]
    return markdown(Table(heads, rows))


def heads(groups: Sequence[Group]) -> list[str]:
    """The paragraphs on the previous-token scores, one row per arm with a measurement and one column per layer."""
    layers = sorted({layer for group in groups for scores in group.heads.values() for layer in scores})
    metric = METRICS["previous_token"]
    rows = []
    for group in (group for group in groups if group.shares):  # the arms of the others are in these too
        if group.heads:
            rows.append([f"**{group.what}**", *[""] * (len(layers) + 1)])
        for name, scores in group.heads.items():
            cells = [formatting.interval(scores.get(layer)) for layer in layers]
            rows.append([name, str(max(score.seeds for score in scores.values())), *cells])
    columns = ["arm", "seeds", *(f"layer {layer}" for layer in layers)]
    return section(
        Table(columns, rows),
        "### Previous-token heads",
        f"The {metric.title} at the end, by layer: {metric.definition}; {metric.measured}.",
    )


def masked_at_evaluation(study: Study, found: Sequence[Ablation]) -> list[str]:
    """The paragraphs on the losses with one offset masked, one row per arm."""
    offsets = sorted({offset for one in found for offset in one.losses})
    rows = [
        [
            study.title(one.row.corpus),
            one.row.pos + (f", scale {one.row.scale}" if one.row.scale else ""),
            *(f"{one.row.tokens:,}", str(one.losses[0].seeds)),
            *(formatting.interval(one.losses.get(offset), digits=2) for offset in offsets),
        ]
        for one in found
    ]
    columns = ["text", "scheme", "tokens", "seeds", "no mask", *(f"offset {offset}" for offset in offsets if offset)]
    return section(
        Table(columns, rows),
        "## Masked at evaluation",
        "The validation loss of trained models when attention at one offset is masked in every head and layer, nats "
        "per token: what a trained model relies on, not why it trained faster.",
    )


def _cells(group: Group, found: Effect) -> list[str]:
    both = (found.share, _without_share(found)), (found.gain, "no lower loss of the reference in")
    shares = [_share(share, otherwise) if group.explains else "" for share, otherwise in both]
    steps = [f"{step:.0f}" if math.isfinite(step) else "not reached" for step in found.steps]
    losses = [formatting.interval(found.last_loss), formatting.difference(found.behind)]
    change = formatting.difference(found.change) if group.origin else ""
    faster = formatting.times(found.speed_up) if group.origin else ""
    return [str(found.last_loss.seeds), faster, *shares, *losses, change, *steps]


def _without_share(found: Effect) -> str:
    """Why there is no share: with some seeds the arm does not reach that loss, or the reference has no advantage."""
    return "not reached by" if found.share.missed == found.speed_up.missed else "no share in"


def _share(share: Estimate, otherwise: str) -> str:
    if not math.isfinite(share.value):
        return f"{otherwise} {share.missed} of {share.seeds}"
    return f"{share.value:z.0%}{formatting.bounds(share, '{:z.0%}'.format)}"
