"""The claim map as a page with figures and tables."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TypeVar

from posenc.analysis.claim_map import ROPE, SINUSOID, Point, advantage, from_reversal, growth
from posenc.analysis.corpus_map import CorpusMap, corpus_map
from posenc.analysis.held_out import held_out
from posenc.analysis.results import (
    BlockRow,
    CopyingRow,
    CurveRow,
    DistanceRow,
    NGramRow,
    RemovedHeadRow,
    Result,
    RunRow,
    ShareRow,
)
from posenc.analysis.run_key import Key
from posenc.analysis.search import searches
from posenc.analysis.study import Study
from posenc.report import figures, formatting
from posenc.report.claim_map import search
from posenc.report.claim_map.by_context import by_context
from posenc.report.claim_map.copying import copying, distances, removed_heads
from posenc.report.claim_map.losses import losses
from posenc.report.claim_map.over_copying import over_copying
from posenc.report.claim_map.ratios import advantages
from posenc.report.claim_map.reversals import reversed_order
from posenc.report.claim_map.tables import levels, on_test_split, one_factor, position_shares, schemes, table
from posenc.report.claim_map.validation_error import validation_error
from posenc.report.claim_map.within_runs import within_runs
from posenc.storage.atomic import atomic_write

_Row = TypeVar("_Row", bound=RunRow)

INTRODUCTION = """\
How many times fewer tokens, N, RoPE needs to reach the loss that the sinusoid has at the end of training, by budget
([protocol](../../docs/protocol.md)). `runs.csv` has a row for each run, `curves.csv` every validation, `plan.yaml`
the planned runs. One unit of budget is the smallest runs' tokens. Intervals are Student's t over seeds, 95 %, and cover
seeds only; with fewer than three seeds there is no interval and no verdict. Tables that begin with "With" have other
settings of one arm or both; an arm or a budget without runs in them has those of the first table. Generated with
`python -m posenc.claim_map`."""

WITHIN = """\
The validation loss minus that of RoPE's run of the same seed, a line for each run. Each scheme is drawn with the
hyperparameters that end lowest of those with three or more seeds (without any, of those with the most); RoPE also with
others that have several seeds, as a mean over these.
Learning rates differ, so part of a difference within the runs comes from the schedules."""


FIGURES = ("losses", "reversed", "contexts", "copying", "within", "search")
"""What the names of figures begin with: those that the page no longer shows are deleted."""

BY_CONTEXT = """\
RoPE's loss minus the sinusoid's in these contexts, a dot for each seed of the arms, and lines through the means; below
0 RoPE is ahead."""

OVER_COPYING = """\
Each dot is a run from the first budget at which the baseline ends lower: its final loss minus the lowest of the
baseline's with the same seed and budget, plotted against how much lower its loss is at a second occurrence."""


def write(study: Study) -> Path:
    """Plot the claim map of every corpus in runs.csv, and write README.md; returns its path."""
    text, file = ["# The claim map", study.findings(), INTRODUCTION], study.folder / "README.md"
    for corpus in study.corpora:
        found = corpus_map(study, corpus)
        rows = partial(_rows, study, corpus, {result.key for result in found.results})
        text += [f"## {study.title(corpus)}", *_ratios(study, corpus, found)]
        for tokens in sorted({result.tokens for result in itertools.chain(*found.others.values())}):
            text += [f"### Every scheme with {tokens:,} tokens per run", schemes(found.backbone, tokens, found.unit)]
        on_test = held_out(found.backbone, found.alternatives, rows("test.csv", BlockRow))
        text += on_test_split(on_test, found.unit)
        text += validation_error(found.backbone, found.alternatives, rows("blocks.csv", BlockRow))
        text += _copied(study, corpus, found, rows("copying.csv", CopyingRow))
        text += distances(rows("distances.csv", DistanceRow))
        text += removed_heads(rows("removed_heads.csv", RemovedHeadRow))
        text += _within(study, corpus, found, rows("curves.csv", CurveRow))
        text += position_shares(rows("shares.csv", ShareRow))
        text += _searches(study, corpus, found)
    page = "\n\n".join(filter(None, text)) + "\n"
    for drawn in study.folder.glob("*-*.png"):  # of an earlier state of the runs
        if drawn.name.partition("-")[0] in FIGURES and f"({drawn.name})" not in page:
            drawn.unlink()
    atomic_write(file, page)
    return file


def _rows(study: Study, corpus: str, of: Set[Key], name: str, kind: type[_Row]) -> list[_Row]:
    """The rows about some runs in a table of the study."""
    return [row for row in study.rows(name, kind, corpus) if row.key in of]


def _ratios(study: Study, corpus: str, found: CorpusMap) -> list[str]:
    """Plot the final losses and N over the tokens of one corpus; returns the paragraphs on them."""
    several = {other: points for other, points in found.against.items() if len(points) > 1}  # else in schemes()
    named = {f"against {other}": points for other, points in several.items()}
    named |= {f"with {name}": points for name, points in found.instead.items()}
    written = write_up(found.results, found.points, named, found.unit)
    if not found.points:
        return written
    ngrams = {row.order: row.val_loss for row in study.rows("ngrams.csv", NGramRow, corpus)}
    hollow = {name: runs for name, runs in found.alternatives.items() if len({run.pos for run in runs}) == 1}
    hollow |= found.others
    drawn = losses(found.both, found.points, hollow)
    written.insert(0, figures.image(drawn, study.folder / f"losses-{corpus}.png", "Final loss against tokens per run"))
    if (behind := reversed_order(found.both, found.points, hollow)) is not None:
        what = "Final losses from the first budget at which the baseline ends lower"
        written.append(figures.image(behind, study.folder / f"reversed-{corpus}.png", what))
    if sum(point.has_ratio for point in found.points) > 1:  # else a map has nothing to show
        drawn = advantages(found.points, several, _in_other_settings(study, found), ngrams)
        written.append(figures.image(drawn, study.folder / f"{corpus}.png", "N against baseline tokens"))
    return [*written, *levels(found.backbone, ngrams), *one_factor(found.changed, found.unit)]


def _in_other_settings(study: Study, found: CorpusMap) -> dict[str, dict[str, Sequence[Point]]]:
    """N(D) where something differs from the map, by heading and by what differs."""
    texts = {setting: study.changes.get(setting) or setting for setting in found.changed}
    shared = {text for text, settings in Counter(texts.values()).items() if settings > 1}
    factors: dict[str, Sequence[Point]] = {
        f"{text} ({setting})" if text in shared else text: advantage(found.changed[setting], ROPE, SINUSOID)
        for setting, text in texts.items()
    }
    factors |= {f"against {other}": points for other, points in found.against.items() if len(points) == 1}
    return {
        "Other hyperparameters or seeds of an arm": dict(sorted(found.instead.items())),
        "One difference": factors,
    }


def _copied(study: Study, corpus: str, found: CorpusMap, rows: Sequence[CopyingRow]) -> list[str]:
    """Plot in which contexts the arms differ, and how the longest runs end over what they copy; returns the text."""
    text = copying(rows)
    if (drawn := by_context(found.backbone, rows)) is not None:
        text += [BY_CONTEXT, figures.image(drawn, study.folder / f"contexts-{corpus}.png", "Difference by context")]
    if (drawn := over_copying(found.results, rows, from_reversal(found.points))) is not None:
        what = "Final loss over what is copied"
        text += [OVER_COPYING, figures.image(drawn, study.folder / f"copying-{corpus}.png", what)]
    return text


def _within(study: Study, corpus: str, found: CorpusMap, rows: Sequence[CurveRow]) -> list[str]:
    """Plot the longest runs of other schemes beside those of the two; returns the paragraphs."""
    longest = max((result.tokens for result in itertools.chain(*found.others.values())), default=0)
    keys = {result.key for result in found.results if result.tokens == longest}
    drawn = within_runs([row for row in rows if row.key in keys])
    if drawn is None:
        return []
    shown = figures.image(drawn, study.folder / f"within-{corpus}.png", "Loss minus RoPE's")
    return [f"### Within the runs of {longest:,} tokens", WITHIN, shown]


def _searches(study: Study, corpus: str, found: CorpusMap) -> list[str]:
    """Plot the larger hyperparameter searches; returns the paragraphs on all of them."""
    text: list[str] = []
    for tokens, trials in searches(found.results).items():
        text += [f"### Hyperparameter search with {tokens:,} tokens per run", search.table(trials)]
        if max(map(len, trials.values())) > 4:  # few are read from the table
            of_budget = [result for result in found.backbone if result.tokens == tokens]
            chosen = {(result.pos, result.lr, result.scale, result.base) for result in of_budget}
            file, what = f"search-{corpus}-{tokens}.png", f"Expected best of k trials with {tokens:,} tokens"
            text.append(figures.image(search.figure(trials, tokens, chosen), study.folder / file, what))
    return text


def write_up(
    results: Sequence[Result], points: Sequence[Point], others: Mapping[str, Sequence[Point]], unit: int
) -> list[str]:
    """The paragraphs on one corpus, in Markdown.

    Args:
        results: all of them, for the error over validation windows.
        points: of the map.
        others: of the maps against other baselines or with other hyperparameters of an arm, by name.
        unit: tokens in a unit of budget.
    """
    written = [table(points, unit)] if points else []
    for name, against in others.items():
        if against:
            written += [f"{name[0].upper()}{name[1:]}:", table(against, unit)]
    return [*written, *_growth(points), *_unreached(points), *_error_over_windows(results)]


def _growth(points: Sequence[Point]) -> Iterator[str]:
    if changed := growth(points):
        before, after, factor = changed
        yield (
            f"From {before:,} to {after:,} tokens N changes by a factor of {factor.value:.2f}"
            f"{formatting.bounds(factor)}, paired over {formatting.seeds(factor.seeds)}."
        )


def _unreached(points: Sequence[Point]) -> Iterator[str]:
    for point in points:
        if not point.advantage.value:
            yield (
                f"With {point.tokens:,} tokens RoPE's largest budget does not reach the baseline's loss with "
                f"{point.advantage.missed} of {formatting.seeds(point.advantage.seeds)}, so that N has no mean there, "
                "and is left out of what is computed from several budgets."
            )


def _error_over_windows(results: Sequence[Result]) -> Iterator[str]:
    errors = [result.val_loss_se for result in results if math.isfinite(result.val_loss_se)]
    if errors:
        yield (
            f"Each final loss has a standard error of {statistics.median(errors):.4f} nats over validation windows "
            "(median over runs). All runs use the same windows, so differences are more precise."
        )
