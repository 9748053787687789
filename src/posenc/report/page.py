"""The comparison as one self-contained web page."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from posenc.analysis import attention_heads, extrapolation
from posenc.analysis.bands import Band, band, looks, speed_up_band
from posenc.analysis.comparison import Arm, Panel
from posenc.analysis.published import PUBLISHED
from posenc.analysis.reproduction import reproduction
from posenc.analysis.runs import AXES, NOT_SEARCHED, Run, Sweep
from posenc.report import formatting
from posenc.report.figures import window

_TEMPLATES = Path(__file__).parent / "templates"

_IN_VIEW: Mapping[str, Callable[[int], Sequence[int]]] = {
    "causal": lambda length: range(length // 2 + 1, length + 1),
    "masked": lambda length: [length],
}
"""How many tokens are in view of those whose heads are looked at, the second half of a window, by objective."""


def html(sweep: Sweep, panels: Sequence[Panel]) -> str:
    """The whole page: no other file, no request when it is opened."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    look = looks([arm.scheme for panel in panels for arm in panel.arms])
    why = [attention_heads.story(panel) for panel in panels]
    longer = [extrapolation.beyond(panel) for panel in panels]
    return environment.get_template("report.html.j2").render(
        sweep=sweep,
        panels=panels,
        kind=_kind(sweep),
        notices=[*sweep.notices, *dict.fromkeys(notice for panel in panels for notice in panel.notices)],
        look=look,
        words=formatting,
        alternatives=[_alternative(panel) for panel in panels],
        why=why if any(why) else None,
        heads=attention_heads,
        longer=longer if any(longer) else None,
        even=_even_share(sweep.runs),
        search_keys=_searched(sweep),
        facts=facts(sweep),
        shared=_shared(sweep.runs),
        beside=[found for panel in panels if (found := reproduction(panel))],
        ours=[row for panel in panels for row in _ours(panel)],
        published=PUBLISHED,
        style=Markup((_TEMPLATES / "style.css").read_text()),
        script=Markup((_TEMPLATES / "curves.js").read_text()),
        plotly=Markup(get_plotlyjs()),
        data=Markup(_for_script([_panel(panel, look) for panel in panels])),
    )


def _kind(sweep: Sweep) -> str:
    if sweep.search:
        return f"tuned comparison: each scheme at the {' and '.join(_searched(sweep))} that a search found best for it"
    return "matched comparison: every scheme with the same hyperparameters"


def _searched(sweep: Sweep) -> list[str]:
    """The keys that a search tried values of."""
    return list(dict.fromkeys(key for trial in sweep.search for key in trial if key not in NOT_SEARCHED))


def _even_share(runs: Sequence[Run]) -> str:
    """What attention that is even over all tokens in view gives the one before, where heads are looked at."""
    length = max(int(run.setting.get("context", 0)) for run in runs)
    if length < 2:
        return "very little"
    seen = _IN_VIEW[str(runs[0].setting.get("objective", "causal"))](length)
    return f"{100 * sum(1 / count for count in seen) / len(seen):.1f}\u00a0%"


def _for_script(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _panel(panel: Panel, look: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "window": window(panel.arms),
        "orderless": vars(floor) if (floor := attention_heads.orderless(panel)) else None,
        "longer": _longer(panel),
        "thresholds": [
            {"level": mark.level, "share": formatting.share(mark.fraction)} for mark in panel.rivals[0].marks
        ]
        if panel.rivals
        else [],
        "schemes": [
            {
                "name": arm.scheme,
                "colour": look[arm.scheme].colour,
                "dash": look[arm.scheme].dash,
                "mean": _means(arm),
                "runs": [_curve(run) for run in arm.runs],
                "speedup": _band(speed_up_band(arm, panel)) if arm in panel.rivals else None,
                "lengths": _band(extrapolation.bits_band(arm)) if extrapolation.evaluated(arm) else None,
                "positions": _band(extrapolation.position_band(arm)) if extrapolation.evaluated(arm) else None,
            }
            for arm in panel.arms
        ],
    }


def _longer(panel: Panel) -> dict[str, Any] | None:
    """The marks of the axes of the figures of longer windows."""
    told = extrapolation.beyond(panel)
    return {"context": told.context, "times": list(told.lengths)} if told else None


def _means(arm: Arm) -> dict[str, Any]:
    """Each measure's mean with the axes it can be drawn over; None where it was not measured with every seed."""
    means: dict[str, Any] = {}
    for measure in ("val_loss", "previous_token", "induction"):
        over = {axis: band(arm, measure, axis) for axis in AXES}
        means[measure] = (
            {**{axis: _rounded(one.x) for axis, one in over.items()}, **_band(over["step"])}
            if len(over["step"].x)
            else None
        )
    return means


def _band(curve: Band) -> dict[str, Any]:
    return {name: _rounded(values) for name, values in vars(curve).items()}


def _curve(run: Run) -> dict[str, Any]:
    values = {name: [x if np.isfinite(x) else None for x in _rounded(column)] for name, column in run.curve.items()}
    return {"seed": run.seed, **values}


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _alternative(panel: Panel) -> dict[str, str]:
    """What each figure shows, for who cannot see it."""
    ups = "; ".join(
        f"{arm.scheme} {', '.join(formatting.times(mark.in_steps) for mark in arm.marks)}" for arm in panel.rivals
    )
    copies = [(arm.scheme, band(arm, "induction").middle) for arm in panel.arms]
    scores = ", ".join(f"{scheme} {values[-1]:.3f}" for scheme, values in copies if len(values))
    ends = [(arm.scheme, extrapolation.position_band(arm)) for arm in panel.arms if extrapolation.evaluated(arm)]
    along = ", ".join(f"{scheme} {last.middle[-1]:.3f} at {last.x[-1]:,.0f}" for scheme, last in ends if len(last.x))
    return {
        "positions": f"Loss by position in the window, in nats per token; at the last position: {along}.",
        "loss": formatting.alone(panel),
        "speedup": f"Speed-up over {panel.baseline} at its loss after 25, 50, 75 and 100 % of the budget: {ups}.",
        "induction": f"Induction score of the best head at the end: {scores}.",
    }


def facts(sweep: Sweep) -> dict[str, str]:
    """What was run, on what and how: name and value, those that are known."""
    summaries = [run.summary for run in sweep.runs if run.finished]

    def each(key: str) -> str:
        return ", ".join(sorted({str(summary[key]) for summary in summaries if summary.get(key) is not None}))

    versions = sorted({", ".join(f"{k} {v}" for k, v in summary.get("versions", {}).items()) for summary in summaries})
    schemes = ", ".join(dict.fromkeys(run.scheme for run in sweep.runs))
    known = {
        "Last command": sweep.command,
        "Schemes": schemes,
        "Seeds": ", ".join(map(str, sorted({run.seed for run in sweep.runs}))),
        "Runs": f"{len(sweep.runs)}, {len(summaries)} of them finished",
        "Tokens a run": ", ".join(f"{int(run):,}" for run in sorted({run.curve["tokens"][-1] for run in sweep.runs})),
        "Seconds of training": f"{sum(run.curve['seconds'][-1] for run in sweep.runs):,.0f} in all",
        "Hardware": each("hardware"),
        "Precision": each("precision"),
        "Versions": "; ".join(versions),
        "Commit": each("commit"),
        "Date": each("date"),
    }
    return {name: value for name, value in known.items() if value}


def _shared(runs: Sequence[Run]) -> dict[str, Any]:
    first = runs[0].setting
    return {key: value for key, value in first.items() if all(run.setting.get(key) == value for run in runs)}


def _ours(panel: Panel) -> list[dict[str, str]]:
    tokenizers = {str(run.setting.get("tokenizer", "")) for arm in panel.arms for run in arm.runs}
    sizes = {formatting.parameters(arm.parameters) for arm in panel.arms}
    setting = f"{', '.join(sorted(sizes))} parameters, {'/'.join(sorted(tokenizers))}, {panel.budget:,} steps"
    return [
        {
            "scheme": arm.scheme,
            "setting": f"{panel.title}, {setting}" if panel.title else setting,
            "against": panel.baseline,
            "level": f"its loss at {', '.join(formatting.share(mark.fraction) for mark in arm.marks)} of the budget",
            "result": ", ".join(formatting.times(mark.in_steps) for mark in arm.marks),
        }
        for arm in panel.rivals
    ]
