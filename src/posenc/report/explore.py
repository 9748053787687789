"""The explorable page: a scheme's logits by distance, computed on the page, beside measured curves."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from posenc.analysis.convergence import band, mean
from posenc.analysis.results import BACKBONE, SEARCH
from posenc.errors import UserError
from posenc.report.looks import looks
from posenc.report.page import render
from posenc.storage.csv_files import read_csv
from posenc.storage.reading import read_mapping

MATCHED = math.sqrt(2) * 0.02
"""What `scale: matched` of the sinusoid comes to: token embeddings have a standard deviation of 0.02 at step 0."""

SLIDERS = ("base", "fraction", "kept", "scale", "buckets", "max_distance")
"""What measured settings have a number for, of what can be chosen on the page."""

Arm = dict[str, Any]
"""One curve of the page: scheme, name, values, source, setting, seeds, tokens, and x (in tokens), y, low, high."""


def html(results: Path, conf: Path) -> str:
    """The page, of every curves.csv under `results`; conf/pos says what the schemes' names stand for.

    Raises:
        UserError: if there is none, or a file cannot be read.
    """
    schemes = {file.stem: _scheme(file) for file in sorted((conf / "pos").glob("*.yaml"))}
    arms = [arm for file in sorted(results.rglob("curves.csv")) for arm in _arms(file, results, schemes)]
    if not arms:
        raise UserError(f"--results={results}: no curves.csv of a scheme in it")
    style = {scheme: look.on_a_page for scheme, look in looks([*schemes]).items()}
    data = {"looks": style, "measured": arms}
    return render("explore.html.j2", ("chart.js", "schemes.js", "explore.js"), data)


def _scheme(file: Path) -> dict[str, Any]:
    """The class and the values of a file of conf/pos, those of the file it builds on included."""
    own = read_mapping(file)
    below = [_scheme(file.with_name(f"{name}.yaml")) for name in own.pop("defaults", [])]
    return {**(below[0] if below else {}), **own}


def _arms(file: Path, results: Path, schemes: Mapping[str, Mapping[str, Any]]) -> Iterator[Arm]:
    """The arms of one file that the page can name: without interventions, all values numbers that a slider has."""
    source = file.parent.relative_to(results)
    rows = read_csv(file)
    if rows and "pos" not in rows[0]:
        budget = max(float(row["tokens"]) for row in rows)
        rows = [_as_in_a_study(row, budget) for row in rows]
    known = sorted((row for row in rows if row["pos"] in schemes), key=_key)
    for key, measured in groupby(known, key=_key):
        corpus, setting, pos, tokens, lr, scale, base = key
        overrides = [] if setting in (BACKBONE, SEARCH) else setting.replace(",", "").split()
        own = dict(word.removeprefix("pos.").split("=") for word in overrides if word.startswith("pos."))
        chosen = {**schemes[pos], **{name: value for name, value in (("scale", scale), ("base", base)) if value}, **own}
        rest = [word for word in overrides if not word.startswith("pos.")]
        values = _values(chosen)
        if values is None or any(word.startswith("intervention") for word in rest):
            continue
        said = [corpus, "search" if setting == SEARCH else "", *rest, f"learning rate {lr}" if lr else ""]
        yield {
            "scheme": str(chosen["_target_"]).rpartition(".")[2],
            "name": pos,
            "values": values,
            "source": f"results/{source.as_posix()}",
            "setting": ", ".join(filter(None, said)),
            "tokens": int(float(tokens)),
            **_curve(list(measured)),
        }


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    """What the runs of one arm share."""
    return tuple(row[name] for name in ("corpus", "setting", "pos", "tokens", "lr", "scale", "base"))


def _as_in_a_study(row: Mapping[str, str], budget: float) -> dict[str, str]:
    """A row of the report's curves.csv as one of a study's."""
    known = {"corpus": "", "setting": row["setting"] or BACKBONE, "lr": "", "scale": "", "base": ""}
    return {
        **known,
        "pos": row["scheme"],
        "seed": row["seed"],
        "tokens": str(budget),
        "at_tokens": row["tokens"],
        "val_loss": row["val_loss"],
    }


def _values(chosen: Mapping[str, Any]) -> dict[str, float] | None:
    """What the sliders have of a scheme's values; None where it has a value that none of them can say."""
    own = {name: MATCHED if value == "matched" else value for name, value in chosen.items() if name in SLIDERS}
    if "tokens" in chosen or "learned" in own.values():
        return None
    return {name: float(f"{float(value):.3g}") for name, value in own.items()}


def _curve(rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The mean over seeds at the tokens where all have one, with its interval."""
    seeds: dict[int, dict[float, float]] = {}
    for row in rows:
        seeds.setdefault(int(row["seed"]), {})[float(row["at_tokens"])] = float(row["val_loss"])
    shared = sorted(set.intersection(*map(set, seeds.values())))
    found = band(shared, [mean([curve[tokens] for curve in seeds.values()]) for tokens in shared])
    lines = {"x": found.x, "y": found.middle, "low": found.low, "high": found.high}
    return {"seeds": sorted(seeds), **{name: [round(float(x), 4) for x in line] for name, line in lines.items()}}
