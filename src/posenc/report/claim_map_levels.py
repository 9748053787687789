"""The tokens that both arms need for one loss, as tables of the claim map."""

import statistics
from collections.abc import Mapping, Sequence

from posenc.analysis.claim_map import ARM, BASELINE
from posenc.analysis.levels import Level, level, levels_of_arm
from posenc.analysis.results import Result
from posenc.report import formatting
from posenc.report.tables import Table, section

HEAD = ("loss", f"tokens of {ARM}", f"tokens of {BASELINE}", "ratio (95 % interval)")


def levels(backbone: Sequence[Result], ngrams: Mapping[int, float]) -> list[str]:
    """The paragraphs on the levels that an arm's own budgets and n-gram models give, in Markdown.

    Args:
        backbone: the results of a corpus.
        ngrams: losses by order.
    """
    of_arm = [("RoPE's final loss", found) for found in levels_of_arm(backbone, ARM, BASELINE)]
    of_ngrams = [(f"{order}-gram model", level(backbone, ARM, BASELINE, loss)) for order, loss in ngrams.items()]
    rows = [(name, *_cells(found)) for name, found in (*of_arm, *of_ngrams) if found]
    return section(
        Table(("level", *HEAD), rows),
        "### Tokens to the same loss",
        "N above asks for RoPE's tokens to the sinusoid's final loss. This table asks for the sinusoid's tokens, "
        "interpolated between its budgets, to the final loss of each of RoPE's, and of both arms' tokens to the loss "
        "of an n-gram model. 'over' marks a lower bound: the sinusoid does not reach the loss with its largest budget, "
        "or RoPE reaches it with its smallest. Seeds without runs of the largest budgets are left out where they need "
        "one.",
    )


def _cells(found: Level) -> tuple[str, ...]:
    """The cells under HEAD; tokens and losses are means over seeds."""
    loss, *tokens = (statistics.fmean(values.values()) for values in (found.losses, found.needed, found.baseline))
    ratio = f"{'over ' * found.bound}{found.ratio.value:.2f}{formatting.bounds(found.ratio)}"
    return (
        f"{loss:.3f}",
        *map(formatting.millions, tokens),
        f"{ratio}, {formatting.seeds(found.ratio.seeds)}",
    )
