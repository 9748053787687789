"""The final losses of every scheme with one budget, as a table."""

from collections.abc import Sequence

from posenc.analysis.claim_map import advantage
from posenc.analysis.convergence import figures_only, mean
from posenc.analysis.results import Result
from posenc.report import formatting
from posenc.report.claim_map import ratio

HEADS = ("scheme", "learning rate", "seeds", "final loss", "minus RoPE's, paired", "times fewer tokens RoPE needs")


def table(results: Sequence[Result], arm: str, tokens: int, unit: int) -> str:
    """One row per scheme with runs of this budget, by rising loss, in Markdown.

    Args:
        results: of one corpus and setting.
        arm: the scheme that the others are compared with.
        tokens: the budget.
        unit: tokens in a unit of budget.
    """
    of_budget = [result for result in results if result.tokens == tokens]
    own = {result.seed: result.val_loss for result in of_budget if result.pos == arm}
    rows = []
    for pos in {result.pos for result in of_budget}:
        runs = [result for result in of_budget if result.pos == pos]
        loss = figures_only(mean([run.val_loss for run in runs]))
        cells = [pos, ", ".join(sorted({f"{run.lr:g}" for run in runs})), str(len(runs)), formatting.interval(loss)]
        behind = [run.val_loss - own[run.seed] for run in runs if run.seed in own]
        cells.append(formatting.difference(figures_only(mean(behind))) if pos != arm and behind else "")
        fewer = [point for point in advantage(results, arm, pos) if point.tokens == tokens and pos != arm]
        cells.append(ratio(fewer[0], unit) if fewer else "")
        rows.append((loss.value, f"| {' | '.join(cells)} |"))
    return "\n".join([f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|", *(row for _, row in sorted(rows))])
