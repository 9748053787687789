"""The tables of the claim map: by budget, on the test split, by setting, and of every scheme."""

import math
import statistics
from collections.abc import Mapping, Sequence

from posenc.analysis.claim_map import FAMILIES, ROPE, SINUSOID, Point, advantage
from posenc.analysis.convergence import mean
from posenc.analysis.levels import Level, level, levels_of_arm
from posenc.analysis.results import Result, RunRow, ShareRow, by_arm
from posenc.report import formatting
from posenc.report.tables import Table, markdown, section

HEAD = (
    *("tokens", "the baseline's loss (lowest to highest seed)", "RoPE's", "minus RoPE's, nats (95 % interval)"),
    "times fewer tokens (95 % interval)",
)
"""Of a table of the map's points."""

ARM_COLUMNS = ("scheme", "hyperparameters", "tokens", "seeds")
"""The first columns of a table with a row for each arm."""


def table(points: Sequence[Point], unit: int) -> str:
    """One row per budget, in Markdown."""
    rows = [(f"{point.tokens / unit:g}", *_cells(point, unit)) for point in points]
    return markdown(Table(("units", *HEAD), rows))


def on_test_split(points: Mapping[str, Sequence[tuple[Point, Point]]], unit: int) -> list[str]:
    """The paragraphs on the budgets with runs that were evaluated on the test split, a row each, in Markdown.

    Args:
        points: N(D) on the test split and on validation by the name of the runs, as from `held_out`.
        unit: tokens in a unit of budget.
    """
    rows = [
        (name, f"{test.tokens / unit:g}", *_cells(test, unit), fewer_tokens(valid, unit))
        for name, of_name in points.items()
        for test, valid in of_name
    ]
    return section(
        Table(("runs", "units", *HEAD, "on validation"), rows),
        "### The test split",
        "N on the losses of finished models on the whole test split, on which nothing was chosen. The last column has "
        "N of the same runs on the windows of the last validation in training, as in the other tables.",
    )


def one_factor(settings: Mapping[str, Sequence[Result]], unit: int) -> list[str]:
    """The paragraphs on settings with one difference from the backbone, a row per baseline and budget, in Markdown."""
    rows = [
        (setting, baseline, *_cells(point, unit))
        for setting, results in settings.items()
        for baseline in sorted({result.pos for result in results} - {ROPE})
        for point in advantage(results, ROPE, baseline)
    ]
    return section(Table(("setting", "baseline", *HEAD), rows), "### One factor at a time")


def _cells(point: Point, unit: int) -> tuple[str, ...]:
    """The cells under HEAD."""
    fewer = fewer_tokens(point, unit) + (" (plateau)" if point.plateau else "")
    own = f"{statistics.fmean(point.arm_losses.values()):.3f}" if point.arm_losses else ""
    gap = f"{point.gap.value:z.3f}{formatting.bounds(point.gap, '{:z.3f}'.format)}" if point.gap else ""
    return (f"{point.tokens:,}", _range(point.baseline_losses), own, gap, fewer)


def levels(backbone: Sequence[Result], ngrams: Mapping[int, float]) -> list[str]:
    """The paragraphs on the levels that an arm's own budgets and n-gram models give, in Markdown.

    Args:
        backbone: the results of a corpus.
        ngrams: losses by order.
    """
    of_arm = [("RoPE's final loss", found) for found in levels_of_arm(backbone, ROPE, SINUSOID)]
    of_ngrams = [(f"{order}-gram model", level(backbone, ROPE, SINUSOID, loss)) for order, loss in ngrams.items()]
    rows = [(name, *_of_level(found)) for name, found in (*of_arm, *of_ngrams) if found]
    return section(
        Table(("level", "loss", f"tokens of {ROPE}", f"tokens of {SINUSOID}", "ratio (95 % interval)"), rows),
        "### Tokens to the same loss",
        "N above compares the tokens that the arms need to the sinusoid's final loss. This table compares them at "
        "RoPE's final loss for each budget, with the sinusoid's tokens interpolated between its budgets, and at the "
        "loss of an n-gram model. 'over' marks a lower bound: the sinusoid does not reach the loss with its largest "
        "budget, or RoPE reaches it with its smallest. A seed without runs of the largest budgets is left out of the "
        "rows that need one.",
    )


def _of_level(found: Level) -> tuple[str, ...]:
    """The cells; tokens and losses are means over seeds."""
    loss, *tokens = (statistics.fmean(values.values()) for values in (found.losses, found.needed, found.baseline))
    ratio = f"{'over ' * found.is_bound}{found.ratio.value:.2f}{formatting.bounds(found.ratio)}"
    return (
        f"{loss:.3f}",
        *map(formatting.millions, tokens),
        f"{ratio}, {formatting.seeds(found.ratio.seeds)}",
    )


def arm_cells(of: RunRow, seeds: Sequence[int]) -> tuple[str, ...]:
    """The cells under ARM_COLUMNS."""
    changed = "" if of.in_default_setting else f"; {of.setting}"
    return of.pos, f"{formatting.hyperparameters(of)}{changed}", f"{of.tokens:,}", ", ".join(map(str, seeds))


def position_shares(rows: Sequence[ShareRow]) -> list[str]:
    """The paragraphs on the runs of a corpus in shares.csv, one row per arm, in Markdown."""
    cells = []
    for runs in by_arm(rows):
        shares = (f"{statistics.fmean(of):.2f}" for of in zip(*((run.first, run.last) for run in runs), strict=True))
        cells.append((*arm_cells(runs[0], [run.seed for run in runs]), *shares))
    return section(
        Table((*ARM_COLUMNS, "first", "last"), cells),
        "### Share of the position encoding",
        "The share of the first norm's input variance that is due to an additive position encoding, at the first and "
        "the last validation of a run, mean over seeds. `shares.csv` has that of each seed.",
    )


def schemes(results: Sequence[Result], tokens: int, unit: int) -> str:
    """One row per scheme with runs of one budget, by rising loss, in Markdown."""
    of_budget = [result for result in results if result.tokens == tokens]
    own = {result.seed: result.val_loss for result in of_budget if result.pos == ROPE}
    rows = []
    for pos in {result.pos for result in of_budget}:
        runs = [result for result in of_budget if result.pos == pos]
        loss = mean([run.val_loss for run in runs])
        rates = ", ".join(sorted({f"{run.lr:g}" for run in runs}))
        family = FAMILIES.get(pos.partition("_")[0], "relative")  # a variant has its scheme's name first
        cells = [pos, family, rates, str(len(runs)), formatting.interval(loss)]
        behind = [run.val_loss - own[run.seed] for run in runs if run.seed in own]
        cells.append(formatting.difference(mean(behind)) if pos != ROPE and behind else "")
        fewer = [point for point in advantage(results, ROPE, pos) if point.tokens == tokens and pos != ROPE]
        cells.append(fewer_tokens(fewer[0], unit) if fewer else "")
        rows.append((loss.value, cells))
    head = ("scheme", "family", "learning rate", "seeds", "final loss", "minus RoPE's, paired")
    return markdown(Table((*head, "times fewer tokens RoPE needs"), [cells for _, cells in sorted(rows)]))


def _range(losses: Mapping[int, float]) -> str:
    """The mean over seeds, and the lowest and highest."""
    middle, low, high = statistics.fmean(losses.values()), min(losses.values()), max(losses.values())
    return f"{middle:.3f} ({low:.3f} to {high:.3f})" if len(losses) > 1 else f"{middle:.3f}"


def fewer_tokens(point: Point, unit: int) -> str:
    """N as text: its mean and interval, or each seed's where one of them has none.

    Args:
        unit: tokens in a unit of budget.
    """
    each = sorted(point.by_seed.values())
    if point.has_ratio:
        return f"{point.advantage.value:.2f}{formatting.bounds(point.advantage)}, {formatting.seeds(len(each))}"
    texts = [f"{n:.2f}" for n in each if 0 < n < math.inf]
    outside = {
        f"RoPE needs under {_units(point.tokens / point.above / unit)}": each.count(math.inf),
        f"RoPE needs over {_units(point.tokens / point.below / unit)}": each.count(0),
    }
    for text, count in outside.items():
        if count:
            texts.append(text if count == len(each) else f"{text} in {count} of {len(each)} seeds")
    return ", ".join(texts)


def _units(count: float) -> str:
    return f"{count:g} unit{'s' * (count != 1)}"
