"""The comparison as CSV files: table.csv, curves.csv, search.csv, lengths.csv and positions.csv."""

import math
from collections.abc import Iterator
from typing import Any

from posenc.analysis.arms import Arm, Threshold
from posenc.analysis.comparison import Comparison, Panel
from posenc.analysis.convergence import Estimate
from posenc.analysis.runs import AXES, MEASURES, Run
from posenc.report.formatting import finite
from posenc.storage.csv_files import to_csv

Row = dict[str, Any]


def _with_interval(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


TABLE = (
    *("setting", "comparison", "scheme", "baseline", "seeds", "diverged", "budget", "provisional", "parameters"),
    "tokens_per_s",
    *_with_interval("val_loss"),
    *_with_interval("bits_per_byte"),
    *("fraction", "level", "pairs", "not_reached"),
    *_with_interval("steps"),
    *_with_interval("speed_up_steps"),
    *_with_interval("speed_up_steps_bootstrap")[1:],
    *_with_interval("speed_up_seconds"),
    "headline_level",
    *_with_interval("headline_speed_up_steps"),
    "verdict",
)
_RUN = ("setting", "scheme", "seed")


def table(comparison: Comparison) -> str:
    """One row per setting, scheme and threshold; cells are empty if a loss was not reached or has no interval."""
    arms = ((panel, arm) for panel in comparison.panels for arm in panel.arms)
    rows = (
        _common(panel, arm) | row
        for panel, arm in arms
        for row in [_threshold(panel, arm, threshold) for threshold in arm.thresholds] or [{}]
    )
    return to_csv(TABLE, rows)


def _common(panel: Panel, arm: Arm) -> Row:
    return {
        "setting": panel.title,
        "comparison": "tuned" if panel.tuned else "matched",
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


def _threshold(panel: Panel, arm: Arm, threshold: Threshold) -> Row:
    row = {
        "fraction": threshold.fraction,
        "level": finite(threshold.level),
        "pairs": threshold.in_steps.seeds,
        "not_reached": threshold.steps.missed,
        "verdict": "baseline" if arm.scheme == panel.baseline else arm.verdict,
        **_estimate("steps", threshold.steps, 1),
        **_estimate("speed_up_steps", threshold.in_steps),
        **_estimate("speed_up_seconds", threshold.in_seconds),
    }
    if arm.headline:
        row["headline_level"] = finite(arm.headline.level)
        row |= _estimate("headline_speed_up_steps", arm.headline.in_steps)
    if threshold.bootstrap:
        names = _with_interval("speed_up_steps_bootstrap")[1:]
        row |= dict(zip(names, map(finite, threshold.bootstrap), strict=True))
    return row


def _estimate(name: str, estimate: Estimate | None, digits: int = 4) -> Row:
    if estimate is None or estimate.missed:
        return {}
    values = (estimate.value, *(estimate.interval or (None, None)))
    return {key: finite(value, digits) for key, value in zip(_with_interval(name), values, strict=True)}


def curves(comparison: Comparison) -> str:
    """One row per run and validation."""
    columns = (*AXES, *MEASURES)
    rows = (
        {**key, **{name: _cell(name, run.curve[name][validation]) for name in columns}}
        for key, run in _runs(comparison)
        for validation in range(len(run.curve["step"]))
    )
    return to_csv((*_RUN, *columns), rows)


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if name in ("step", "tokens") else f"{value:.6g}"


def search(comparison: Comparison) -> str:
    """The trials of the hyperparameter search."""
    trials = comparison.sweep.search
    return to_csv(list(dict.fromkeys(key for trial in trials for key in trial)), trials)


def lengths(comparison: Comparison) -> str:
    """One row per run and length; if it was not evaluated, with the reason."""
    rows = (
        {
            **key,
            "times": f"{entry.times:g}",
            "length": entry.length,
            "windows": entry.windows,
            "nats_per_token": finite(entry.nats_per_token, 5),
            "bits_per_byte": finite(entry.bits_per_byte, 5),
            "no_entry": entry.no_entry,
        }
        for key, run in _runs(comparison)
        for entry in (run.lengths.entries if run.lengths else ())
    )
    return to_csv((*_RUN, "times", "length", "windows", "nats_per_token", "bits_per_byte", "no_entry"), rows)


def positions(comparison: Comparison) -> str:
    """One row per run, length and bucket of positions, counted from 0."""
    rows = (
        {**key, "length": entry.length, "from_position": first, "to_position": end - 1, "nats_per_token": f"{loss:.5f}"}
        for key, run in _runs(comparison)
        for entry in (run.lengths.entries if run.lengths else ())
        for first, end, loss in zip(entry.edges[:-1], entry.edges[1:], entry.losses, strict=True)
    )
    return to_csv((*_RUN, "length", "from_position", "to_position", "nats_per_token"), rows)


def _runs(comparison: Comparison) -> Iterator[tuple[Row, Run]]:
    """Every run with its setting, scheme and seed."""
    for panel in comparison.panels:
        for arm in panel.arms:
            for run in arm.runs:
                yield {"setting": panel.title, "scheme": arm.scheme, "seed": run.seed}, run
