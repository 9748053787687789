"""The figure of the longest runs: each scheme's loss minus RoPE's, within the run."""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from posenc.analysis.claim_map import ROPE, SINUSOID
from posenc.analysis.convergence import SEEDS_FOR_A_VERDICT
from posenc.analysis.results import CurveRow, by_arm, losses_by_seed
from posenc.analysis.run_key import BACKBONE, SEARCH
from posenc.report import formatting
from posenc.report.figures import STYLE, legend
from posenc.report.looks import looks, titled

START = 1 / 8
"""The part of the run that is not drawn, since there losses fall too steeply to be compared."""

LINES = ("-", (0, (1.5, 1.2)), (0, (4.5, 1.5)), (0, (4.5, 1.2, 1, 1.2)), (0, (1, 3)), (0, (10, 2)))
"""The styles of RoPE's arms, in turn; other schemes have their own."""


class ArmCurves(NamedTuple):
    """The validation losses of an arm, by seed and tokens; `trials` are the seeds that no verdict uses."""

    lr: float
    scale: str
    base: str
    by_seed: dict[int, dict[int, float]]
    trials: set[int]

    def rank(self) -> tuple[int, float]:
        """More seeds are better up to those of a verdict, then a lower final loss; trials count only alone."""
        seeds = self.by_seed.keys() - self.trials
        ends = [losses[max(losses)] for seed, losses in self.by_seed.items() if seed in (seeds or self.trials)]
        return min(len(seeds), SEEDS_FOR_A_VERDICT), -sum(ends) / len(ends)

    def name(self, pos: str, with_base: bool) -> str:
        """RoPE, learning rate 0.003, base 1,000; sinusoid, learning rate 0.003, amplitude 0.2."""
        parts = [titled(pos), f"learning rate {self.lr:g}"]
        if pos == SINUSOID and self.scale:
            parts.append(f"amplitude {self.scale}")
        elif with_base:
            parts.append(formatting.base(self.base))
        return ", ".join(parts)

    def minus(self, other: "ArmCurves", seed: int) -> dict[int, float]:
        """The difference to another arm's run of the same seed, by tokens, without START of it."""
        losses, others = self.by_seed[seed], other.by_seed[seed]
        drawn = [at for at in sorted(losses.keys() & others.keys()) if at >= START * max(losses)]
        return {at: losses[at] - others[at] for at in drawn}


def arms(rows: Iterable[CurveRow]) -> dict[str, list[ArmCurves]]:
    """The arms of each scheme, trials included: first those with enough seeds for a verdict, the lowest first."""
    rows = [row for row in rows if row.in_default_setting]
    trials = {row.seed for row in rows if row.setting == SEARCH}
    found: dict[str, list[ArmCurves]] = {}
    for of_arm in by_arm(replace(row, setting=BACKBONE) for row in rows):
        first = of_arm[0]
        curves = ArmCurves(first.lr, first.scale, first.base, losses_by_seed(of_arm), trials)
        found.setdefault(first.pos, []).append(curves)
    return {pos: sorted(of_scheme, key=ArmCurves.rank, reverse=True) for pos, of_scheme in found.items()}


@matplotlib.rc_context(STYLE)
def within_runs(rows: Sequence[CurveRow]) -> Figure | None:
    """A line for each run of a scheme's first arm minus RoPE's run; for RoPE's others with several seeds their mean.

    None if no other scheme has a seed of RoPE's first arm.

    Args:
        rows: of one budget on one corpus.
    """
    found = arms(rows)
    if ROPE not in found:
        return None
    rope, *controls = found.pop(ROPE)
    shown = [(pos, first) for pos, (first, *_) in found.items() if first.by_seed.keys() & rope.by_seed]
    if not shown:
        return None
    controls = [curves for curves in controls if len(curves.by_seed.keys() & rope.by_seed) > 1]
    shown += [(ROPE, curves) for curves in controls]
    several_bases = len({curves.base for curves in (rope, *controls)}) > 1
    fig = Figure(figsize=(8, 6), layout="constrained")
    axes: Any = fig.subplots()
    axes.axhline(0, color="#1c1c1c", linewidth=0.9)
    look, styles = looks(pos for pos, *_ in shown), itertools.cycle(LINES)
    for pos, curves in shown:
        apart = [curves.minus(rope, seed) for seed in sorted(curves.by_seed.keys() & rope.by_seed)]
        over = f"{'mean over ' if pos == ROPE else ''}{formatting.seeds(len(apart))}"
        name = f"{curves.name(pos, pos == ROPE and several_bases)}, {over}"
        style = next(styles) if pos == ROPE else look[pos].linestyle
        line = {"color": look[pos].colour, "linestyle": style, "linewidth": 1.3}
        for one in [_mean(apart)] if pos == ROPE else apart:
            axes.plot([at / 1e6 for at in one], [*one.values()], label=name, **line)
            name = "_"  # the legend has one entry for all seeds
    axes.set_xlabel("million training tokens")
    axes.set_ylabel("validation loss minus RoPE's, nats per token")
    budget = formatting.millions(rows[0].tokens)
    title = f"runs of {budget} tokens minus {rope.name(ROPE, several_bases)}, of the same seed"
    axes.set_title(title, loc="left", fontsize=9)
    axes.margins(x=0.02)
    legend(fig, 2, fontsize=8, handlelength=2.4, columnspacing=1)
    return fig


def _mean(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The mean of several curves, where all have a value."""
    shared = sorted(set.intersection(*map(set, curves)))
    return {at: statistics.fmean(curve[at] for curve in curves) for at in shared}
