"""The comparison as a self-contained web page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc.analysis.arms import Arm, Threshold
from posenc.analysis.comparison import Comparison, Panel
from posenc.analysis.convergence import Band
from posenc.analysis.runs import Run
from posenc.report import formatting, sentences, tables
from posenc.report.figures import scores, window
from posenc.report.looks import Look, looks
from posenc.storage.metrics import METRICS

_TEMPLATES = Path(__file__).parent / "templates"


def html(comparison: Comparison) -> str:
    """The complete page; it loads no other files."""
    look = looks(comparison.schemes)
    labels = {name: metric.label for name, metric in METRICS.items()}
    return render(
        "report.html.j2",
        ("chart.js", "curves.js"),
        {"labels": labels, "panels": [_panel(panel, look) for panel in comparison.panels]},  # for curves.js
        comparison=comparison,
        panels=comparison.panels,
        look={scheme: one.on_a_page for scheme, one in look.items()},
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
        data=Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")),
        script=Markup("\n".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)),
        **shown,
    )


def _panel(panel: Panel, look: Mapping[str, Look]) -> dict[str, Any]:
    longer = panel.extrapolation
    by_scheme = {row.scheme: row for row in longer.rows} if longer else {}
    return {
        "window": window(panel.arms),
        "ngram": vars(panel.ngram) if panel.ngram else None,
        "longer": {"context": longer.context, "times": list(longer.lengths)} if longer else None,
        "thresholds": [{"level": t.level, "share": formatting.share(t.fraction)} for t in panel.thresholds],
        "schemes": [
            {
                "name": arm.scheme,
                **look[arm.scheme].on_a_page,
                "mean": _means(arm),
                "runs": [_curve(run) for run in arm.runs],
                "speedup": _band(arm.speed_ups),
                "lengths": _band(row.by_length) if (row := by_scheme.get(arm.scheme)) else None,
                "positions": _band(row.by_position) if row else None,
            }
            for arm in panel.arms
        ],
    }


def _means(arm: Arm) -> dict[str, Any]:
    """Each measure's mean over each axis; None if it was not measured for every seed."""
    return {
        measure: {**{axis: _rounded(band.x) for axis, band in over.items()}, **_values(over["step"])}
        if len(over["step"].x)
        else None
        for measure, over in arm.bands.items()
    }


def _band(curve: Band | None) -> dict[str, Any] | None:
    return {"x": _rounded(curve.x), **_values(curve)} if curve else None


def _values(curve: Band) -> dict[str, Any]:
    """Without the axis."""
    return {name: _rounded(values) for name, values in vars(curve).items() if name != "x"}


def _curve(run: Run) -> dict[str, Any]:
    values = {name: [x if np.isfinite(x) else None for x in _rounded(column)] for name, column in run.curve.items()}
    return {"seed": run.seed, **values}


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _alternative(panel: Panel) -> dict[str, str]:
    """Text alternatives of the figures, for screen readers."""
    ups = "; ".join(f"{arm.scheme} {', '.join(map(_speed_up, arm.thresholds))}" for arm in panel.rivals)
    rows = panel.heads.rows if panel.heads else ()
    copies = ", ".join(f"{row.scheme} {row.scores['induction'].value:.3f}" for row in rows)
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
