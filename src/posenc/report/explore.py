"""The interactive page: a scheme's logits by distance, computed in the browser, next to measured curves."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import FiniteFloat
from typing_extensions import TypedDict  # required by pydantic before Python 3.12

from posenc.analysis.convergence import SEEDS_FOR_A_VERDICT, band, mean
from posenc.analysis.results import CurveRow, by_arm, losses_by_seed
from posenc.analysis.run_key import BACKBONE, SEARCH
from posenc.bounds import PositiveInt
from posenc.errors import UserError
from posenc.report.looks import looks
from posenc.report.page import render
from posenc.storage.csv_files import read_csv, read_rows
from posenc.storage.reading import check_types, read_mapping

MATCHED = math.sqrt(2) * 0.02
"""Value of the sinusoid's `scale: matched`: token embeddings have a standard deviation of 0.02 at step 0."""

SLIDERS = ("base", "fraction", "kept", "scale", "buckets", "max_distance")
"""The controls of the page for which measured settings have a value."""


class _ReportRow(TypedDict):
    """A row of a report's curves.csv."""

    scheme: str
    setting: str
    seed: int
    tokens: PositiveInt
    val_loss: FiniteFloat


Line = dict[str, Any]
"""One curve of the page: scheme, name, values, source, setting, learning rate if known, seeds, tokens, x (the tokens of
its validations, in the page the number of their list) and y; of seeds enough for a verdict also low and high."""


def html(results: Path, conf: Path) -> str:
    """The page for every curves.csv in `results`; conf/pos defines the schemes.

    Raises:
        UserError: if there are no curves, or a file cannot be read.
    """
    schemes = {file.stem: _scheme(file) for file in sorted((conf / "pos").glob("*.yaml"))}
    arms = [arm for file in sorted(results.rglob("curves.csv")) for arm in _arms(file, results, schemes)]
    if not arms:
        raise UserError(f"--results={results} has no curves.csv of a scheme")
    style = {scheme: look.on_a_page for scheme, look in looks(schemes).items()}
    # Most curves have the same validations: each list of them is in the page once.
    grids = list(dict.fromkeys(arm["x"] for arm in arms))
    data = {"looks": style, "grids": grids, "measured": [{**arm, "x": grids.index(arm["x"])} for arm in arms]}
    return render("explore.html.j2", ("chart.js", "schemes.js", "explore.js"), data)


def _scheme(file: Path) -> dict[str, Any]:
    """The class and values of a file in conf/pos, including those of its defaults."""
    own = read_mapping(file)
    for name in own.pop("defaults", []):
        if name != "_self_":
            own = {**_scheme(file.with_name(f"{name}.yaml")), **own}
    return own


def _arms(file: Path, results: Path, schemes: Mapping[str, Mapping[str, Any]]) -> Iterator[Line]:
    """The arms of one file that the page can show: without interventions, and with values that the sliders have."""
    source = Path(results.resolve().name, file.parent.relative_to(results))
    plan = file.with_name("plan.yaml")
    titles = check_types(plan, read_mapping(plan).get("corpora") or {}, dict[str, str]) if plan.exists() else {}
    for measured in by_arm(row for row in _rows(file) if row.pos in schemes):
        first = measured[0]
        trial = first.setting.startswith(SEARCH)
        overrides = [] if first.setting == BACKBONE else first.setting.removeprefix(SEARCH).replace(",", "").split()
        own = dict(one.removeprefix("pos.").split("=", 1) for one in overrides if re.match(r"pos\.\w+=", one))
        tuned = {name: value for name, value in (("scale", first.scale), ("base", first.base)) if value}
        chosen = {**schemes[first.pos], **tuned, **own}
        rest = [one for one in overrides if not one.startswith("pos.")]
        values = _values(chosen)
        if values is None or any(one.startswith("intervention") for one in rest):
            continue
        parts = [titles.get(first.corpus, first.corpus), SEARCH if trial else "", *rest]
        yield {
            "scheme": str(chosen["_target_"]).rpartition(".")[2],
            "name": first.pos,
            "values": values,
            "source": source.as_posix(),
            "setting": ", ".join(filter(None, parts)),
            "rate": first.lr or None,
            "tokens": first.tokens,
            **_curve(measured),
        }


def _rows(file: Path) -> list[CurveRow]:
    """The rows of a curves.csv, those of a report's with the columns of a study's."""
    columns = next(iter(read_csv(file)), None)
    if columns is None:
        raise UserError(f"{file} has no curves: restore or delete it")
    if "pos" in columns:
        return read_rows(file, CurveRow)
    rows = read_rows(file, _ReportRow)
    budgets: dict[str, int] = {}
    for row in rows:
        budgets[row["setting"]] = max(row["tokens"], budgets.get(row["setting"], 0))
    return [
        CurveRow(
            corpus="",
            setting=row["setting"] or BACKBONE,
            pos=row["scheme"],
            seed=row["seed"],
            tokens=budgets[row["setting"]],
            lr=0,
            scale="",
            base="",
            at_tokens=row["tokens"],
            val_loss=row["val_loss"],
        )
        for row in rows
    ]


def _values(chosen: Mapping[str, Any]) -> dict[str, float] | None:
    """A scheme's values for the sliders; None if it has a value that they cannot represent."""
    own = {name: MATCHED if value == "matched" else value for name, value in chosen.items() if name in SLIDERS}
    if "tokens" in chosen or "learned" in own.values():
        return None
    try:
        values = {name: float(f"{float(value):.3g}") for name, value in own.items()}
    except (TypeError, ValueError):
        return None
    return values if all(map(math.isfinite, values.values())) else None


def _curve(rows: Sequence[CurveRow]) -> dict[str, Any]:
    """Mean over seeds, of enough for a verdict with its interval, at the tokens that all seeds have."""
    seeds = losses_by_seed(rows)
    shared = sorted(set.intersection(*map(set, seeds.values())))
    found = band(shared, [mean([curve[tokens] for curve in seeds.values()]) for tokens in shared])
    interval = {"low": found.low, "high": found.high} if len(seeds) >= SEEDS_FOR_A_VERDICT else {}
    lines = {name: [round(float(loss), 4) for loss in line] for name, line in {"y": found.middle, **interval}.items()}
    return {"seeds": sorted(seeds), "x": tuple(shared), **lines}
