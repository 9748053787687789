"""The claim map as a page with figures and tables."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from posenc.analysis.claim_map import (
    ARM,
    BASELINE,
    OTHERS,
    Point,
    advantage,
    backbone_of,
    finite,
    growth,
    off_plateau,
    replaced,
    trend,
)
from posenc.analysis.convergence import mean
from posenc.analysis.results import BACKBONE, SEARCH, CopyingRow, NGramRow, Result, by_seeds, pooled_sd, seeds_needed
from posenc.analysis.search import searches
from posenc.analysis.study import Study
from posenc.report import claim_map_figures, figures, formatting, search
from posenc.report.claim_map_levels import levels
from posenc.report.claim_map_losses import losses
from posenc.report.position_shares import position_shares
from posenc.report.tables import Table, markdown
from posenc.report.validation_error import validation_error
from posenc.storage.atomic import atomic_write
from posenc.storage.csv_files import read_rows

INTRODUCTION = """\
How many times fewer tokens, N, RoPE needs to reach the loss that the sinusoid has at the end of training, by budget
([protocol](../../docs/protocol.md)). `runs.csv` has a row for each run, `curves.csv` every validation, `plan.yaml`
the planned runs. One unit of budget is the smallest runs' tokens. Intervals are Student's t over seeds, 95 %, and cover
seeds only; with fewer than three seeds there is no interval and no verdict. Generated with
`python -m posenc.claim_map`."""


HEAD = (
    *("tokens", "the baseline's loss (lowest to highest seed)", "RoPE's", "minus RoPE's, nats"),
    "times fewer tokens (95 % interval)",
)
"""Of a table of the map's points."""


def write(study: Study) -> Path:
    """Plot the claim map of every corpus in runs.csv, and write README.md; returns its path."""
    text, file = ["# The claim map", study.findings(), INTRODUCTION], study.folder / "README.md"
    copied = read_rows(study.folder / "copying.csv", CopyingRow)
    for corpus in study.corpora:
        backbone, alternatives = backbone_of(study, corpus)
        unit = min((result.tokens for result in backbone), default=0)
        text += [f"## {study.title(corpus)}", *_backbone(study, corpus, backbone, alternatives, unit)]
        for tokens in sorted({result.tokens for result in backbone if result.pos not in (ARM, BASELINE)}):
            text += [f"### Every scheme with {tokens:,} tokens per run", schemes(backbone, tokens, unit)]
        text += validation_error(study.folder / "blocks.csv", corpus, backbone, alternatives)
        text += copying([row for row in copied if row.corpus == corpus])
        text += position_shares(study.folder / "shares.csv", corpus)
        for tokens, trials in searches(study.on(corpus)).items():
            text += [f"### Hyperparameter search with {tokens:,} tokens per run", search.table(trials)]
            if max(map(len, trials.values())) > 1:
                name = f"search-{corpus}-{tokens}.png"
                chosen = {(result.pos, result.lr, result.scale, result.base) for result in backbone}
                figures.save(search.figure(trials, chosen), study.folder / name)
                text += [f"![Expected best of k trials]({name})"]
    atomic_write(file, "\n\n".join(filter(None, text)) + "\n")
    return file


def _backbone(
    study: Study, corpus: str, backbone: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], unit: int
) -> list[str]:
    """Plot N over the tokens of one corpus, with all of its results; returns the paragraphs on it."""
    results = study.on(corpus)
    points = advantage(backbone, ARM, BASELINE)
    against = {f"against {other}": advantage(backbone, ARM, other) for other in OTHERS}
    others = {name: found for name, found in against.items() if len(found) > 1}  # else in schemes()
    others |= {
        f"with {name}": advantage(replaced(backbone, found), ARM, BASELINE) for name, found in alternatives.items()
    }
    written = write_up(results, points, others, unit)
    if not any(0 < value < math.inf for point in points for value in point.by_seed.values()):
        return written
    known = read_rows(study.folder / "ngrams.csv", NGramRow)
    ngrams = {row["order"]: row["val_loss"] for row in known if row["corpus"] == corpus}
    settings = sorted({result.setting for result in results if not result.setting.startswith(SEARCH)} - {BACKBONE})
    changed = {setting: [result for result in results if result.setting == setting] for setting in settings}
    factors = {setting: advantage(of_setting, ARM, BASELINE) for setting, of_setting in changed.items()}
    factors |= {name: found for name, found in against.items() if len(found) == 1}
    figures.save(claim_map_figures.advantages(points, others, factors, ngrams), study.folder / f"{corpus}.png")
    both = [result for result in backbone if result.pos in (ARM, BASELINE)]
    figures.save(losses(both, points, alternatives), study.folder / f"losses-{corpus}.png")
    drawn = f"![Final loss over the tokens of a run](losses-{corpus}.png)"
    map_drawn = f"![N over the baseline's tokens]({corpus}.png)"
    return [drawn, *written, map_drawn, *levels(backbone, ngrams), *one_factor(changed, unit)]


def write_up(
    results: Sequence[Result], points: Sequence[Point], others: Mapping[str, Sequence[Point]], unit: int
) -> list[str]:
    """The paragraphs on one corpus, in Markdown.

    Args:
        results: all of them, for the spread over seeds.
        points: of the map.
        others: of the maps against other baselines or with other hyperparameters of an arm, by name.
        unit: tokens in a unit of budget.
    """
    written = []
    if points:
        written.append(table(points, unit))
    for name, against in others.items():
        if against:
            written += [f"{name[0].upper()}{name[1:]}:", table(against, unit)]
    if changed := growth(points):
        before, after, factor = changed
        written.append(
            f"From {before:,} to {after:,} tokens N changes by a factor of {factor.value:.2f}"
            f"{formatting.bounds(factor)}, paired over {formatting.seeds(factor.seeds)}."
        )
    if fitted := trend(points):
        b, last = fitted.slope, points[-1].tokens
        written.append(
            "Over the budgets off the plateau where every seed has an N, log N = a + b log D, with an a for each seed, "
            f"has b = {b.value:.2f}{formatting.bounds(b)}, {fitted.values} values of N, {formatting.seeds(b.seeds)}. "
            f"That line has N = {fitted.at(last):.2f} at {last:,} tokens."
        )
    if beyond := [point for point in points if not point.advantage.value]:
        at = " and ".join(f"{point.tokens:,}" for point in beyond)
        written.append(
            f"With {at} tokens RoPE's largest budget does not reach the baseline's loss, so that N has only an upper "
            "bound there, and is left out of what is computed from several budgets."
        )
    written += [*spread(results), *spread_of_ratio(points)]
    errors = [result.val_loss_se for result in results if math.isfinite(result.val_loss_se)]
    if errors:
        written.append(
            f"Each final loss has a standard error of {statistics.median(errors):.4f} nats over validation windows "
            "(median over runs). All runs use the same windows, so differences are more precise."
        )
    return written


def spread(results: Sequence[Result]) -> list[str]:
    """The SD of the final loss over seeds, pooled over settings, of each scheme with two budgets or more and of all."""
    rows = []
    for pos in sorted({result.pos for result in results}):
        runs = [result for result in results if result.pos == pos]
        groups = by_seeds(off_plateau(runs))
        if len({run.tokens for run in runs}) > 1 and pooled_sd(groups)[1]:
            rows.append([pos, *_pooled(groups), *_pooled(groups[:-1])])
    if not rows:
        return []
    every = by_seeds(off_plateau(results))
    rows.append(["every scheme", *_pooled(every), *_pooled(every[:-1])])
    head = ("scheme", "SD, nats", "degrees of freedom", "seeds needed")
    without = ("SD without the budget or setting that varies most", "degrees of freedom", "seeds needed")
    return [
        "SD of the final loss over seeds, pooled over the budgets and settings of a scheme, without runs on the bigram "
        "model's plateau, and the number of seeds for which the 95 % interval of a mean is at most ± 0.01 nats:",
        markdown(Table("", (*head, *without), rows)),
    ]


def spread_of_ratio(points: Sequence[Point]) -> list[str]:
    """The SD of log N over seeds, pooled over budgets, in Markdown."""
    sd, freedom = pooled_sd([[math.log(n) for n in point.by_seed.values()] for point in finite(points)])
    if not freedom:
        return []
    needed = " and ".join(f"{seeds_needed(sd, math.log(1 + margin))} for ± {margin:.0%}" for margin in (0.01, 0.05))
    return [
        f"SD of log N over seeds, pooled over the budgets of the fit: {sd:.3f} ({freedom} degrees of freedom). "
        f"Seeds needed for a 95 % interval of N of at most a given width: {needed}."
    ]


def _pooled(groups: Sequence[Sequence[float]]) -> list[str]:
    """Three cells of `spread`; empty without two seeds in a group."""
    sd, freedom = pooled_sd(groups)
    return [f"{sd:.4f}", str(freedom), f"{seeds_needed(sd, 0.01):,}"] if freedom else [""] * 3


def table(points: Sequence[Point], unit: int) -> str:
    """One row per budget, in Markdown."""
    rows = [(f"{point.tokens / unit:g}", *_cells(point, unit)) for point in points]
    return markdown(Table("", ("units", *HEAD), rows))


def one_factor(settings: Mapping[str, Sequence[Result]], unit: int) -> list[str]:
    """The paragraphs on settings with one difference from the backbone, a row per baseline and budget, in Markdown."""
    rows = [
        (setting, baseline, *_cells(point, unit))
        for setting, results in settings.items()
        for baseline in sorted({result.pos for result in results} - {ARM})
        for point in advantage(results, ARM, baseline)
    ]
    if not rows:
        return []
    return ["### One factor at a time", markdown(Table("", ("setting", "baseline", *HEAD), rows))]


def _cells(point: Point, unit: int) -> tuple[str, ...]:
    """The cells under HEAD."""
    fewer = ratio(point, unit) + (" (plateau)" if point.plateau else "")
    gap = ("", "") if point.gap is None else (f"{statistics.fmean(point.own.values()):.3f}", f"{point.gap:.3f}")
    return (f"{point.tokens:,}", _range(point.losses), *gap, fewer)


def schemes(results: Sequence[Result], tokens: int, unit: int) -> str:
    """One row per scheme with runs of one budget, by rising loss, in Markdown."""
    of_budget = [result for result in results if result.tokens == tokens]
    own = {result.seed: result.val_loss for result in of_budget if result.pos == ARM}
    rows = []
    for pos in {result.pos for result in of_budget}:
        runs = [result for result in of_budget if result.pos == pos]
        loss = mean([run.val_loss for run in runs])
        cells = [pos, ", ".join(sorted({f"{run.lr:g}" for run in runs})), str(len(runs)), formatting.interval(loss)]
        behind = [run.val_loss - own[run.seed] for run in runs if run.seed in own]
        cells.append(formatting.difference(mean(behind)) if pos != ARM and behind else "")
        fewer = [point for point in advantage(results, ARM, pos) if point.tokens == tokens and pos != ARM]
        cells.append(ratio(fewer[0], unit) if fewer else "")
        rows.append((loss.value, cells))
    head = ("scheme", "learning rate", "seeds", "final loss", "minus RoPE's, paired", "times fewer tokens RoPE needs")
    return markdown(Table("", head, [cells for _, cells in sorted(rows)]))


def copying(rows: Sequence[CopyingRow]) -> list[str]:
    """The paragraphs on what models gain where a window repeats itself, one row per arm, in Markdown."""
    if not rows:
        return []
    cells = []
    for _, runs in itertools.groupby(sorted(rows, key=attrgetter("arm", "seed")), key=attrgetter("arm")):
        own = list(runs)
        arm = own[0]
        cells.append(
            [
                *(arm.pos, f"{arm.lr:g}", f"{arm.tokens:,}", ", ".join(str(run.seed) for run in own)),
                ", ".join(f"{run.second - run.first:+.2f}" for run in own),
                ", ".join(f"{run.new:.3f}" for run in own),
                ", ".join(f"{run.seen:.3f}" for run in own),
                ", ".join(f"{run.own:.3f}" for run in own),
                ", ".join(f"{run.foreign:.3f}" for run in own),
            ]
        )
    head = (
        *("scheme", "learning rate", "tokens", "seeds", "second minus first reading", "new context", "seen context"),
        *("own text before", "other text before"),
    )
    share = statistics.fmean(row.share for row in rows)
    return [
        "### Copying from the context",
        "A model with induction heads (Olsson et al. 2022) predicts a token better if the tokens before it have "
        "occurred before. Second minus first reading: the loss on text that stands in the window a second time, minus "
        "that on the same text before. New and seen context: the loss on the validation windows, for targets whose "
        "three preceding tokens have not occurred before in the window, and for those whose have "
        f"({share:.0%} of all). Own and other text before: the loss on the targets in the last quarter of these "
        "windows, as they are, and with all but the last eighth of a window before that quarter replaced by text from "
        "elsewhere in the split. In nats per token, by seed.",
        markdown(Table("", head, cells)),
    ]


def _range(losses: Mapping[int, float]) -> str:
    """The mean over seeds, and the lowest and highest."""
    mean, low, high = statistics.fmean(losses.values()), min(losses.values()), max(losses.values())
    return f"{mean:.3f} ({low:.3f} to {high:.3f})" if len(losses) > 1 else f"{mean:.3f}"


def ratio(point: Point, unit: int) -> str:
    """N as text: its mean and interval, or each seed's where one of them has none.

    Args:
        unit: tokens in a unit of budget.
    """
    value, each = point.advantage.value, sorted(point.by_seed.values())
    if 0 < value < math.inf:
        return f"{value:.2f}{formatting.bounds(point.advantage)}, {formatting.seeds(len(each))}"
    texts = [f"{n:.2f}" for n in each if 0 < n < math.inf]
    outside = {
        f"RoPE needs under {point.tokens / point.above / unit:g} unit": each.count(math.inf),
        f"RoPE needs over {point.tokens / point.below / unit:g} units": each.count(0),
    }
    for text, count in outside.items():
        if count:
            texts.append(text if count == len(each) else f"{text} in {count} of {len(each)} seeds")
    return ", ".join(texts)
