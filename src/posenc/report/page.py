"""The comparison as a self-contained web page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc.analysis.arms import Arm, Threshold
from posenc.analysis.comparison import Comparison, Panel
from posenc.analysis.convergence import Band
from posenc.analysis.extrapolation import SchemeExtrapolation
from posenc.analysis.runs import Run
from posenc.report import formatting, sentences, tables
from posenc.report.figures import scores, window
from posenc.report.looks import looks
from posenc.storage.metrics import METRICS

_TEMPLATES = Path(__file__).parent / "templates"


def html(comparison: Comparison) -> str:
    """The complete page; it loads no other files."""
    look = {scheme: one.on_a_page for scheme, one in looks(comparison.schemes).items()}
    labels = {name: metric.label for name, metric in METRICS.items()}
    return render(
        "report.html.j2",
        ("chart.js", "curves.js"),
        {"labels": labels, "panels": [_panel(panel, look) for panel in comparison.panels]},  # for curves.js
        comparison=comparison,
        panels=comparison.panels,
        look=look,
        sentences=sentences,
        tables=tables,
        scores=scores,
        alternatives=[_alternative(panel) for panel in comparison.panels],
        shared=_shared(comparison.sweep.runs),
        metrics=METRICS,
    )


def render(template: str, scripts: Sequence[str], data: Mapping[str, Any], **shown: Any) -> str:
    """A self-contained page: a template with its style, data and scripts inlined."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["lines"] = lambda text: Markup("<br>").join(text.split("\n"))
    return environment.get_template(template).render(
        style=Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8")),
        data=Markup(json.dumps(data, separators=(",", ":"), allow_nan=False, default=_as_list).replace("<", "\\u003c")),
        script=Markup("\n".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)),
        **shown,
    )


def _panel(panel: Panel, look: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    longer = panel.extrapolation
    rows = {row.scheme: row for row in longer.rows} if longer else {}
    return {
        "window": window(panel.arms),
        "ngram": vars(panel.ngram) if panel.ngram else None,
        "longer": {"context": longer.context, "times": list(longer.lengths)} if longer else None,
        "thresholds": [{"level": t.level, "share": formatting.share(t.fraction)} for t in panel.thresholds],
        "schemes": [{**look[arm.scheme], **_arm(arm, rows.get(arm.scheme))} for arm in panel.arms],
    }


def _arm(arm: Arm, longer: SchemeExtrapolation | None) -> dict[str, Any]:
    return {
        "name": arm.scheme,
        "mean": {measure: _mean(over) for measure, over in arm.bands.items()},
        "runs": [{"seed": run.seed, **run.curve} for run in arm.runs],
        "speedup": vars(arm.speed_ups) if arm.speed_ups else None,
        "lengths": vars(longer.by_length) if longer else None,
        "positions": vars(longer.by_position) if longer else None,
    }


def _mean(over: Mapping[str, Band]) -> dict[str, Any] | None:
    """A measure's mean over each axis; None if it was not measured for every seed."""
    step = over["step"]
    axes = {axis: band.x for axis, band in over.items()}
    return {**axes, "middle": step.middle, "low": step.low, "high": step.high} if len(step.x) else None


def _as_list(column: NDArray[np.float64]) -> list[float | None]:
    """For JSON: 6 digits, and None where nothing was measured."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in column]


def _alternative(panel: Panel) -> dict[str, str]:
    """Text alternatives of the figures, for screen readers."""
    ups = "; ".join(f"{arm.scheme} {', '.join(map(_speed_up, arm.thresholds))}" for arm in panel.rivals)
    copies = ", ".join(f"{row.scheme} {row.scores['induction'].value:.3f}" for row in panel.heads)
    ends = [(row.scheme, row.by_position) for row in (panel.extrapolation.rows if panel.extrapolation else ())]
    along = ", ".join(f"{scheme} {band.middle[-1]:.3f} at {band.x[-1]:,.0f}" for scheme, band in ends if len(band.x))
    return {
        "positions": f"Loss by position in the window, in nats per token; at the last position: {along}.",
        "loss": sentences.losses(panel),
        "speedup": f"Speed-up over {panel.baseline} at its loss after a fraction of the budget: {ups}.",
        "previous_token": sentences.heads(panel) if panel.heads else "",
        "induction": f"Induction score of the best head at the end: {copies}.",
    }


def _speed_up(threshold: Threshold) -> str:
    return f"{formatting.times(threshold.in_steps)} at {formatting.share(threshold.fraction)}"


def _shared(runs: Sequence[Run]) -> dict[str, Any]:
    """The configuration that all runs have."""
    first = runs[0].setting
    return {key: value for key, value in first.items() if all(run.setting.get(key) == value for run in runs)}
