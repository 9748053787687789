"""The claim map as a page with figures and tables."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from posenc.analysis.claim_map import (
    ARM,
    BASELINE,
    OTHERS,
    Point,
    advantage,
    advantage_with,
    backbone_of,
    growth,
    trend,
)
from posenc.analysis.held_out import held_out
from posenc.analysis.results import (
    BACKBONE,
    SEARCH,
    BlockRow,
    CopyingRow,
    CurveRow,
    DistanceRow,
    NGramRow,
    RemovedHeadRow,
    Result,
    ShareRow,
)
from posenc.analysis.search import searches
from posenc.analysis.study import Study
from posenc.report import claim_map_figures, figures, formatting, search
from posenc.report.claim_map_curves import differences
from posenc.report.claim_map_levels import levels
from posenc.report.claim_map_losses import losses
from posenc.report.claim_map_reversals import reversed_order
from posenc.report.claim_map_tables import on_test_split, one_factor, schemes, table
from posenc.report.copying import copying, distances, removed_heads
from posenc.report.position_shares import position_shares
from posenc.report.spread import spread, spread_of_ratio
from posenc.report.validation_error import validation_error
from posenc.storage.atomic import atomic_write

INTRODUCTION = """\
How many times fewer tokens, N, RoPE needs to reach the loss that the sinusoid has at the end of training, by budget
([protocol](../../docs/protocol.md)). `runs.csv` has a row for each run, `curves.csv` every validation, `plan.yaml`
the planned runs. One unit of budget is the smallest runs' tokens. Intervals are Student's t over seeds, 95 %, and cover
seeds only; with fewer than three seeds there is no interval and no verdict. Generated with
`python -m posenc.claim_map`."""

WITHIN = """\
The validation loss minus that of RoPE's run of the same seed, a line for each run. Of each scheme the hyperparameters
with the most seeds are drawn, of several those with the lowest final loss; of RoPE also others with several seeds.
Learning rates differ, so a part of a difference within the runs is one of schedules."""


def write(study: Study) -> Path:
    """Plot the claim map of every corpus in runs.csv, and write README.md; returns its path."""
    text, file = ["# The claim map", study.findings(), INTRODUCTION], study.folder / "README.md"
    for corpus in study.corpora:
        backbone, alternatives = backbone_of(study, corpus)
        unit = min((result.tokens for result in backbone), default=0)
        text += [f"## {study.title(corpus)}", *_backbone(study, corpus, backbone, alternatives, unit)]
        for tokens in sorted({result.tokens for result in backbone if result.pos not in (ARM, BASELINE)}):
            text += [f"### Every scheme with {tokens:,} tokens per run", schemes(backbone, tokens, unit)]
        text += on_test_split(held_out(backbone, alternatives, study.rows("test.csv", BlockRow, corpus)), unit)
        text += validation_error(backbone, alternatives, study.rows("blocks.csv", BlockRow, corpus))
        text += copying(study.rows("copying.csv", CopyingRow, corpus))
        text += distances(study.rows("distances.csv", DistanceRow, corpus))
        text += removed_heads(study.rows("removed_heads.csv", RemovedHeadRow, corpus))
        text += _within(study, corpus, backbone)
        text += position_shares(study.rows("shares.csv", ShareRow, corpus))
        for tokens, trials in searches(study.on(corpus)).items():
            text += [f"### Hyperparameter search with {tokens:,} tokens per run", search.table(trials)]
            if max(map(len, trials.values())) > 4:  # few are read from the table
                name = f"search-{corpus}-{tokens}.png"
                of_budget = [result for result in backbone if result.tokens == tokens]
                chosen = {(result.pos, result.lr, result.scale, result.base) for result in of_budget}
                figures.save(search.figure(trials, chosen), study.folder / name)
                text += [f"![Expected best of k trials]({name})"]
    atomic_write(file, "\n\n".join(filter(None, text)) + "\n")
    return file


def _within(study: Study, corpus: str, backbone: Sequence[Result]) -> list[str]:
    """Plot the longest runs of other schemes beside those of the two; returns the paragraphs."""
    longest = max((result.tokens for result in backbone if result.pos not in (ARM, BASELINE)), default=0)
    drawn = differences([row for row in study.rows("curves.csv", CurveRow, corpus) if row.tokens == longest])
    if drawn is None:
        return []
    name = f"within-{corpus}.png"
    figures.save(drawn, study.folder / name)
    return [f"### Within the runs of {longest:,} tokens", WITHIN, f"![Loss minus RoPE's]({name})"]


def _backbone(
    study: Study, corpus: str, backbone: Sequence[Result], alternatives: Mapping[str, Sequence[Result]], unit: int
) -> list[str]:
    """Plot N over the tokens of one corpus, with all results of its plan; returns the paragraphs on it."""
    planned = {result.key for result in itertools.chain(backbone, *alternatives.values())}
    results = [result for result in study.on(corpus) if result.setting != BACKBONE or result.key in planned]
    points = advantage(backbone, ARM, BASELINE)
    against = {other: advantage(backbone, ARM, other) for other in OTHERS}
    others = {other: found for other, found in against.items() if len(found) > 1}  # else in schemes()
    instead = {name: advantage_with(backbone, found) for name, found in alternatives.items()}
    named = {f"against {other}": found for other, found in others.items()}
    written = write_up(results, points, named | {f"with {name}": found for name, found in instead.items()}, unit)
    if not points:
        return written
    ngrams = {row.order: row.val_loss for row in study.rows("ngrams.csv", NGramRow, corpus)}
    settings = sorted({result.setting for result in results if not result.setting.startswith(SEARCH)} - {BACKBONE})
    changed = {setting: [result for result in results if result.setting == setting] for setting in settings}
    both = [result for result in backbone if result.pos in (ARM, BASELINE)]
    of_one_arm = {name: found for name, found in alternatives.items() if len({run.pos for run in found}) == 1}
    other_schemes = sorted({run.pos for run in backbone} - {ARM, BASELINE})
    hollow = of_one_arm | {pos: [run for run in backbone if run.pos == pos] for pos in other_schemes}
    figures.save(losses(both, points, hollow), study.folder / f"losses-{corpus}.png")
    written.insert(0, f"![Final loss against tokens per run](losses-{corpus}.png)")
    if (behind := reversed_order(both, points, hollow)) is not None:
        figures.save(behind, study.folder / f"reversed-{corpus}.png")
        written.append(f"![Final losses where the baseline ends lower](reversed-{corpus}.png)")
    if sum(point.has_ratio for point in points) > 1:  # else a map has nothing to show
        factors = {
            study.changes.get(setting) or setting: advantage(of_setting, ARM, BASELINE)
            for setting, of_setting in changed.items()
        }
        factors |= {f"against {other}": found for other, found in against.items() if len(found) == 1}
        different = {
            "Other hyperparameters or seeds of an arm": dict(sorted(instead.items())),
            "One difference": factors,
        }
        figures.save(claim_map_figures.advantages(points, others, different, ngrams), study.folder / f"{corpus}.png")
        written.append(f"![N against baseline tokens]({corpus}.png)")
    return [*written, *levels(backbone, ngrams), *one_factor(changed, unit)]


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
        b = fitted.slope
        written.append(
            "Over the budgets off the plateau where every seed has an N, log N = a + b log D, with an a for each seed, "
            f"has b = {b.value:.2f}{formatting.bounds(b)}, {fitted.values} values of N, {formatting.seeds(b.seeds)}. "
            "In an F test against a mean for each budget, this straight line has p = "
            f"{fitted.lack_of_fit:.2g}{': it does not fit, and b is no trend' if fitted.lack_of_fit < 0.05 else ''}."
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
