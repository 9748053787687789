"""The claim map: how many times fewer tokens one arm needs for the loss of another, budget by budget.

N(D) = D / D_arm(L(D)), where L(D) is the baseline's validation loss at the end of a run of D tokens, and D_arm(L) the
arm's own budget for that loss, interpolated in log D between the arm's budgets. Each budget is a run with a schedule of
its own, so neither a plateau nor the annealing of the learning rate favours an arm (docs/protocol.md).
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from posenc.analysis.convergence import CONFIDENCE, SEEDS_FOR_A_VERDICT, Estimate, mean, reached, speed_up
from posenc.analysis.runs import Run
from posenc.errors import UserError

PLATEAU = 0.1
"""Nats under the bigram model that a baseline must be for its end to be more than the end of a plateau."""

BACKBONE, SEARCH = "backbone", "search"

FACTORS = (
    "model", "model.width", "model/family", "attention", "objective", "tokenizer", "tokenizer.vocab_size", "context",
    "batch_size",
)  # fmt: skip
"""What may differ from the backbone beside the scheme, its hyperparameters, the seed and the budget."""

Key = tuple[str, str, str, int, int, float, str, str]


@dataclass(frozen=True)
class Result:
    """A finished run: a row of runs.csv.

    Attributes:
        corpus: what it read.
        setting: `backbone`, the factors that differ from it, or `search` for a trial.
        pos, seed, tokens: the arm, and its budget.
        lr, scale, base: its own hyperparameters; empty where the scheme has none.
        val_loss: at its end, nats per token.
        bigram_loss: of the bigram model on the same validation windows.
        commit: of the code that trained it.
    """

    corpus: str
    setting: str
    pos: str
    seed: int
    tokens: int
    lr: float
    scale: str
    base: str
    val_loss: float
    bigram_loss: float
    commit: str

    @property
    def key(self) -> Key:
        """What makes it this run; two with one key are the same."""
        return self.corpus, self.setting, self.pos, self.seed, self.tokens, self.lr, self.scale, self.base


def key_of(setting: Mapping[str, Any], corpus: str, backbone: Mapping[str, Any], search_seeds: Sequence[int]) -> Key:
    """The key of what a configuration trains.

    Args:
        setting: the configuration, flat, with `pos` and `seed`.
        corpus: its name in runs.csv.
        backbone: likewise flat, of the experiment without any override.
        search_seeds: those of trials.
    """
    factors = [f"{name}={setting.get(name)}" for name in FACTORS if setting.get(name) != backbone.get(name)]
    seed = int(setting["seed"])
    return (
        corpus,
        SEARCH if seed in search_seeds else " ".join(factors) or BACKBONE,
        setting["pos"],
        seed,
        int(setting["steps"] * setting["batch_size"] * setting["context"]),
        float(setting["optim.lr"]),
        str(setting.get("pos.scale", "")),
        str(setting.get("pos.base", "")),
    )


def result_of(run: Run, backbone: Mapping[str, Any], search_seeds: Sequence[int]) -> Result:
    """The row of a finished run; arguments as in `key_of`."""
    corpus = f"{run.setting['data']}-{run.setting['text'][:8]}"
    key = key_of({**run.setting, "pos": run.scheme, "seed": run.seed}, corpus, backbone, search_seeds)
    return Result(*key, run.summary["val_loss"], run.summary["bigram_loss"], run.summary["commit"] or "unknown")


def curve_rows(run: Run, result: Result) -> list[dict[str, object]]:
    """The validations of a run, rows of curves.csv."""
    named = {name: value for name, value in asdict(result).items() if name not in ("val_loss", "bigram_loss", "commit")}
    measured = zip(run.curve["tokens"], run.curve["val_loss"], strict=True)
    return [{**named, "at_tokens": int(tokens), "val_loss": round(loss, 5)} for tokens, loss in measured]


@dataclass(frozen=True)
class Point:
    """N(D) at one budget of the baseline.

    Attributes:
        tokens: D.
        loss: the baseline's at its end, mean over seeds.
        advantage: N(D), geometric mean over the seeds that both arms share; 0 where the arm never has that loss within
            its budgets, infinite where its smallest budget has it already.
        by_seed: N(D) of each seed.
        gap: the baseline's loss less the arm's at the same D, in nats; None where the arm has no run of D tokens.
        plateau: whether the baseline stands less than PLATEAU under the bigram model.
    """

    tokens: int
    loss: float
    advantage: Estimate
    by_seed: Mapping[int, float]
    gap: Estimate | None
    plateau: bool


@dataclass(frozen=True)
class Trend:
    """log N = a + b log D, fitted in each seed; b is their mean with Student's interval over the seeds.

    Attributes:
        slope: b. Below 0 the advantage shrinks as the budget grows.
        seeds: how many.
    """

    slope: Estimate
    seeds: int


def read_results(file: Path) -> tuple[Result, ...]:
    """The rows of runs.csv; none if there is no such file.

    Raises:
        UserError: naming the line that cannot be read.
    """
    if not file.exists():
        return ()
    types = {field.name: field.type for field in fields(Result)}
    results = []
    with file.open(newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), 2):
            try:
                results.append(Result(**{name: types[name](row[name]) for name in types}))  # type: ignore[operator]
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(f"{file}, line {number} cannot be read: {error}") from error
    return tuple(results)


def rows(results: Iterable[Result]) -> list[dict[str, object]]:
    """Rows of runs.csv in one order, so that the same results give the same file."""
    return [asdict(result) for result in sorted(results, key=lambda result: result.key)]


def tokens_to(budgets: Mapping[int, float], loss: float) -> float:
    """The budget at which an arm ends with a loss, interpolated in log D between its own budgets.

    Args:
        budgets: its validation loss at the end of each, by tokens.
        loss: nats per token.

    Returns:
        Tokens; 0 where its smallest budget is enough, infinite where its largest is not.
    """
    tokens = sorted(budgets)
    losses = [budgets[size] for size in tokens]
    if losses[0] <= loss:
        return float(tokens[0]) if losses[0] == loss else 0.0
    return math.exp(reached(np.log(tokens), losses, loss))


def advantage(results: Iterable[Result], arm: str, baseline: str) -> tuple[Point, ...]:
    """N(D) of an arm over a baseline, for results of one corpus and setting, by rising D."""
    arms = {name: _by_seed(result for result in results if result.pos == name) for name in (arm, baseline)}
    floors = {result.tokens: result.bigram_loss for result in results if result.pos == baseline}
    seeds = sorted(arms[arm].keys() & arms[baseline].keys())
    points = []
    for tokens in sorted({tokens for seed in seeds for tokens in arms[baseline][seed]}):
        losses = {seed: arms[baseline][seed][tokens] for seed in seeds if tokens in arms[baseline][seed]}
        needed = {seed: tokens_to(arms[arm][seed], loss) for seed, loss in losses.items()}
        gaps = [loss - arms[arm][seed][tokens] for seed, loss in losses.items() if tokens in arms[arm][seed]]
        level = float(np.mean(list(losses.values())))
        points.append(
            Point(
                tokens,
                level,
                _figures_only(_ratio(tokens, list(needed.values()))),
                {seed: tokens / budget if budget else math.inf for seed, budget in needed.items()},
                _figures_only(mean(gaps)) if gaps else None,
                level > floors[tokens] - PLATEAU,
            )
        )
    return tuple(points)


def _by_seed(results: Iterable[Result]) -> dict[int, dict[int, float]]:
    """Losses by seed, then by tokens.

    Raises:
        UserError: if one budget of a seed was trained with two sets of hyperparameters: which is the arm's?
    """
    losses: dict[int, dict[int, float]] = {}
    for result in results:
        of_seed = losses.setdefault(result.seed, {})
        if result.tokens in of_seed:
            raise UserError(f"{result.pos}, seed {result.seed}, {result.tokens:,} tokens stand twice in the results")
        of_seed[result.tokens] = result.val_loss
    return losses


def _ratio(tokens: int, needed: Sequence[float]) -> Estimate:
    if any(budget == 0 for budget in needed):
        return Estimate(math.inf, None, None, len(needed))
    return speed_up([tokens] * len(needed), needed)


def _figures_only(estimate: Estimate) -> Estimate:
    """Without its interval where there are too few seeds for one."""
    if estimate.seeds >= SEEDS_FOR_A_VERDICT:
        return estimate
    return Estimate(estimate.value, None, None, estimate.seeds, estimate.missed)


def trend(points: Sequence[Point]) -> Trend | None:
    """How N changes with D, over the points off the plateau; None with fewer than two of them in every seed."""
    slopes = []
    for seed in sorted({seed for point in points for seed in point.by_seed}):
        known = [(point.tokens, point.by_seed.get(seed, 0.0)) for point in points if not point.plateau]
        finite = [(math.log(tokens), math.log(n)) for tokens, n in known if 0 < n < math.inf]
        if len(finite) >= 2:
            slopes.append(float(stats.linregress(*np.transpose(finite)).slope))
    return Trend(_figures_only(mean(slopes)), len(slopes)) if slopes else None


def pooled_sd(results: Iterable[Result]) -> tuple[float, int]:
    """The standard deviation of the last loss over seeds, pooled over all arms, budgets and settings.

    Returns:
        It in nats, and its degrees of freedom; NaN and 0 where no arm has two seeds.
    """
    groups: dict[tuple[object, ...], list[float]] = {}
    for r in results:
        groups.setdefault((*r.key[:3], *r.key[4:]), []).append(r.val_loss)
    freedom = sum(len(losses) - 1 for losses in groups.values())
    squares = sum(float(np.var(losses)) * len(losses) for losses in groups.values())
    return (math.sqrt(squares / freedom), freedom) if freedom else (math.nan, 0)


def trials(results: Iterable[Result]) -> dict[str, list[tuple[float, Result]]]:
    """The search: for each arm its hyperparameters by mean loss over the search's seeds, best first."""
    found: dict[tuple[str, float, str, str], list[Result]] = {}
    for result in results:
        if result.setting == SEARCH:
            found.setdefault((result.pos, result.lr, result.scale, result.base), []).append(result)
    arms: dict[str, list[tuple[float, Result]]] = {}
    for (pos, *_), runs in found.items():
        arms.setdefault(pos, []).append((float(np.mean([run.val_loss for run in runs])), runs[0]))
    return {pos: sorted(tried, key=lambda trial: trial[0]) for pos, tried in sorted(arms.items())}


def seeds_needed(sd: float, margin: float) -> int:
    """How many seeds make the 95 % interval of a mean no wider than +- margin, for values of this SD."""
    seeds = 2
    while stats.t.ppf(0.5 + CONFIDENCE / 2, seeds - 1) * sd / math.sqrt(seeds) > margin:
        seeds += 1
    return seeds
